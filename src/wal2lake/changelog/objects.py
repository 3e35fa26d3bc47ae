"""The log in an object store: an object is put whole, and two conditions of a put are all that its safety stands on.

The rule: whether a conditional put counted is never guessed. Each bears a number of its own in its metadata, so one
whose answer was lost, or that was repeated after it had counted, is told from somebody else's by reading what is there
(docs/object-store.md). What the store says of an error is told by its code alone: the text may repeat what was sent.

Source: obstore's documentation; AWS "Conditional writes"; RFC 9110, If-Match and If-None-Match.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from functools import lru_cache
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
from obstore.store import from_url

from wal2lake.changelog.lease import is_leased, leased
from wal2lake.changelog.places import EVERYTHING, RELATIONS, SEGMENTS, WRITER_LOCK
from wal2lake.changelog.storage import Hold, Stored, Version
from wal2lake.errors import AuthError, ConfigError, ConnectError, LogFullError, RightsError, Wal2LakeError
from wal2lake.urls import ObjectUrl

if TYPE_CHECKING:
    import pyarrow as pa

_NUMBER: Final = "wal2lakeput"  # the metadata that tells whose put it was; Azure allows letters and digits
RETRIES: Final = 6
_RETRY_S, _TIMEOUT_S, _CONNECT_S = 20.0, 20.0, 5.0  # all tries of a request; one; until somebody answers at all
_END_BYTES: Final = 1 << 15  # of a segment, in which its metadata mostly are
_AT_ONCE: Final = 16
_DELETED_AT_ONCE: Final = 1000
_KEPT_BYTES: Final = 64 << 20
_PROBE: Final = ".probe-"
_CLIENT: Final = {  # the options that obstore takes apart from the others
    "allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type", "http1_only",
    "http2_only", "pool_idle_timeout", "pool_max_idle_per_host", "proxy_url", "proxy_ca_certificate",
    "proxy_excludes", "root_certificate", "randomize_addresses", "read_timeout", "timeout", "user_agent",
}  # fmt: skip
_CODE = re.compile(r"<Code>(\w+)</Code>|\"(?:code|reason)\": *\"(\w+)\"|status code: (\d{3})")
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|specified bucket does not exist|ContainerBeingDeleted")
_NO_CREDENTIALS = re.compile(
    r"169\.254\.169\.254|metadata\.google\.internal|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken"
    r"|TokenRefreshRequired|AuthenticationFailed|InvalidAuthenticationInfo|MissingSecurityHeader|status code: 401"
    r"|invalid_grant|missing credentials"
)
_NO_RIGHTS = re.compile(r"AccessDenied|AuthorizationPermissionMismatch|AuthorizationFailure|status code: 403")
_NO_ROOM = re.compile(r"QuotaExceeded|StorageFull|status code: 507")
_WRONG = re.compile(r"AuthorizationHeaderMalformed|PermanentRedirect|IllegalLocationConstraint|status code: 301")
_NOT_THERE = re.compile(r"NotImplemented|status code: 501|status code: 405")


@lru_cache(maxsize=8)
def _opened(url: str, _: int) -> ObjectStorage:
    return ObjectStorage(url)


def object_storage(url: str) -> ObjectStorage:
    """The storage at ``url``, with its connections: one in each process."""
    return _opened(url, os.getpid())


class ObjectStorage:
    """A ``Storage``: the objects below a URL's prefix. For all threads of a process."""

    tell_s, look_s = 5.0, 0.5

    def __init__(self, url: str) -> None:
        place = ObjectUrl.parse(url)
        self._url, self._where = url, place.where
        self._store = _connected(place)
        self._bucket_seen = False
        self._kept: OrderedDict[str, pa.Buffer] = OrderedDict()
        self._one_at_a_time = threading.Lock()

    def __reduce__(self) -> tuple[object, ...]:
        return object_storage, (self._url,)

    @property
    def where(self) -> str:
        return self._where

    def get(self, name: str) -> bytes:
        return self.read(name).data

    def read(self, name: str) -> Stored:
        with self._asking(name):
            found = obstore.get(self._store, name)
            return Stored(found.bytes().to_bytes(), _version(found.meta))

    def map(self, name: str) -> pa.Buffer:
        """In memory; what never changes is kept for a while, for who asks for the next table's rows in it."""
        import pyarrow as pa  # noqa: PLC0415 - documents are read where there is no Arrow

        with self._one_at_a_time:
            if name in self._kept:
                self._kept.move_to_end(name)
                return self._kept[name]
        found = pa.py_buffer(self.get(name))
        if name.partition("/")[0] in (SEGMENTS, RELATIONS):
            with self._one_at_a_time:
                self._kept[name] = found
                while sum(kept.size for kept in self._kept.values()) > _KEPT_BYTES:
                    self._kept.popitem(last=False)
        return found

    def map_ends(self, names: Sequence[str], begins: Callable[[bytes], int]) -> Iterator[pa.Buffer | None]:
        if len(names) <= 1:
            yield from (self._end(name, begins) for name in names)
            return
        with ThreadPoolExecutor(_AT_ONCE) as executor:
            yield from executor.map(self._end, names, repeat(begins))

    def _end(self, name: str, begins: Callable[[bytes], int]) -> pa.Buffer | None:
        """As large as the object is; what was not asked for takes no memory."""
        import pyarrow as pa  # noqa: PLC0415

        try:
            with self._asking(name):
                found = obstore.get(self._store, name, options={"range": {"suffix": _END_BYTES}})
                end, size = found.bytes().to_bytes(), found.meta["size"]
                if len(end) == size:
                    return pa.py_buffer(end)
                at = begins(end)
                if 0 <= at < size - len(end):
                    end = obstore.get_range(self._store, name, start=at, end=size - len(end)).to_bytes() + end
        except FileNotFoundError:
            return None
        whole = mmap.mmap(-1, size)
        whole[size - len(end) :] = end
        return pa.py_buffer(whole)

    def watchable(self, folder: str) -> str | None:
        return None

    def exists(self, name: str) -> bool:
        try:
            with self._asking(name):
                obstore.head(self._store, name)
        except FileNotFoundError:
            return False
        return True

    def names(self, folder: str) -> list[str]:
        with self._asking(folder):
            found = obstore.list_with_delimiter(self._store, folder)["objects"]
        names = (one["path"].rpartition("/")[2] for one in found)
        return sorted(name for name in names if name[0] != ".")

    def folders(self, folder: str) -> list[str]:
        with self._asking(folder):
            found = obstore.list_with_delimiter(self._store, folder)["common_prefixes"]
        return sorted(path.rstrip("/").rpartition("/")[2] for path in found)

    def modified(self, name: str) -> float:
        """By the store's clock."""
        with self._asking(name):
            return obstore.head(self._store, name)["last_modified"].timestamp()

    def create(self, name: str, *parts: bytes | pa.Buffer) -> bool:
        return self._put(name, b"".join(parts), "create") is not None

    def swap(self, name: str, data: bytes, version: Version | None) -> Version | None:
        with self._one_at_a_time:
            self._kept.pop(name, None)
        return self._put(name, data, "create" if version is None else _condition(version))

    def put(self, name: str, data: bytes) -> None:
        with self._asking(name):
            obstore.put(self._store, name, data, use_multipart=False)

    note = put

    def remove(self, *names: str) -> None:
        for first in range(0, len(names), _DELETED_AT_ONCE):
            with self._asking(names[first]):
                obstore.delete(self._store, list(names[first : first + _DELETED_AT_ONCE]))

    def prepare(self, *folders: str) -> None:
        """There are none."""

    def recover(self, *folders: str) -> None:
        """A put is whole, or was never there. But that conditions count here is worth being sure of."""
        self.probe()

    def clear(self) -> bool:
        with self._asking(""):
            found = [one["path"] for page in obstore.list(self._store) for one in page]
        ranks = {name: rank for rank, name in enumerate((*EVERYTHING, WRITER_LOCK))}
        ours = [path for path in found if path.partition("/")[0] in ranks]
        self.remove(*sorted(ours, key=lambda path: ranks[path.partition("/")[0]]))
        self.remove(*(path for path in found if path.startswith(_PROBE)))
        return any(path != WRITER_LOCK for path in ours)

    def lock(self, name: str) -> AbstractContextManager[Hold]:
        return leased(self, name)

    def is_locked(self, name: str) -> bool:
        return is_leased(self, name)

    def probe(self) -> None:
        """Write, read and delete an object. Raises what stands in the way; ConfigError where no condition counts."""
        name = f"{_PROBE}{uuid4().hex}"
        try:
            first = self.swap(name, b"one", None)
            refused = first is not None and self.swap(name, b"two", None) is None
            second = self.swap(name, b"three", first) if refused else None
            if second is None or self.swap(name, b"four", first) is not None or self.get(name) != b"three":
                raise ConfigError(
                    f"The object store of {self.where} does not keep to the conditions of a put (If-None-Match,"
                    " If-Match): two processes could write over each other.",
                    hint="Use a store that does, as S3, GCS and Azure Blob Storage do, or a folder for log.path.",
                )
        finally:
            self.remove(name)

    def _put(self, name: str, data: bytes, condition: Any) -> Version | None:
        """None when the condition did not hold, unless that is because of this very put."""
        number, doubt = uuid4().hex, None
        try:
            with self._asking(name):
                done = obstore.put(
                    self._store, name, data, mode=condition, attributes={_NUMBER: number}, use_multipart=False
                )
            return _version(done)
        except (AlreadyExistsError, PreconditionError):
            pass
        except ConnectError as error:
            doubt = error
        try:
            with self._asking(name):
                found = obstore.get(self._store, name)
        except FileNotFoundError:
            found = None
        if found is not None and found.attributes.get(_NUMBER) == number:
            return _version(found.meta)
        if doubt is not None:
            raise doubt
        return None

    @contextmanager
    def _asking(self, name: str) -> Iterator[None]:
        """What the store answers leaves the block as one of ours, but for a condition that does not hold."""
        try:
            yield
        except FileNotFoundError as error:
            self._require_bucket(str(error))
            raise FileNotFoundError(errno.ENOENT, "There is no such object", f"{self._where}/{name}") from None
        except (AlreadyExistsError, PreconditionError):
            raise
        except BaseError as error:
            raise _explained(self._where, error) from None

    def _require_bucket(self, text: str) -> None:
        """Of an object that is not there some stores do not say whether the bucket is."""
        try:
            if _NO_BUCKET.search(text):
                raise _no_bucket(self._where)
            if not self._bucket_seen:
                next(iter(obstore.list(self._store, chunk_size=1)), None)
        except BaseError as error:
            raise _explained(self._where, error) from None
        self._bucket_seen = True


