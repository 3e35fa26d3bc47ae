"""A segment goes when every consumer released it and it is old enough; what a reader may still need stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from wal2lake.capture.frames import without_headers
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.writer import LogWriter
from wal2lake.errors import ConfigError, LogMismatchError
from wal2lake.testing.stream import ScriptedStream, insert

Writer = Callable[..., LogWriter]


def fill(writer: LogWriter, transactions: int) -> list[int]:
    """One transaction in two segments each; their end LSNs."""
    stream, ends = ScriptedStream(), []
    for i in range(transactions):
        sent = stream.transaction(insert(i, "a"))
        writer.append(without_headers(sent[:2]))
        writer.append(without_headers(sent[2:]))
        ends.append(int(stream.lsn))
    return ends


def test_nothing_goes_before_all_consumers_released(open_writer: Writer) -> None:
    with open_writer() as writer:
        ends = fill(writer, 3)
        log = ChangeLog.open(writer.log.storage.root)
        assert log.trim(0) == 0
        log.release("a", ends[1])
        log.release("b", ends[0])
        assert log.trim(3600) == 0
        assert log.trim(0) == 2
        assert len(log.plan(ends[0], ends[2])) == 4
        with pytest.raises(LogMismatchError, match="no longer holds"):
            log.plan(ends[0] - 1, ends[2])
        log.release("b", 0)  # never goes back
        assert log.released() == {"a": ends[1], "b": ends[0]}


def test_the_log_begins_after_a_transaction_of_which_a_part_is_gone(open_writer: Writer) -> None:
    with open_writer() as writer:
        stream = ScriptedStream()
        log = ChangeLog.open(writer.log.storage.root)
        assert log.beginning() == log.start_lsn
        sent, ends = stream.transaction(insert(1, "a")), [int(stream.lsn)]
        for part in (sent[:2], sent[2:]):
            writer.append(without_headers(part))
        sent, ends = stream.transaction(insert(2, "b")), [*ends, int(stream.lsn)]
        writer.append(without_headers(sent))
        log.refresh()
        assert log.beginning() == log.start_lsn
        log.release("a", ends[0])
        writer.log.storage.remove(log.segments[0].name)
        trimmed = ChangeLog.open(writer.log.storage.root)
        assert trimmed.segments[0].seq == 1
        with pytest.raises(LogMismatchError):
            trimmed.plan(trimmed.segments[0].previous_end_lsn, ends[1])
        assert trimmed.beginning() == ends[0]
        assert [extent.seq for extent in trimmed.plan(trimmed.beginning(), ends[1])] == [2]


def test_the_end_of_the_log_survives(open_writer: Writer) -> None:
    with open_writer() as writer:
        ends = fill(writer, 2)
        writer.log.refresh()
        writer.log.release("a", ends[1])
        assert writer.log.trim(0) == 3
    with open_writer() as writer:
        assert (writer.log.last_end_lsn, writer.durable_lsn) == (ends[1], ends[1])
        assert writer.append(without_headers(ScriptedStream(ends[1]).transaction(insert(9, "z")))).seq == 4
        writer.log.refresh()
        assert len(writer.log.plan(ends[1], 1 << 60)) == 1


def test_a_reader_that_slept_through_a_trim_sees_the_log_again(open_writer: Writer) -> None:
    with open_writer() as writer:
        reader = ChangeLog.open(writer.log.storage.root)
        assert reader.segments == []
        ends = fill(writer, 1)
        reader.refresh()
        stream = ScriptedStream(ends[0])
        for i in range(3):
            writer.append(without_headers(stream.transaction(insert(i, "a"))))
        writer.log.refresh()
        writer.log.release("a", stream.lsn)
        writer.log.trim(0)
        reader.refresh()
        assert reader.last_end_lsn == stream.lsn


def test_a_reader_that_lists_while_retention_removes_sees_no_gap(
    open_writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_writer() as writer:
        ends = fill(writer, 3)
        writer.log.refresh()
        writer.log.release("a", ends[1])
        reader = ChangeLog.open(writer.log.storage.root)
        look = reader.storage.map

        def map_then_trim(name: str) -> object:
            found = look(name)
            writer.log.trim(0)
            return found

        monkeypatch.setattr(reader.storage, "map", map_then_trim)
        assert [s.seq for s in reader.segments] == [4, 5]
        monkeypatch.undo()
        assert len(reader.plan(ends[1], ends[2])) == 2


def test_a_listing_may_miss_what_comes_and_goes_meanwhile(open_writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder is not read in one go: of files made or removed in the meantime it may show any."""
    with open_writer() as writer:
        ends = fill(writer, 3)
        writer.log.refresh()
        writer.log.release("a", ends[1])
        writer.log.trim(0)
        reader = ChangeLog.open(writer.log.storage.root)
        listed = [f"{seq:016d}.arrow" for seq in (0, 2, 5)]  # 0 to 3 are gone by now, 4 came after its place was read
        monkeypatch.setattr(reader.storage, "names", lambda _folder: listed)
        assert [s.seq for s in reader.segments] == [4, 5]


def test_a_reader_forgets_what_retention_removed(open_writer: Writer) -> None:
    """Or a pipeline that runs for weeks would remember every segment there ever was."""
    with open_writer() as writer:
        ends = fill(writer, 3)
        reader = ChangeLog.open(writer.log.storage.root)
        assert len(reader.segments) == 6
        writer.log.refresh()
        writer.log.release("a", ends[1])
        assert writer.log.trim(0) == 4
        reader.refresh()
        assert [s.seq for s in reader.segments] == [4, 5]
        assert [e.seq for e in reader.plan(ends[1], ends[2])] == [4, 5]


def test_a_barrier_goes_when_all_have_passed_it(open_writer: Writer) -> None:
    with open_writer() as writer:
        ends = fill(writer, 2)
        log = ChangeLog.open(writer.log.storage.root)
        for name, end in zip("ab", ends, strict=True):
            log.request_barrier(name, end)
        log.release("c", ends[0])
        log.trim(3600)
        assert log.barriers() == {"b": ends[1]}


def test_barriers(open_writer: Writer) -> None:
    with open_writer() as writer:
        writer.log.request_barrier("verify", 0x2000)
        assert writer.log.barriers() == {"verify": 0x2000}
        writer.log.remove_barrier("verify")
        assert writer.log.barriers() == {}
        for name in ("", "../x", ".x"):
            with pytest.raises(ConfigError):
                writer.log.request_barrier(name, 1)


def test_a_barrier_of_somebody_who_died_goes_when_all_have_passed_it(open_writer: Writer) -> None:
    with open_writer() as writer:
        ends = fill(writer, 3)
        writer.log.refresh()
        for name, end in zip("abc", ends, strict=True):
            writer.log.request_barrier(name, end)
        writer.log.trim(3600)
        assert list(writer.log.barriers()) == ["a", "b", "c"]
        writer.log.release("fast", ends[2])
        writer.log.release("slow", ends[1] - 1)
        writer.log.trim(3600)
        assert list(writer.log.barriers()) == ["b", "c"]
