"""Where a lake and its tables lie: a folder of this machine, or an object store's, and how that is reached.

The rule: a place may be logged, shown, pickled and sent to a worker as it is. What is secret stands in it as the name
of an environment variable, which is looked up by whoever asks the store, in the process that does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from wal2lake.errors import ConfigError
from wal2lake.urls import ObjectUrl, is_object_url

SETTING: Final = "lake"  # the section of path and options
_PLAIN = re.compile(rb"[A-Za-z0-9_.-]")
_PREFIX = re.compile(r"[A-Za-z0-9_.~=+/-]*")  # what is the same in a URL and in an object's name
# how long delta-rs tries: as long as obstore does, here and in object_stores.py
RETRIES: Final = {
    "timeout": "30s", "connect_timeout": "5s", "max_retries": "6", "retry_timeout": "20s",
    "backoff_config.init_backoff": "100ms", "backoff_config.max_backoff": "3s",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """A folder at ``uri``: a path, or s3://bucket/prefix. ``options``: of the store, as obstore names them."""

    uri: str
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, place: Place | str) -> Place:
        """A path or a URL, which may have options in it. Raises ConfigError."""
        if isinstance(place, Place):
            return place
        if not is_object_url(place):
            return cls(place)
        url = ObjectUrl.parse(place, SETTING)
        return cls(url.where, url.options)

    @property
    def is_local(self) -> bool:
        return not is_object_url(self.uri)

    @property
    def url(self) -> ObjectUrl:
        """Of a place in an object store."""
        return ObjectUrl.parse(self.uri, SETTING).with_options(dict(self.options))

    def storage_options(self) -> dict[str, str] | None:
        """For delta-rs, with what the environment holds: for its call alone. Raises ConfigError and AuthError."""
        if self.is_local:
            return None
        from wal2lake.object_stores import frozen_profile, resolved  # noqa: PLC0415 - an extra

        options = resolved(self.url)
        return RETRIES | (frozen_profile(options) if self.uri.startswith("s3://") else options)


@dataclass(frozen=True, slots=True)
class Lake(Place):
    """The folder of all tables."""

    @classmethod
    def at(cls, path: str, options: Mapping[str, str]) -> Lake:
        """As the settings have it. Raises ConfigError for what is no place, or a secret."""
        if not is_object_url(path):
            if options:
                raise ConfigError("lake.options are of an object store, and lake.path is a folder.")
            return cls(path)
        url = ObjectUrl.parse(path, SETTING).with_options(options)
        if not _PREFIX.fullmatch(url.prefix):
            hint = "Use letters, digits and _ . ~ = + - in its folders."
            raise ConfigError("lake.path has characters that not all readers of a lake take for themselves.", hint=hint)
        return cls(url.where, url.options)

    def table(self, namespace: str, name: str) -> Place:
        """Where the table ``namespace.name`` lies."""
        return Place(table_uri(self.uri, namespace, name), self.options)


def table_uri(lake: str, namespace: str, name: str) -> str:
    """``<lake>/<namespace>/<name>``; bytes that are not plain in paths and URIs alike stand as ``~XX``.

    Not percent signs: some readers of Delta tables decode those once more and miss the folder.
    """
    return f"{lake.rstrip('/')}/{_component(namespace)}/{_component(name)}"


def _component(name: str) -> str:
    """No component is hidden (``_`` and ``.`` first are, to Spark), and different names stay different."""
    escaped = b"".join(bytes([b]) if _PLAIN.match(bytes([b])) else b"~%02X" % b for b in name.encode()).decode()
    return f"~{ord(escaped[0]):02X}{escaped[1:]}" if escaped[0] in "._" else escaped
