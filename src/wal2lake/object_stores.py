"""An object store through obstore: how it is reached, when a put has counted, and what an error of it means.

The rule: whether a conditional put counted is never guessed. Each bears a number of its own in its metadata, so one
whose answer was lost, or that was repeated after it had counted, is told from somebody else's by reading what is there
(docs/object-store.md). What the store says of an error is told by its code alone: the text may repeat what was sent.

Source: obstore's documentation; AWS "Conditional writes"; RFC 9110, If-Match and If-None-Match.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final
from uuid import uuid4

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError, UnknownConfigurationKeyError
from obstore.store import from_url

from wal2lake.errors import AuthError, ConfigError, ConnectError, LogFullError, RightsError, Wal2LakeError
from wal2lake.urls import ObjectUrl

_NUMBER: Final = "wal2lakeput"  # the metadata that tells whose put it was; Azure allows letters and digits
RETRIES: Final = 6
_RETRY_S, _TIMEOUT_S, _CONNECT_S = 20.0, 20.0, 5.0  # all tries of a request; one; until somebody answers at all
_CLIENT: Final = {  # the options that obstore takes apart from the others
    "allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type", "http1_only",
    "http2_only", "pool_idle_timeout", "pool_max_idle_per_host", "proxy_url", "proxy_ca_certificate",
    "proxy_excludes", "root_certificate", "randomize_addresses", "read_timeout", "timeout", "user_agent",
}  # fmt: skip
_ENDPOINTS: Final = ("endpoint", "endpoint_url")
_IN_ENVIRONMENT: Final = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT")
_LINES = re.compile(r"\s*(?:\x1b\[[0-9;]*m)*↳(?:\x1b\[[0-9;]*m)*\s*")  # delta-rs has a line for each cause
_OF_STORE = re.compile(r"Error performing |Generic (?:S3|GCS|MicrosoftAzure) error|lacked the necessary privileges")
_CODE = re.compile(r"<Code>(\w+)</Code>|\"(?:code|reason)\": *\"(\w+)\"|status code: (\d{3})")
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|specified bucket does not exist|ContainerBeingDeleted")
_NO_CREDENTIALS = re.compile(
    r"169\.254\.169\.254|metadata\.google\.internal|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken"
    r"|TokenRefreshRequired|AuthenticationFailed|InvalidAuthenticationInfo|MissingSecurityHeader|status code: 401"
    r"|invalid_grant|missing credentials|lacked valid authentication|/latest/api/token|/latest/meta-data"
)
_NO_RIGHTS = re.compile(
    r"AccessDenied|AuthorizationPermissionMismatch|AuthorizationFailure|status code: 403"
    r"|lacked the necessary privileges"
)
_NO_ROOM = re.compile(r"QuotaExceeded|StorageFull|status code: 507")
_WRONG = re.compile(r"AuthorizationHeaderMalformed|PermanentRedirect|IllegalLocationConstraint|status code: 301")
_NOT_THERE = re.compile(r"NotImplemented|status code: 501|status code: 405")
Version = str  # of an object's content; means nothing else


@dataclass
class BucketClient:
    """``client``: obstore's own; ``seen``: the bucket is there."""

    client: Any
    seen: bool = False


class ObjectStore:
    """The objects of a URL's bucket, by what stands behind the URL's prefix if ``client``, obstore's own, has none.

    For all threads of a process.
    """

    def __init__(self, place: ObjectUrl, client: BucketClient | None = None) -> None:
        """``client``: of the whole bucket, which names then count from. Raises ConfigError and AuthError; nobody is
        asked yet."""
        self.where, self._setting, self._scheme = place.where, place.setting, place.scheme
        self.client = _connected(place) if client is None else client.client
        self._looked_at = None if client is None else place.prefix
        self._bucket = client or BucketClient(self.client)

    def put_if(self, name: str, data: bytes, condition: Any) -> Version | None:
        """obstore's ``mode``; None when the condition did not hold, unless that is because of this very put."""
        number, doubt = uuid4().hex, None
        try:
            with self.asking(name):
                done = obstore.put(
                    self.client, name, data, mode=condition, attributes={_NUMBER: number}, use_multipart=False
                )
            return version_of(done)
        except (AlreadyExistsError, PreconditionError):
            pass
        except ConnectError as error:
            doubt = error
        try:
            with self.asking(name):
                found = obstore.get(self.client, name)
        except FileNotFoundError:
            found = None
        if found is not None and found.attributes.get(_NUMBER) == number:
            return version_of(found.meta)
        if doubt is not None:
            raise doubt
        return None

    def read_end(self, name: str, length: int) -> tuple[bytes, int]:
        """The last ``length`` bytes, or as many as there are, and the object's size; to be called in ``asking``."""
        if self._scheme == "az":  # Azure knows no range that counts from the end
            size = obstore.head(self.client, name)["size"]
            start = max(0, size - length)
            return obstore.get_range(self.client, name, start=start, end=size).to_bytes() if size else b"", size
        found = obstore.get(self.client, name, options={"range": {"suffix": length}})
        return found.bytes().to_bytes(), found.meta["size"]

    @contextmanager
    def asking(self, name: str) -> Iterator[None]:
        """What the store answers leaves the block as one of ours, but for a condition that does not hold."""
        try:
            yield
        except FileNotFoundError as error:
            self._require_bucket(str(error))
            raise FileNotFoundError(errno.ENOENT, "There is no such object", f"{self.where}/{name}") from None
        except (AlreadyExistsError, PreconditionError):
            raise
        except BaseError as error:
            raise explained(self.where, str(error), self._setting) from None

    def _require_bucket(self, text: str) -> None:
        """Of an object that is not there some stores do not say whether the bucket is."""
        try:
            if _NO_BUCKET.search(text):
                raise _no_bucket(self.where, self._setting)
            if not self._bucket.seen:
                next(iter(obstore.list(self.client, self._looked_at, chunk_size=1)), None)
        except BaseError as error:
            raise explained(self.where, str(error), self._setting) from None
        self._bucket.seen = True