def _connected(place: ObjectUrl) -> Any:
    options = place.resolved()
    client = {name: options.pop(name) for name in [*options] if name in _CLIENT}
    if any(
        value.startswith("http://") for name, value in options.items() if name.endswith(("endpoint", "endpoint_url"))
    ):
        client.setdefault("allow_http", "true")
    provider = _profile(options) if place.scheme == "s3" else None
    pauses = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=3), "base": 2}
    settings: dict[str, Any] = {
        "config": options,
        "client_options": {"timeout": f"{_TIMEOUT_S:g}s", "connect_timeout": f"{_CONNECT_S:g}s", **client},
        "retry_config": {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=_RETRY_S), "backoff": pauses},
        **({"credential_provider": provider} if provider else {}),
    }
    try:
        return from_url(f"{place.scheme}://{place.bucket}" + (f"/{place.prefix}" if place.prefix else ""), **settings)
    except UnknownConfigurationKeyError:
        hint = "Known are the settings of obstore for this kind of store, as region, endpoint, access_key_id, profile."
        raise ConfigError(f"log.options has a name that {place.scheme}:// does not know.", hint=hint) from None
    except (BaseError, ValueError, TypeError):
        names = ", ".join(name for name, _ in place.options) or "none"
        raise ConfigError(f"The object store of {place.where} cannot be set up; its log.options: {names}.") from None


