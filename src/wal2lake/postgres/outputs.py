"""What recv writes of a plugin of the server: its bytes as they are, or one JSON object per message.

What pgoutput sends is made into JSON by a plugin of ours: plugin_output.py.

Source: PostgreSQL documentation, "pg_recvlogical".
"""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import BinaryIO

from wal2lake.lsn import LSN
from wal2lake.postgres.files import writing
from wal2lake.wire.replication import XLogData

STDOUT = "-"


class RawOutput:
    """Each message's bytes and a newline, appended to ``path`` ('-': standard output), as pg_recvlogical does."""

    computes = False

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._file = _open(path)
        self._syncable = stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)
        self._synced = True

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
        self._append(message.payload + b"\n")

    def _append(self, line: bytes) -> None:
        with writing(self._path):
            self._file.write(line)
        self._synced = False

    def flush(self) -> None:
        with writing(self._path):
            self._file.flush()

    def sync(self) -> None:
        with writing(self._path):
            self._file.flush()
            if self._syncable and not self._synced:
                os.fsync(self._file.fileno())
        self._synced = True

    def close(self) -> None:
        """Sync and close."""
        try:
            self.sync()
        finally:
            if self._file is not sys.stdout.buffer:
                with writing(self._path):
                    self._file.close()


class JsonLinesOutput(RawOutput):
    """For a plugin of the server that writes text: one object per line, of ``lsn`` and ``data``."""

    def write(self, message: XLogData) -> None:
        data = message.payload.decode("utf-8", "backslashreplace")
        line = {"lsn": str(LSN(message.start_lsn)), "data": data}
        self._append(json.dumps(line, ensure_ascii=False).encode() + b"\n")


def _open(path: str | Path) -> BinaryIO:
    if str(path) == STDOUT:
        return sys.stdout.buffer
    with writing(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    return os.fdopen(descriptor, "wb")
