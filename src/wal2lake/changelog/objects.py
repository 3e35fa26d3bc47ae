"""The log in an object store: an object is put whole, and two conditions of a put are all that its safety stands on
(docs/object-store.md).
"""

from __future__ import annotations

import mmap
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import lru_cache
from itertools import repeat
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import obstore

from wal2lake.changelog.lease import is_leased, leased
from wal2lake.changelog.places import EVERYTHING, RELATIONS, SEGMENTS, WRITER_LOCK
from wal2lake.changelog.storage import Hold, Stored, Version
from wal2lake.errors import ConfigError
from wal2lake.object_stores import ObjectStore, if_version, version_of
from wal2lake.urls import ObjectUrl

if TYPE_CHECKING:
    import pyarrow as pa

_END_BYTES: Final = 1 << 15  # of a segment, in which its metadata mostly are
_AT_ONCE: Final = 16
_DELETED_AT_ONCE: Final = 1000
_KEPT_BYTES: Final = 64 << 20
_PROBE: Final = ".probe-"


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
        self._objects = ObjectStore(place)
        self._store = self._objects.client
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
        with self._objects.asking(name):
            found = obstore.get(self._store, name)
            return Stored(found.bytes().to_bytes(), version_of(found.meta))

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
            with self._objects.asking(name):
                end, size = self._objects.read_end(name, _END_BYTES)
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
            with self._objects.asking(name):
                obstore.head(self._store, name)
        except FileNotFoundError:
            return False
        return True

    def names(self, folder: str) -> list[str]:
        with self._objects.asking(folder):
            found = obstore.list_with_delimiter(self._store, folder)["objects"]
        names = (one["path"].rpartition("/")[2] for one in found)
        return sorted(name for name in names if name[0] != ".")

    def folders(self, folder: str) -> list[str]:
        with self._objects.asking(folder):
            found = obstore.list_with_delimiter(self._store, folder)["common_prefixes"]
        return sorted(path.rstrip("/").rpartition("/")[2] for path in found)

    def modified(self, name: str) -> float:
        """By the store's clock."""
        with self._objects.asking(name):
            return obstore.head(self._store, name)["last_modified"].timestamp()

    def create(self, name: str, *parts: bytes | pa.Buffer) -> bool:
        return self._objects.put_if(name, b"".join(parts), "create") is not None

    def swap(self, name: str, data: bytes, version: Version | None) -> Version | None:
        with self._one_at_a_time:
            self._kept.pop(name, None)
        return self._objects.put_if(name, data, "create" if version is None else if_version(version))

    def put(self, name: str, data: bytes) -> None:
        with self._objects.asking(name):
            obstore.put(self._store, name, data, use_multipart=False)

    note = put

    def remove(self, *names: str) -> None:
        for first in range(0, len(names), _DELETED_AT_ONCE):
            with self._objects.asking(names[first]):
                obstore.delete(self._store, list(names[first : first + _DELETED_AT_ONCE]))

    def prepare(self, *folders: str) -> None:
        """There are none."""

    def recover(self, *folders: str) -> None:
        """A put is whole, or was never there. But that conditions count here is worth being sure of."""
        self.probe()

    def clear(self) -> bool:
        with self._objects.asking(""):
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