def bucket_client(place: ObjectUrl) -> BucketClient:
    """For the whole bucket, with its connections: one in each process. Raises as ``ObjectStore``."""
    return _client(replace(place, prefix=""), place.setting, RETRIES, os.getpid())


@lru_cache(maxsize=16)
def _client(place: ObjectUrl, _setting: str, _retries: int, _pid: int) -> BucketClient:
    return BucketClient(_connected(place))


def resolved(place: ObjectUrl) -> dict[str, str]:
    """The URL's options with what environment variables hold, and what follows from them. Raises ConfigError."""
    options = place.resolved()
    endpoints = [value for name, value in options.items() if name.endswith(_ENDPOINTS)]
    if place.scheme == "s3":
        endpoints += [os.environ.get(name, "") for name in _IN_ENVIRONMENT]
    if any(endpoint.startswith("http://") for endpoint in endpoints):
        options.setdefault("allow_http", "true")
    return options


def _connected(place: ObjectUrl) -> Any:
    options = resolved(place)
    client = {name: options.pop(name) for name in [*options] if name in _CLIENT}
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
        raise ConfigError(
            f"{place.setting}.options has a name that {place.scheme}:// does not know.", hint=hint
        ) from None
    except (BaseError, ValueError, TypeError):
        names = ", ".join(name for name, _ in place.options) or "none"
        raise ConfigError(
            f"The object store of {place.where} cannot be set up; its {place.setting}.options: {names}."
        ) from None


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
        from obstore.auth.boto3 import Boto3CredentialProvider  # noqa: PLC0415
    except ModuleNotFoundError:
        raise ConfigError("An AWS profile needs the module boto3.", hint="Install it: pip install boto3.") from None
    with _asking_boto():
        return Boto3CredentialProvider(session=Session(profile_name=profile))


@contextmanager
def _asking_boto() -> Iterator[None]:
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415

    try:
        yield
    except (BotoCoreError, ValueError):
        raise AuthError(
            "The AWS profile that is named gives no credentials.", hint="Try `aws configure list`."
        ) from None


def frozen_profile(options: dict[str, str]) -> dict[str, str]:
    """``options`` with an AWS profile's keys as they are now in place of its name, for a library that knows none."""
    options = dict(options)
    provider = _profile(options)
    if provider is None:
        return options
    with _asking_boto():
        known = provider()
    found = {name: known.get(name) for name in ("access_key_id", "secret_access_key", "token")}
    return dict(provider.config or {}) | options | {name: value for name, value in found.items() if value}


def is_of_store(text: str) -> bool:
    """Whether an error's ``text`` tells of a request to a store, and not of what was read there."""
    return _OF_STORE.search(text) is not None


def explained(where: str, text: str, setting: str) -> Wal2LakeError:
    """What is wrong, by the codes in an error's ``text``: the rest of it may hold anything."""
    text = _LINES.sub(": ", text)
    code = "/".join(dict.fromkeys(filter(None, sum(_CODE.findall(text), ()))))
    said = f" ({code})" if code else ""
    if _NO_BUCKET.search(text):
        return _no_bucket(where, setting)
    if _NO_CREDENTIALS.search(text):
        hint = f"Set them as the store's own tools take them (AWS_ACCESS_KEY_ID …, a role, {setting}.options.profile)."
        return AuthError(f"The object store of {where} knows no credentials, or not these{said}.", hint=hint)
    if _NO_RIGHTS.search(text):
        hint = "Allow it to get, put, delete and list objects below that prefix; it may be that the key is wrong."
        return RightsError(f"The object store refuses {where} to these credentials{said}.", hint=hint)
    if _NO_ROOM.search(text):
        return LogFullError(f"The object store of {where} has no room left{said}.", hint="Raise the quota.")
    if _WRONG.search(text):
        return ConfigError(f"The bucket of {where} is in another region{said}.", hint=f"Set {setting}.options.region.")
    if "builder error" in text or "URL scheme is not allowed" in text:
        hint = f'For http:// set {setting}.options.allow_http = "true".'
        return ConfigError(f"The endpoint of {where} is no URL that may be asked.", hint=hint)
    if _NOT_THERE.search(text):
        return ConfigError(f"The object store of {where} cannot do what the {setting} needs{said}.")
    return ConnectError(f"The object store of {where} does not answer as it should{said or ', or not at all'}.")


def _no_bucket(where: str, setting: str) -> ConfigError:
    return ConfigError(
        f"There is no bucket for {where}.", hint=f"Make it, or mend {setting}.path; nothing makes one here."
    )


def version_of(meta: Any) -> Version:
    """GCS compares generations, the others ETags."""
    return f"{meta.get('version') or ''} {meta.get('e_tag') or ''}"


def if_version(version: Version) -> dict[str, str]:
    generation, _, tag = version.partition(" ")
    return {name: value for name, value in (("version", generation), ("e_tag", tag)) if value}