def _profile(options: dict[str, str]) -> Any:
    """Who knows the credentials of an AWS profile; None where there is none to know."""
    profile = options.pop("profile", None)
    if profile is None and ("AWS_ACCESS_KEY_ID" in os.environ or any("access_key" in name for name in options)):
        return None
    profile = profile or os.environ.get("AWS_PROFILE")
    if profile is None:
        return None
    try:
        from boto3 import Session  # noqa: PLC0415 - nobody else needs it
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415
        from obstore.auth.boto3 import Boto3CredentialProvider  # noqa: PLC0415
    except ModuleNotFoundError:
        raise ConfigError("An AWS profile needs the module boto3.", hint="Install it: pip install boto3.") from None
    try:
        return Boto3CredentialProvider(session=Session(profile_name=profile))
    except (BotoCoreError, ValueError):
        raise AuthError(
            "The AWS profile that is named gives no credentials.", hint="Try `aws configure list`."
        ) from None


def _explained(where: str, error: BaseError) -> Wal2LakeError:
    """What is wrong, by the codes in the answer: the rest of it may hold anything."""
    text, code = str(error), "/".join(dict.fromkeys(filter(None, sum(_CODE.findall(str(error)), ()))))
    said = f" ({code})" if code else ""
    if _NO_BUCKET.search(text):
        return _no_bucket(where)
    if _NO_CREDENTIALS.search(text) or isinstance(error, UnauthenticatedError):
        hint = "Set them as the store's own tools take them (AWS_ACCESS_KEY_ID …, a role, log.options.profile)."
        return AuthError(f"The object store of {where} knows no credentials, or not these{said}.", hint=hint)
    if isinstance(error, PermissionDeniedError) or _NO_RIGHTS.search(text):
        hint = "Allow it to get, put, delete and list objects below that prefix; it may be that the key is wrong."
        return RightsError(f"The object store refuses {where} to these credentials{said}.", hint=hint)
    if _NO_ROOM.search(text):
        return LogFullError(f"The object store of {where} has no room left{said}.", hint="Raise the quota.")
    if _WRONG.search(text):
        return ConfigError(f"The bucket of {where} is in another region{said}.", hint="Set log.options.region.")
    if "builder error" in text or "URL scheme is not allowed" in text:
        hint = 'For http:// set log.options.allow_http = "true".'
        return ConfigError(f"The endpoint of {where} is no URL that may be asked.", hint=hint)
    if _NOT_THERE.search(text):
        return ConfigError(f"The object store of {where} cannot do what the log needs{said}.")
    return ConnectError(f"The object store of {where} does not answer as it should{said or ', or not at all'}.")


def _no_bucket(where: str) -> ConfigError:
    return ConfigError(f"There is no bucket for {where}.", hint="Make it, or mend log.path; nothing makes one here.")


def _version(meta: Any) -> Version:
    """GCS compares generations, the others ETags."""
    return f"{meta.get('version') or ''} {meta.get('e_tag') or ''}"


def _condition(version: Version) -> dict[str, str]:
    generation, _, tag = version.partition(" ")
    return {name: value for name, value in (("version", generation), ("e_tag", tag)) if value}
