"""One table's folder, local or on an object store; here alone it is known which, and what durable means there.

A local file is durable when it and its directory entry are synced; an object is when its upload returned.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.fs

from wal2lake.files import flush, make_folder

_PLAIN = re.compile(rb"[A-Za-z0-9_.-]")
_MADE: set[str] = set()  # folders that this process has seen to be durable


def table_uri(lake: str, namespace: str, name: str) -> str:
    """``<lake>/<namespace>/<name>``; bytes that are not plain in paths and URIs alike stand as ``~XX``.

    Not percent signs: some readers of Delta tables decode those once more and miss the folder.
    """
    return f"{lake.rstrip('/')}/{_component(namespace)}/{_component(name)}"


def _component(name: str) -> str:
    """No component is hidden (``_`` and ``.`` first are, to Spark), and different names stay different."""
    escaped = b"".join(bytes([b]) if _PLAIN.match(bytes([b])) else b"~%02X" % b for b in name.encode()).decode()
    return f"~{ord(escaped[0]):02X}{escaped[1:]}" if escaped[0] in "._" else escaped


@dataclass(frozen=True, slots=True)
class File:
    """Where it lies below a table's folder, its bytes, and since when (Unix time) it is as it is."""

    path: str
    size: int
    since: float


class Folder:
    """Files below ``uri``, by relative path."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._local = None if "://" in uri else Path(uri)
        self.files: Any = _remote(uri)
        if self._local is not None:
            self.files = pa.fs.SubTreeFileSystem(str(self._local), pa.fs.LocalFileSystem())

    @property
    def is_local(self) -> bool:
        """What is not there will not turn up later by a request that is under way."""
        return self._local is not None

    def create(self) -> None:
        """Make the folder where folders exist, durably: each process sees to that once."""
        if self._local is not None and (self.uri not in _MADE or not self._local.is_dir()):
            make_folder(self._local)
            _MADE.add(self.uri)

    def lacks(self, name: str) -> bool:
        """There is no ``name`` in it, or no such folder at all; an object store is not asked."""
        return self._local is not None and not (self._local / name).exists()

    def names(self) -> list[str]:
        """What lies directly in the folder; nothing if there is none."""
        selector = pa.fs.FileSelector("", allow_not_found=True)
        return [PurePosixPath(info.path).name for info in self.files.get_file_info(selector)]

    def files_below(self) -> list[File]:
        """All files of the folder and those below it; none if there is no folder."""
        found = self.files.get_file_info(pa.fs.FileSelector("", recursive=True, allow_not_found=True))
        return [
            File(info.path, info.size, time.time() if info.mtime_ns is None else info.mtime_ns / 1e9)
            for info in found
            if info.type == pa.fs.FileType.File
        ]

    def remove(self, paths: Iterable[str]) -> None:
        """Delete those of these files that are there."""
        for info in self.files.get_file_info(list(paths)):
            if info.type == pa.fs.FileType.File:
                self.files.delete_file(info.path)

    def unsynced(self, paths: Iterable[str]) -> list[str]:
        """Those of these files that are there and that only ``sync`` makes durable."""
        return [path for path in paths if self._local is not None and (self._local / path).exists()]

    def sync(self, paths: Iterable[str], *, new: bool = False) -> None:
        """Return when these files, and the folders that name them, are on stable storage; ``new``: so are those
        folders themselves, which somebody else has made."""
        if self._local is None:
            return
        found = [self._local / path for path in paths]
        folders = {file.parent for file in found} | {file.parent.parent for file in found if new}
        for path in [*found, *sorted(folders)]:
            flush(path)


def _remote(uri: str) -> Any:
    if "://" not in uri:
        return None
    from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415  only object stores need it

    return pa.fs.PyFileSystem(DeltaStorageHandler(uri))
