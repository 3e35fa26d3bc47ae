"""Files of a table in an object store, as far as sinks use pyarrow's file systems, by obstore.

Not delta-rs's own file system for pyarrow, which keeps Python's lock for as long as a request takes: while it wrote,
no other thread of the process would renew a lease. An object that is not larger than PART_BYTES is put in one request,
and is whole or not there; a larger one goes in parts, and is there when the last request of all has counted.

Source: pyarrow's FileSystem; obstore's documentation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import obstore
import pyarrow as pa
import pyarrow.fs

from wal2lake.errors import Wal2LakeError
from wal2lake.lakes import Place
from wal2lake.object_stores import ObjectStore, bucket_client, version_of
from wal2lake.sinks.sink_errors import of_lake

PART_BYTES: Final = 16 << 20
_END_BYTES: Final = 1 << 16  # of a file that is read at places; Parquet's footer is mostly in it
_DELETED_AT_ONCE: Final = 1000


def object_files(place: Place) -> ObjectFiles:
    """The objects below ``place``. Raises as ``ObjectStore``."""
    return ObjectFiles(place)


class ObjectFiles:
    """By path below the place. Raises FileNotFoundError, and what the store says as one of our errors."""

    def __init__(self, place: Place) -> None:
        url = place.url
        self._prefix = url.prefix
        self._store = ObjectStore(url, bucket_client(url))
        self._client = self._store.client

    def create(self, path: str, data: bytes) -> bool:
        """Put the object if it is absent; else False. An answer that was lost is no answer: it is looked up."""
        with _ours():
            return self._store.put_if(self._at(path), data, "create") is not None

    def open_output_stream(self, path: str) -> pa.NativeFile:
        """It is there when it was closed."""
        return pa.PythonFile(_Written(self, self._at(path)), "w")

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """All of it."""
        with self.asking(path):
            return pa.BufferReader(obstore.get(self._client, self._at(path)).bytes().to_bytes())

    def open_input_file(self, path: str) -> pa.NativeFile:
        """For who reads at places; what is small, or near its end, is in memory from the beginning."""
        with self.asking(path):
            end, size = self._store.read_end(self._at(path), _END_BYTES)
        if len(end) == size:
            return pa.BufferReader(end)
        return pa.PythonFile(_ReadAt(self, path, end, size), "r")

    def read_range(self, path: str, start: int, stop: int) -> bytes:
        """The bytes from ``start`` on, before ``stop``."""
        with self.asking(path):
            return obstore.get_range(self._client, self._at(path), start=start, end=stop).to_bytes()

    def get_file_info(self, wanted: str | Sequence[str] | pa.fs.FileSelector) -> Any:
        """As pyarrow's, but that only objects are told of: a folder is none."""
        if isinstance(wanted, pa.fs.FileSelector):
            return list(self._listed(wanted))
        if isinstance(wanted, str):
            return self._looked_at(wanted)
        return [self._looked_at(path) for path in wanted]

    def _listed(self, wanted: pa.fs.FileSelector) -> Iterator[pa.fs.FileInfo]:
        base = self._at(wanted.base_dir)
        with self.asking(wanted.base_dir):
            if wanted.recursive:
                found = [one for page in obstore.list(self._client, base) for one in page]
                folders: Sequence[str] = ()
            else:
                listed = obstore.list_with_delimiter(self._client, base)
                found, folders = list(listed["objects"]), listed["common_prefixes"]
        skipped = len(self._at(""))
        for folder in folders:
            yield pa.fs.FileInfo(folder[skipped:].strip("/"), pa.fs.FileType.Directory)
        for one in found:
            yield _info(one["path"][skipped:].lstrip("/"), one)

    def _looked_at(self, path: str) -> pa.fs.FileInfo:
        try:
            with self.asking(path):
                return _info(path, obstore.head(self._client, self._at(path)))
        except FileNotFoundError:
            return pa.fs.FileInfo(path, pa.fs.FileType.NotFound)

    def tag(self, path: str) -> str | None:
        """The object's version; None: there is none."""
        try:
            with self.asking(path):
                return version_of(obstore.head(self._client, self._at(path)))
        except FileNotFoundError:
            return None

    def delete_file(self, path: str) -> None:
        with self.asking(path):
            obstore.delete(self._client, self._at(path))

    def delete_files(self, paths: Sequence[str]) -> None:
        """Those of them that are there."""
        for first in range(0, len(paths), _DELETED_AT_ONCE):
            some = paths[first : first + _DELETED_AT_ONCE]
            try:
                with self.asking(some[0]):
                    obstore.delete(self._client, [self._at(path) for path in some])
            except FileNotFoundError:  # a store that deletes them one by one, and minds; it got that far
                for path in some:
                    if self._looked_at(path).type == pa.fs.FileType.File:
                        self.delete_file(path)

    @contextmanager
    def asking(self, path: str) -> Iterator[None]:
        """What the store answers leaves the block as one of our errors, or as FileNotFoundError."""
        with _ours(), self._store.asking(path):
            yield

    @property
    def client(self) -> Any:
        """obstore's own, for who writes in parts."""
        return self._client

    def _at(self, path: str) -> str:
        return "/".join(filter(None, (self._prefix, path)))


def _info(path: str, meta: Any) -> pa.fs.FileInfo:
    return pa.fs.FileInfo(path, pa.fs.FileType.File, mtime=meta["last_modified"], size=meta["size"])


@contextmanager
def _ours() -> Iterator[None]:
    try:
        yield
    except Wal2LakeError as error:
        raise of_lake(error) from None


class _Written:
    """A file object over which pyarrow writes an object."""

    closed = False

    def __init__(self, files: ObjectFiles, path: str) -> None:
        self._files, self._path, self._written = files, path, 0
        self._upload = obstore.open_writer(files.client, path, buffer_size=PART_BYTES, max_concurrency=2)

    def write(self, data: bytes) -> int:
        with self._files.asking(self._path):
            self._upload.write(memoryview(data).cast("B"))  # of another sign, to obstore
        self._written += len(data)
        return len(data)

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        """Nothing of it is there before its end."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            with self._files.asking(self._path):
                self._upload.close()


class _ReadAt:
    """A file object over which pyarrow reads at places of an object, whose ``end`` is known."""

    closed = False

    def __init__(self, files: ObjectFiles, path: str, end: bytes, size: int) -> None:
        self._files, self._path, self._size, self._place = files, path, size, 0
        self._end, self._end_at = end, size - len(end)

    def seek(self, offset: int, whence: int = 0) -> int:
        self._place = offset + (0, self._place, self._size)[whence]
        return self._place

    def tell(self) -> int:
        return self._place

    def read(self, count: int = -1) -> bytes:
        start = self._place
        stop = self._size if count is None or count < 0 else min(start + count, self._size)
        if start >= stop:
            return b""
        if start >= self._end_at:
            found = self._end[start - self._end_at : stop - self._end_at]
        else:
            found = self._files.read_range(self._path, start, stop)
        self._place = stop
        return found

    def close(self) -> None:
        self.closed = True
        self._end = b""
