"""The backup manifest: what files a backup has, checked against what came.

Source: PostgreSQL documentation, "Backup Manifest Format".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from wal2lake.errors import ProtocolError

_HASHES = {"SHA224": "sha224", "SHA256": "sha256", "SHA384": "sha384", "SHA512": "sha512"}
_CURE = "The backup is not usable: take it again."


class ManifestFile(NamedTuple):
    """``checksum`` in hex; None with MANIFEST_CHECKSUMS NONE."""

    size: int
    algorithm: str | None
    checksum: str | None


class Hash(Protocol):
    """hashlib's shape."""

    def update(self, data: bytes | memoryview, /) -> None: ...

    def hexdigest(self) -> str: ...


class _NoHash:
    def update(self, data: bytes | memoryview, /) -> None:
        pass

    def hexdigest(self) -> str:
        return ""


def new_hash(algorithm: str) -> Hash:
    """A hash for a manifest's algorithm; CRC32C and NONE are not computed here, so only sizes are checked with them."""
    name = _HASHES.get(algorithm.upper())
    return hashlib.new(name, usedforsecurity=False) if name else _NoHash()


@dataclass
class ReceivedFiles:
    """What came: path below the data directory → size and, if it was computed, checksum in hex."""

    files: dict[str, tuple[int, str]] = field(default_factory=dict)

    def check(self, manifest: bytes) -> int:
        """Compare with the manifest; return how many files it lists.

        Raises ProtocolError naming the first that differs. WAL and the manifest itself are never listed.
        """
        listed = read_manifest(manifest)
        for path, told in listed.items():
            if path not in self.files:
                raise ProtocolError(f"The backup lacks {path}, which its manifest lists.", hint=_CURE)
            size, checksum = self.files[path]
            if size != told.size:
                raise ProtocolError(f"{path} has {size} bytes where the manifest says {told.size}.", hint=_CURE)
            if checksum and told.checksum and checksum != told.checksum:
                raise ProtocolError(f"{path} differs from its {told.algorithm} checksum in the manifest.", hint=_CURE)
        extra = sorted(path for path in self.files if path not in listed and not path.startswith("pg_wal/"))
        if extra:
            raise ProtocolError(f"The backup has {extra[0]}, which its manifest does not list.", hint=_CURE)
        return len(listed)


def read_manifest(content: bytes) -> Mapping[str, ManifestFile]:
    """The files that a manifest lists, by path.

    Raises ProtocolError when it is no manifest, or differs from its own checksum.
    """
    try:
        document: dict[str, Any] = json.loads(content)
        own = str(document["Manifest-Checksum"])
        files = {
            _path(entry): ManifestFile(int(entry["Size"]), entry.get("Checksum-Algorithm"), entry.get("Checksum"))
            for entry in document["Files"]
        }
        covered = content[: content.rindex(b'"Manifest-Checksum"')]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ProtocolError("The backup manifest cannot be read.", hint=_CURE) from error
    if hashlib.sha256(covered).hexdigest() != own:
        raise ProtocolError("The backup manifest differs from its own checksum.", hint=_CURE)
    return files


def _path(entry: Mapping[str, Any]) -> str:
    """A path that is not UTF-8 stands in hex."""
    if "Path" in entry:
        return str(entry["Path"])
    return bytes.fromhex(entry["Encoded-Path"]).decode("utf-8", "surrogateescape")
