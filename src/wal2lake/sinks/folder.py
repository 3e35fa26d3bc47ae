"""One table's folder, local or on an object store; here alone it is known which, and what durable means there.

A local file is durable when it and its directory entry are synced; an object is when its upload returned.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.fs

from wal2lake.files import create, flush, make_folder
from wal2lake.lakes import Place

_MADE: set[str] = set()  # folders that this process has seen to be durable


@dataclass(frozen=True, slots=True)
class File:
    """Where it lies below a table's folder, its bytes, and since when (Unix time) it is as it is."""

    path: str
    size: int
    since: float


class Folder:
    """Files below ``place``, by relative path; ``uri`` for people, who may see it."""

    def __init__(self, place: Place | str) -> None:
        self.place = Place.of(place)
        self.uri = self.place.uri
        self._local = Path(self.uri) if self.place.is_local else None
        if self._local is None:
            from wal2lake.sinks.object_files import object_files  # noqa: PLC0415 - an extra

            self.files: Any = object_files(self.place)
        else:
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

    def has(self, path: str) -> bool:
        """The file is there."""
        return bool(self.files.get_file_info([path])[0].type == pa.fs.FileType.File)

    def stamp(self, path: str) -> object:
        """What another file in its place would not have; None: there is none."""
        if self._local is None:
            return self.files.tag(path)
        try:
            found = (self._local / path).stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

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

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Make the file, durably, if it is not there; else False."""
        if self._local is None:
            return bool(self.files.create(path, data))
        return create(self._local / path, data)

    def remove(self, paths: Iterable[str]) -> None:
        """Delete those of these files that are there."""
        if self._local is None:
            self.files.delete_files(list(paths))
            return
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
