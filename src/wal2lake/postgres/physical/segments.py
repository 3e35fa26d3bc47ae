"""A folder of WAL segments: which of them are there, and the one that is being written.

A segment is written as ``<name>.partial``, full size from the start, and gets its final name when it is complete and
synced; so a file without the suffix is whole. The entry of a new segment is made durable before anything in it is: what
is acknowledged would else be in a file that a crash takes away. Segments that pg_receivewal has compressed count by
their names; what goes on behind them is not compressed.

Source: src/bin/pg_basebackup/pg_receivewal.c (is_xlogfilename, FindStreamingStart), receivelog.c (open_walfile).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import BinaryIO, NamedTuple

from wal2lake.errors import ProtocolError
from wal2lake.files import flush, flush_file, rename, writing
from wal2lake.lsn import LSN

PARTIAL = ".partial"
_SEGMENT = re.compile(r"([0-9A-F]{8})([0-9A-F]{8})([0-9A-F]{8})(?:\.gz|\.lz4)?(\.partial)?")


class WalPosition(NamedTuple):
    """A place in the WAL of a cluster that may have been promoted."""

    timeline: int
    lsn: LSN


def segment_name(timeline: int, lsn: int, segment_size: int) -> str:
    """The file name of the segment that holds ``lsn``: XLogFileName."""
    number, per_id = lsn // segment_size, (1 << 32) // segment_size
    return f"{timeline:08X}{number // per_id:08X}{number % per_id:08X}"


def resume_position(folder: Path, segment_size: int) -> WalPosition | None:
    """Where to go on: behind the last complete segment, or at the begin of a later partial one; None: no segments."""
    found = []
    for name in os.listdir(folder):
        if match := _SEGMENT.fullmatch(name):
            timeline, high, low = (int(match[i], 16) for i in (1, 2, 3))
            number = high * ((1 << 32) // segment_size) + low
            found.append((number, timeline, match[4] is None))
    if not found:
        return None
    number, timeline, complete = max(found)
    return WalPosition(timeline, LSN((number + complete) * segment_size))


class WalSegment:
    """One segment file being written; ``mode``: its permissions."""

    def __init__(self, folder: Path, timeline: int, lsn: int, size: int, mode: int) -> None:
        self.name = segment_name(timeline, lsn, size)
        self.begin = LSN(lsn - lsn % size)
        self.end = LSN(self.begin + size)
        self._path = folder / (self.name + PARTIAL)
        # a partial file of an earlier run is written over from its begin; zeros lie behind what has come
        with writing(self._path):
            if self._path.exists() and self._path.stat().st_size not in (0, size):
                raise ProtocolError(f"{self._path} has not the size of a WAL segment.", hint="Move it away.")
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            os.fchmod(descriptor, mode)
            os.posix_fallocate(descriptor, 0, size)
            flush(self._path.parent)
            self._file: BinaryIO = os.fdopen(descriptor, "r+b")

    def write(self, lsn: int, data: bytes | memoryview) -> None:
        with writing(self._path):
            self._file.seek(lsn - self.begin)
            self._file.write(data)

    def sync(self) -> None:
        with writing(self._path):
            flush_file(self._file)

    def close(self, *, complete: bool) -> None:
        self.sync()
        self._file.close()
        if complete:
            with writing(self._path):
                rename(self._path, self._path.with_name(self.name))
