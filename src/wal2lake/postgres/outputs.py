"""What recv writes of a plugin of the server: its bytes as they are, or one JSON object per message.

What pgoutput sends is made into JSON by a plugin of ours: plugin_output.py.

Source: PostgreSQL documentation, "pg_recvlogical".
"""

from __future__ import annotations

import io
import json
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wal2lake.errors import Wal2LakeError
from wal2lake.files import flush_file, writing
from wal2lake.lsn import LSN
from wal2lake.wire.replication import XLogData

STDOUT = "-"


class RawOutput:
    """Each message's bytes and a newline, appended to ``path`` ('-': standard output), as pg_recvlogical does.

    A write that fails ends it: each further call raises what the first one did, and a regular file is cut back to what
    was whole when it was last flushed, for nothing behind that was acknowledged, and the server sends it again.
    """

    computes = False

    def __init__(self, path: str | Path) -> None:
        self._path = path
        raw = _open(path)
        self._file = io.BufferedWriter(raw)
        found = os.fstat(raw.fileno())
        self._regular = stat.S_ISREG(found.st_mode)
        self._size = found.st_size if self._regular else 0  # with what is not flushed yet
        self._boundary = self._kept = self._size  # where what is whole ends: as written, as flushed
        self._synced = True
        self._failure: OSError | Wal2LakeError | None = None

    @property
    def hold_lsn(self) -> LSN | None:
        """Every message is written as it comes."""
        return None

    def signalled(self) -> bool:
        """A signal came: nothing here takes long enough to be interrupted."""
        return False

    def begin_stream(self) -> None:
        """Nothing is remembered between messages."""

    def write(self, message: XLogData) -> None:
        self._append_line(message.payload)

    def _append_line(self, line: bytes) -> None:
        self._append(line + b"\n")
        self._boundary = self._size

    def _append(self, data: bytes) -> None:
        self._size += len(data)
        with self._writing():
            self._file.write(data)
        self._synced = False

    def flush(self) -> None:
        with self._writing():
            self._file.flush()
        self._kept = self._boundary

    def sync(self) -> None:
        with self._writing():
            if self._regular and not self._synced:
                flush_file(self._file)
            else:
                self._file.flush()
        self._kept = self._boundary
        self._synced = True

    def close(self) -> None:
        """Sync and close."""
        try:
            self.sync()
        finally:
            with writing(self._path):
                self._file.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        if self._failure is not None:
            raise self._failure
        try:
            with writing(self._path):
                yield
        except (OSError, Wal2LakeError) as error:
            self._failure = error
            descriptor = self._file.fileno()
            if self._regular and self._kept < os.fstat(descriptor).st_size <= self._size:  # it is nobody else's now
                os.ftruncate(descriptor, self._kept)
            raise


class JsonLinesOutput(RawOutput):
    """For a plugin of the server that writes text: one object per line, of ``lsn`` and ``data``."""

    def write(self, message: XLogData) -> None:
        data = message.payload.decode("utf-8", "backslashreplace")
        line = {"lsn": str(LSN(message.start_lsn)), "data": data}
        self._append_line(json.dumps(line, ensure_ascii=False).encode())


class _Failing(io.FileIO):
    """What is still buffered when a write has failed is not written behind what was cut back, when it is closed."""

    _failed = False

    def write(self, data: Any, /) -> int:
        if self._failed:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except OSError:
            self._failed = True
            raise


def _open(path: str | Path) -> _Failing:
    if str(path) == STDOUT:
        return _Failing(sys.stdout.fileno(), "wb", closefd=False)
    with writing(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    return _Failing(descriptor, "wb")
