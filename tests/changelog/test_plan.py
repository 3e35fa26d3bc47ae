"""The bounds of a batch: what just fits goes in, one message or byte more does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from wal2lake.capture.frames import without_headers
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.plan import Extent, Limits
from wal2lake.changelog.writer import LogWriter
from wal2lake.testing.stream import ScriptedStream, insert

Writer = Callable[..., LogWriter]


@pytest.mark.parametrize("max_rows", [None, 9, 10, 11])
@pytest.mark.parametrize("max_bytes", [None, 99, 100, 101])
def test_each_limit_holds_by_itself(max_rows: int | None, max_bytes: int | None) -> None:
    assert Limits(max_bytes, max_rows).hold(10, 100) == (max_rows != 9 and max_bytes != 99)


@pytest.mark.parametrize("each", [True, False], ids=["a segment each", "one segment"])
def test_a_batch_ends_where_the_next_transaction_would_not_fit(open_writer: Writer, each: bool) -> None:
    stream, sent, ends = ScriptedStream(), list[list[bytes]](), [0x1000]
    for number in range(4):  # of three, four, five and six messages
        sent.append(stream.transaction(*[insert(n, "a") for n in range(number + 1)]))
        ends.append(stream.lsn)
    with open_writer() as writer:
        for part in sent if each else [[message for transaction in sent for message in transaction]]:
            writer.append(without_headers(part))
    log = ChangeLog.open(writer.log.storage.root)
    rows = [len(transaction) for transaction in sent]
    size = [sum(len(message) - 25 for message in transaction) for transaction in sent]
    for first in range(4):
        for last in range(first, 4):
            fits_rows, fits_bytes = sum(rows[first : last + 1]), sum(size[first : last + 1])
            shorter = ends[max(last, first + 1)]  # the first goes in whatever its size
            for more in (0, 1):
                assert log.end_lsn_within(ends[first], max_rows=fits_rows + more) == ends[last + 1]
                assert log.end_lsn_within(ends[first], max_bytes=fits_bytes + more) == ends[last + 1]
                assert log.end_lsn_within(ends[first], fits_bytes + more, fits_rows - 1) == shorter
                assert log.end_lsn_within(ends[first], fits_bytes - 1, fits_rows + more) == shorter
            commit = ends[last + 1] - 8
            assert log.end_lsn_within(ends[first], before_commit_lsn=commit + 1) == ends[last + 1]
            assert log.end_lsn_within(ends[first], before_commit_lsn=commit) == ends[last]
    assert log.end_lsn_within(ends[4], max_rows=1) == ends[4]


def test_the_log_ends_where_its_last_segment_does(open_writer: Writer) -> None:
    stream = ScriptedStream()
    with open_writer() as writer:
        for number in range(3):
            writer.append(without_headers(stream.transaction(insert(number, "a"))))
    log = ChangeLog.open(writer.log.storage.root)
    assert (log.durable_lsn(), log.last_end_lsn) == (stream.lsn, stream.lsn)
    assert [log.counts(Extent(seq, 0, 3)) for seq in range(3)] == [{16384: {"I": 1}}] * 3


def test_what_was_listed_is_told_from_memory(open_writer: Writer) -> None:
    stream = ScriptedStream()
    with open_writer() as writer:
        for number in range(3):
            writer.append(without_headers(stream.transaction(insert(number, "a"))))
    log = ChangeLog.open(writer.log.storage.root)
    for segment in log.segments:
        log.storage.remove(segment.name)
    assert [log.counts(Extent(seq, 0, 3)) for seq in range(3)] == [{16384: {"I": 1}}] * 3
