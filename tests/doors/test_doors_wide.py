"""Wide tables cost what they are described by, once: neither each segment, nor whoever plans, pays for them again."""

from __future__ import annotations

import hashlib

from tests.changelog.conftest import IDENTITY
from tests.changelog.memory import MemoryStorage
from wal2lake.capture.frames import without_headers
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.writer import LogWriter
from wal2lake.testing.stream import ScriptedStream, insert, relation

TABLES, COLUMNS = 100, 1600  # PostgreSQL's most
DESCRIBED = TABLES * COLUMNS * 72  # bytes: names of 63, and 9 around each
SEGMENT = 8 << 10  # bytes that a segment with a change may take


class Counting(MemoryStorage):
    """``moved``: the names and bytes written and read."""

    def __init__(self) -> None:
        super().__init__()
        self.moved: list[tuple[str, int]] = []

    def put(self, name: str, data: bytes) -> None:
        self.moved.append((name, len(data)))
        super().put(name, data)

    def get(self, name: str) -> bytes:
        data = super().get(name)
        self.moved.append((name, len(data)))
        return data

    def since(self) -> tuple[int, int]:
        """Objects and bytes since the last call."""
        moved, self.moved = self.moved, []
        return len(moved), sum(size for _, size in moved)


def test_doors_no_segment_repeats_what_wide_tables_are_called() -> None:
    """They come one by one, which takes the most files."""
    wide = [
        relation(oid, f"t{oid}", tuple(_name(oid * COLUMNS + number) for number in range(COLUMNS)))
        for oid in range(TABLES)
    ]
    stream, storage = ScriptedStream(), Counting()
    with LogWriter(storage, IDENTITY) as writer:
        for table in wide:
            writer.append(without_headers(stream.transaction(table)))
        writer.append(without_headers(stream.transaction(insert(1, oid=0))))
        assert sum(len(data) for data in stored(storage, "relations")) < DESCRIBED * 4
        storage.since()
        for number in range(20):
            writer.append(without_headers(stream.transaction(insert(number, oid=7))))
            objects, written = storage.since()
            assert (objects, written < SEGMENT) == (1, True), f"{written} bytes"
    log = ChangeLog.open(storage)
    start = log.segments[-20].previous_end_lsn
    storage.since()
    for _ in range(3):
        log.refresh()
        assert len(log.plan(start, stream.lsn)) == 20
        assert log.counts(log.plan(start, stream.lsn)[0]) == {7: {"I": 1}}
    assert storage.since()[1] < 1000, "the position, which is looked at each time"
    run = log.relation_runs(log.plan(start, stream.lsn)[3], 7)
    assert len(run[0].relation.columns) == COLUMNS
    read = storage.since()[1]
    assert [log.relation_runs(extent, 7)[0].relation == run[0].relation for extent in log.plan(start, stream.lsn)]
    assert (read < DESCRIBED, storage.since()[1]) == (True, 0), "read once, and kept"


def _name(number: int) -> str:
    """63 characters of which no compression makes much less than half."""
    return hashlib.sha256(str(number).encode()).hexdigest()[:63]


def stored(storage: MemoryStorage, folder: str) -> list[bytes]:
    return [storage.read(f"{folder}/{name}").data for name in storage.names(folder)]
