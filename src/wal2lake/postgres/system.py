"""What a walsender says of its cluster: settings and the history of its timelines.

Source: PostgreSQL documentation, "Streaming Replication Protocol" (SHOW, TIMELINE_HISTORY);
src/backend/access/transam/timeline.c.
"""

from __future__ import annotations

from typing import NamedTuple

from wal2lake.errors import ProtocolError
from wal2lake.lsn import LSN
from wal2lake.postgres.connection import execute, next_result, start
from wal2lake.postgres.exchange import PGconn, reading_answer
from wal2lake.wire.commands import Show, TimelineHistory

_UNITS = {"B": 1, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


class Permissions(NamedTuple):
    """Of a cluster's files and folders, and of their copies: its owner alone may read them, or its group too."""

    file: int
    folder: int


OWNER, GROUP = Permissions(0o600, 0o700), Permissions(0o640, 0o750)


class TimelineSwitch(NamedTuple):
    """Timeline ``timeline`` was left at ``lsn``, for ``reason``."""

    timeline: int
    lsn: LSN
    reason: str


class TimelineHistoryFile(NamedTuple):
    """A history file: its name, its bytes as they are archived, and what they say."""

    filename: str
    content: bytes
    switches: tuple[TimelineSwitch, ...]


def show(pgconn: PGconn, name: str) -> str:
    """The present setting of a parameter. Raises ServerError when there is none of that name."""
    rows = execute(pgconn, Show(name).build(pgconn.server_version))
    with reading_answer(f"SHOW {name}"):
        return str(rows[0][0])


def wal_segment_size(pgconn: PGconn) -> int:
    """The size of a WAL segment in bytes; the server says ``16MB``. Raises ProtocolError for none that can be."""
    text = show(pgconn, "wal_segment_size")
    number = text.rstrip("kMGB")
    size = int(number) * _UNITS.get(text.removeprefix(number), 0) if number.isdecimal() else 0
    if not _UNITS["MB"] <= size <= _UNITS["GB"] or size.bit_count() != 1:
        raise ProtocolError(
            f"The server's WAL segments have {text[:20]!r}: a power of two from 1MB to 1GB is possible."
        )
    return size


def data_directory_permissions(pgconn: PGconn) -> Permissions:
    """The modes that the server gives its own files: with group access or without, as initdb was told."""
    return GROUP if show(pgconn, "data_directory_mode") == "0750" else OWNER


def timeline_history(pgconn: PGconn, timeline: int) -> TimelineHistoryFile:
    """The history of ``timeline`` (2 or more: the first has none). Raises what map_error says."""
    result = start(pgconn, TimelineHistory(timeline).build(pgconn.server_version))
    name, content = result.get_value(0, 0), result.get_value(0, 1)  # bytes as they are, whatever their encoding
    while next_result(pgconn) is not None:
        pass
    if name is None or content is None:
        raise ProtocolError("The server's answer to TIMELINE_HISTORY is not as documented.")
    with reading_answer("TIMELINE_HISTORY"):
        return TimelineHistoryFile(name.decode(), content, parse_timeline_history(content))


def parse_timeline_history(content: bytes) -> tuple[TimelineSwitch, ...]:
    """Read a history file: timeline, LSN and reason, parted by tabs; raise ProtocolError for anything else."""
    lines = (line.strip() for line in content.decode("utf-8", "replace").splitlines())
    return tuple(_switch(line) for line in lines if line and not line.startswith("#"))


def _switch(line: str) -> TimelineSwitch:
    fields = line.split("\t", 2)
    if len(fields) < 2 or not fields[0].isdecimal():
        raise ProtocolError("A line of a timeline history is not a timeline, an LSN and a reason.")
    with reading_answer("TIMELINE_HISTORY"):
        return TimelineSwitch(int(fields[0]), LSN.parse(fields[1]), fields[2] if len(fields) > 2 else "")
