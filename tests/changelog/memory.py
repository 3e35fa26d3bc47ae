"""A ``Storage`` of conditional puts alone, as an object store has them: no folder, no rename, no link, no file lock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from wal2lake.changelog.storage import Hold, Stored, Version
from wal2lake.files import LockHeldError


class MemoryStorage:
    """Objects of this process. A version is a number that no two puts share, as an ETag may be."""

    where = "memory"
    tell_s, look_s = 1.0, 0.0

    def __init__(self) -> None:
        self._objects: dict[str, tuple[Stored, float]] = {}
        self._one_at_a_time = threading.RLock()
        self._puts = 0
        self._locked: set[str] = set()

    def get(self, name: str) -> bytes:
        return self.read(name).data

    def read(self, name: str) -> Stored:
        return self._object(name)[0]

    def map(self, name: str) -> pa.Buffer:
        return pa.py_buffer(self.get(name))

    def map_ends(self, names: Sequence[str], begins: Callable[[bytes], int]) -> Iterator[pa.Buffer | None]:
        yield from (self.map(name) if self.exists(name) else None for name in names)

    def watchable(self, folder: str) -> str | None:
        return None

    def exists(self, name: str) -> bool:
        return name in self._objects

    def names(self, folder: str) -> list[str]:
        rests = (name.removeprefix(f"{folder}/") for name in list(self._objects) if name.startswith(f"{folder}/"))
        return sorted(rest for rest in rests if "/" not in rest and rest[0] != ".")

    def folders(self, folder: str) -> list[str]:
        rests = (name.removeprefix(f"{folder}/") for name in list(self._objects) if name.startswith(f"{folder}/"))
        return sorted({rest.partition("/")[0] for rest in rests if "/" in rest})

    def modified(self, name: str) -> float:
        return self._object(name)[1]

    def create(self, name: str, *parts: bytes | pa.Buffer) -> bool:
        return self.swap(name, b"".join(map(bytes, parts)), None) is not None

    def swap(self, name: str, data: bytes, version: Version | None) -> Version | None:
        with self._one_at_a_time:
            if (self.read(name).version if self.exists(name) else None) != version:
                return None
            self.put(name, data)
            return self.read(name).version

    def put(self, name: str, data: bytes) -> None:
        with self._one_at_a_time:
            self._puts += 1
            self._objects[name] = Stored(bytes(data), str(self._puts)), time.time()

    note = put

    def remove(self, *names: str) -> None:
        for name in names:
            self._objects.pop(name, None)

    def clear(self) -> bool:
        found, self._objects = bool(self._objects), {}
        return found

    def prepare(self, *folders: str) -> None:
        """There are none."""

    def recover(self, *folders: str) -> None:
        """A put is whole, or was never there."""

    @contextmanager
    def lock(self, name: str) -> Iterator[Hold]:
        with self._one_at_a_time:
            if name in self._locked:
                raise LockHeldError("this process")
            self._locked.add(name)
        try:
            yield Hold()
        finally:
            self._locked.discard(name)

    def is_locked(self, name: str) -> bool:
        return name in self._locked

    def _object(self, name: str) -> tuple[Stored, float]:
        try:
            return self._objects[name]
        except KeyError:
            raise FileNotFoundError(name) from None
