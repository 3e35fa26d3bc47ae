"""URLs of object stores: ``s3://bucket/prefix?option=value``, also ``gs://`` and ``az://``. No secret is ever in one.

The rule: such a URL may be logged, shown, pickled and given to Spark as it is. So a secret is not written into it, but
the environment variable that holds it, as ``$NAME`` or ``${NAME}``; what is found there is looked up by whoever asks
the store.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Self
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from wal2lake.errors import ConfigError

SCHEMES: Final = ("s3", "gs", "az")
_SECRET = re.compile(r"secret|token|password|credential|sas|key|headers|proxy_url|customer")
_PLAIN: Final = {  # these have such a word in them, and name what is nobody's secret
    "access_key_id", "aws_access_key_id", "sse_kms_key_id", "aws_sse_kms_key_id", "sse_bucket_key_enabled",
    "web_identity_token_file", "aws_web_identity_token_file", "application_credentials",
    "google_application_credentials", "federated_token_file", "azure_federated_token_file", "credential_type",
}  # fmt: skip
_VARIABLE = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")  # as shells have it
_CREDENTIALS = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#]*@", re.IGNORECASE)  # in front of a host


def is_object_url(place: object) -> bool:
    """Whether it is of an object store, and no path of this machine."""
    return isinstance(place, str) and "://" in place


def local_path(place: str) -> str:
    """``place``, or the path that a ``file://`` URL of this machine names."""
    url = urlsplit(place)
    if url.scheme == "file" and url.netloc in ("", "localhost") and place.startswith("file://"):
        return unquote(url.path)
    return place


def shown(place: str) -> str:
    """For people: a URL without its options."""
    return ObjectUrl.parse(place).where if is_object_url(place) else place


@dataclass(frozen=True, slots=True)
class ObjectUrl:
    """``options`` are obstore's settings for the store, by name; their values may be ``$NAME``.

    ``setting``: the section whose path and options they are, in which errors name them.
    """

    scheme: str
    bucket: str
    prefix: str
    options: tuple[tuple[str, str], ...] = ()
    setting: str = field(default="log", compare=False)

    @classmethod
    def parse(cls, text: str, setting: str = "log") -> Self:
        """Raises ConfigError, which repeats nothing that may be a secret."""
        try:
            url = urlsplit(text)
            options = parse_qsl(url.query, keep_blank_values=True, strict_parsing=bool(url.query))
        except ValueError:
            raise ConfigError(f"{setting}.path is no URL.", hint="As in s3://bucket/prefix?region=eu-west-1.") from None
        if url.scheme not in SCHEMES:
            known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
            raise ConfigError(
                f"{setting}.path begins with {url.scheme}://.", hint=f"It is a folder, or begins with {known}."
            )
        if "@" in url.netloc or url.fragment or not url.netloc:
            hint = (
                f"Write s3://bucket/prefix; credentials come from the environment, or from {setting}.options as $NAME."
            )
            raise ConfigError(
                f"{setting}.path is a {url.scheme}:// URL that is more, or less, than bucket and prefix.", hint=hint
            )
        parts = [part for part in unquote(url.path).split("/") if part]
        if {".", ".."} & {*parts}:
            raise ConfigError(f"{setting}.path has . or .. in its prefix, which mean nothing in an object store.")
        return cls(url.scheme, url.netloc, "/".join(parts), setting=setting).with_options(dict(options))

    def with_options(self, options: Mapping[str, str]) -> Self:
        """With these as well, which count more than those of the same name. Raises ConfigError for a secret."""
        for name, value in options.items():
            hidden = _SECRET.search(name.lower()) and name.lower() not in _PLAIN
            if (hidden or _CREDENTIALS.match(value)) and not _VARIABLE.fullmatch(value):
                hint = f'Put it into an environment variable, and name that one: {name} = "$MY_VARIABLE".'
                raise ConfigError(
                    f"{self.setting}.options.{name} is a secret, which no setting may have in it.", hint=hint
                )
        return replace(self, options=tuple(sorted({**dict(self.options), **options}.items())))

    def resolved(self) -> dict[str, str]:
        """The options with what the environment variables hold. Raises ConfigError for one that is not set."""
        return {name: self._looked_up(name, value) for name, value in self.options}

    def _looked_up(self, name: str, value: str) -> str:
        found = _VARIABLE.fullmatch(value)
        if found is None:
            return value
        variable = found[1] or found[2]
        if (known := os.environ.get(variable)) is None:
            raise ConfigError(
                f"{self.setting}.options.{name} names the environment variable {variable}, which is not set here."
            )
        return known

    @property
    def where(self) -> str:
        """Without options, for people."""
        return f"{self.scheme}://{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def slug(self) -> str:
        """A file's name that no other place has."""
        readable = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{self.bucket}-{self.prefix}")[:80].strip("-.")
        return f"{readable}-{hashlib.blake2b(self.where.encode(), digest_size=4).hexdigest()}"

    def __str__(self) -> str:
        query = urlencode(self.options, quote_via=quote, safe="$:/")
        path = quote(self.prefix)
        return f"{self.scheme}://{self.bucket}/{path}".rstrip("/") + (f"?{query}" if query else "")
