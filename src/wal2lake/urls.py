"""URLs of object stores: ``s3://bucket/prefix?option=value``, also ``gs://`` and ``az://``. No secret is ever in one.

The rule: such a URL may be logged, shown, pickled and given to Spark as it is. So a secret is not written into it, but
the environment variable that holds it (variables.py), which is looked up by whoever asks the store.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Self
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from wal2lake.errors import ConfigError
from wal2lake.variables import looked_up, refuse_secrets

SCHEMES: Final = ("s3", "gs", "az")


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
        refuse_secrets(f"{self.setting}.options", options)
        return replace(self, options=tuple(sorted({**dict(self.options), **options}.items())))

    def resolved(self) -> dict[str, str]:
        """The options with what the environment variables hold. Raises ConfigError for one that is not set."""
        return looked_up(f"{self.setting}.options", dict(self.options))

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
