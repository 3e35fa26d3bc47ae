"""What is refused is told in a sentence with its place; what is empty, first or last counts as what it is."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.changelog.conftest import IDENTITY
from tests.changelog.memory import MemoryStorage
from wal2lake.capture.frames import without_headers
from wal2lake.changelog import format as layout
from wal2lake.changelog import log as log_module
from wal2lake.changelog import places
from wal2lake.changelog.builder import SEGMENT_BYTES_MAX, count_rows, payload_bytes
from wal2lake.changelog.consumers import list_consumers
from wal2lake.changelog.decoding import decode_log
from wal2lake.changelog.dump import dump_messages, list_segments, verify_log
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.plan import Extent
from wal2lake.changelog.status import CaptureStatus, PipelineStatus, TableStatus
from wal2lake.changelog.tables import TableDocuments
from wal2lake.changelog.trailer import with_trailer
from wal2lake.changelog.writer import LogWriter
from wal2lake.errors import ConfigError, LogCorruptError, LogMismatchError, ProtocolError
from wal2lake.lsn import LSN
from wal2lake.pgoutput.messages import (
    Begin,
    Commit,
    Message,
    Origin,
    PgoutputMessage,
    StreamAbort,
    Truncate,
    Type,
)
from wal2lake.testing.stream import ScriptedStream, delete, insert, relation, update

Writer = Callable[..., LogWriter]
SEGMENT = layout.segment_name(0)

# -- the builder


def begin(xid: int) -> Begin:
    return Begin(LSN(0x9000), 0, xid)


COMMIT, NOTE, ABORT = Commit(0, LSN(0x9000), LSN(0x9008), 0), Message(False, LSN(8), "p", b""), StreamAbort(7, 8)


@pytest.mark.parametrize(
    ("said", "row", "sentence"),
    [
        ([begin(7), begin(8)], 1, "began a transaction inside another"),
        ([begin(7), COMMIT, begin(8), insert(1, "a"), begin(9), begin(9)], 4, "began a transaction inside another"),
        ([COMMIT], 0, "committed a transaction that never began"),
        ([begin(7), COMMIT, NOTE, COMMIT, begin(8)], 3, "committed a transaction that never began"),
        ([insert(1, "a"), begin(7), COMMIT], 0, "sent a change outside of a transaction"),
        ([begin(7), COMMIT, NOTE, Type(1, "a", "b"), insert(1, "a")], 3, "sent a change outside of a transaction"),
        ([begin(7), ABORT, begin(8)], 2, "began a transaction inside another"),
        ([ABORT, begin(7), insert(1, "a"), ABORT, ABORT, COMMIT, ABORT], 3, "sent StreamAbort amid transaction 7"),
    ],
)
def test_what_may_not_follow_is_told_with_its_lsn(
    open_writer: Writer, said: Sequence[PgoutputMessage], row: int, sentence: str
) -> None:
    stream = ScriptedStream()
    sent = [stream.message(message) for message in said]
    with open_writer() as writer, pytest.raises(ProtocolError, match=rf"^The server {sentence}\.") as refused:
        writer.append(without_headers(sent))
    assert refused.value.lsn == 0x1000 + 8 * row


def test_what_may_stand_outside_of_transactions(open_writer: Writer) -> None:
    stream = ScriptedStream()
    around = [stream.message(NOTE), stream.message(ABORT)]
    sent = [*around, *stream.transaction(relation(), insert(1, "a")), *around]
    with open_writer() as writer:
        writer.append(without_headers(sent))
        writer.append(without_headers(around))
        writer.log.refresh()
        log = writer.log
    assert log.read(Extent(0, 0, 8)).column("xid").to_pylist() == [0, 0, 701, 701, 701, 701, 0, 0]
    assert log.plan(0, stream.lsn) == [Extent(0, 2, 6)]
    first, last = log.segments
    assert (first.commits, first.commit_rows, first.first_commit_end_lsn, first.last_commit_end_lsn) == (
        1, 4, stream.lsn, stream.lsn,
    )  # fmt: skip
    assert (last.commits, last.commit_rows, last.commit_bytes) == (0, 0, 0)
    assert (last.first_commit_end_lsn, last.last_commit_end_lsn, last.runs) == (0, 0, ())
    assert (last.previous_end_lsn, last.end_lsn, last.durable_lsn) == (stream.lsn,) * 3
    assert list(verify_log(log.storage)) == []


def test_a_segment_has_room_for_one_message_more() -> None:
    """A message has less than 1 GB, and offsets are 32 bits, signed."""
    assert SEGMENT_BYTES_MAX + (1 << 30) == 1 << 31


def test_a_part_of_a_batch_is_counted_as_it_is(open_writer: Writer) -> None:
    oid = 0xFFFFFFFE
    said = [insert(1, "a", oid=oid), delete(1, oid=oid), Truncate((oid, 5, oid), 0), update(1, "b", oid=5)]
    with open_writer() as writer:
        writer.append(without_headers(ScriptedStream().transaction(*said)))
        batch = ChangeLog.open(writer.log.storage).read(Extent(0, 0, 6))
    part = batch.slice(2, 3)
    assert count_rows(part, lambda: part.column("payload")) == {oid: {"D": 1, "T": 2}, 5: {"T": 1, "U": 1}}
    assert bytes(payload_bytes(part)) == b"".join(part.column("payload").to_pylist())


# -- the files


def trailer(before: bytes, footer: bytes, version: int = layout.FORMAT) -> bytes:
    """As docs/changelog.md has it."""
    fields = struct.pack("<QII", len(before), zlib.crc32(before), version)
    return before + footer + fields + struct.pack("<I4s", zlib.crc32(footer + fields), b"W2LS")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "too short for a segment"),
        (trailer(b"", b"")[1:], "too short for a segment"),
        (trailer(b"", b""), "does not parse"),
        (trailer(b"rows", b""), "does not parse"),
        (b"x" + trailer(b"", b""), "checksum does not hold"),
        (trailer(b"rows", b"footer", layout.FORMAT + 1), f"of format {layout.FORMAT + 1}, and this version reads"),
        (b"Rows" + trailer(b"rows", b"footer")[4:], "the checksum of its rows"),
    ],
)
def test_a_file_that_is_hardly_more_than_its_trailer(data: bytes, why: str) -> None:
    with pytest.raises(LogCorruptError, match=rf"{SEGMENT} cannot be read: .*{why}"):
        layout.read_batch(pa.py_buffer(data), SEGMENT)


def test_the_trailer_is_what_is_documented() -> None:
    file = pa.BufferOutputStream()
    with pa.ipc.new_file(file, pa.schema({"a": pa.int8()})) as writer:
        writer.write_batch(pa.record_batch({"a": pa.array([1], pa.int8())}))
    whole = file.getvalue().to_pybytes()
    footer = len(whole) - 10 - int.from_bytes(whole[-10:-6], "little")
    assert b"".join(map(bytes, with_trailer(pa.py_buffer(whole), 7))) == trailer(whole[:footer], whole[footer:], 7)
    page = (Path(__file__).parents[2] / "docs/changelog.md").read_text()
    assert re.findall(r"the version of this format: (\d+)", page) == [str(layout.FORMAT)]


@pytest.mark.parametrize("name", ["a.b", "a%b", "a b", "a/b", "\x7f", "\x80", "é", "😀", "A", "_", "~", "-", "1", "."])
def test_a_tables_folder_has_a_name_of_its_own(name: str) -> None:
    folder = places.table_folder("p", name, f"{name}t").removeprefix("snapshots/p/")
    assert places.table_of(folder) == (name, f"{name}t")
    assert "/" not in folder
    assert folder.count(".") == 1
    assert (folder.startswith(f"{name}.")) == (name in "_~-1A" or name > "\x7f")


# -- the log


def test_a_log_that_has_nothing_yet(open_writer: Writer) -> None:
    with open_writer() as writer:
        log = writer.log
    assert (log.segments, log.last_end_lsn, log.durable_lsn()) == ([], IDENTITY.start_lsn, IDENTITY.start_lsn)
    assert (log.beginning(), log.plan(0, 1 << 60), log.released(), log.barriers()) == (0x1000, [], {}, {})
    assert (log.transactions(0, 1 << 60).num_rows, log.end_lsn_within(5), log.end_lsn_within(5, 1)) == (0, 0x1000, 5)
    assert (log.trim(0), list(list_segments(log)), list(dump_messages(log, 0, 1 << 60))) == (0, [], [])
    assert (list(verify_log(log.storage)), list(decode_log(log, "test_decoding"))) == ([], [])


def test_a_log_may_begin_at_the_very_first_byte() -> None:
    assert ChangeLog.create(MemoryStorage(), replace(IDENTITY, start_lsn=LSN(0))).durable_lsn() == 0


@pytest.mark.parametrize("name", ["", ".", ".a", "a/b", "/a", "a/"])
def test_what_cannot_name_a_file(open_writer: Writer, name: str) -> None:
    with open_writer() as writer:
        for use in (writer.log.request_barrier, writer.log.release):
            with pytest.raises(ConfigError, match="cannot name a file"):
                use(name, 1)
        writer.log.request_barrier("a.b-C_1", 1)
        assert list(writer.log.barriers()) == ["a.b-C_1"]


def test_announcements_count_where_an_extent_has_them(open_writer: Writer) -> None:
    stream = ScriptedStream()
    old, new = relation(), relation(columns=("id", "v", "w"))
    mood, other = Type(90000, "public", "mood"), relation(5, "other", ("id",))
    first = stream.transaction(old, insert(1, "a"))
    ends = [stream.lsn]
    second = stream.transaction(mood, new, insert(2, "b", "c"))
    ends.append(stream.lsn)
    third = stream.transaction(other, insert(3, oid=5))
    with open_writer() as writer:
        writer.append(without_headers([*first, *second, *third]))
        log = ChangeLog.open(writer.log.storage)

    def runs(start: int, stop: int, oid: int = 16384) -> list[tuple[int, int, int]]:
        found = log.relation_runs(Extent(0, start, stop), oid)
        return [(run.row_start, run.row_stop, len(run.relation.columns)) for run in found]

    assert runs(0, 13) == [(1, 6, 2), (6, 13, 3)]
    assert [runs(start, 7) for start in (5, 6)] == [[(5, 6, 2), (6, 7, 3)], [(6, 7, 3)]]
    assert [runs(0, stop) for stop in (1, 2, 6, 7)] == [[], [(1, 2, 2)], [(1, 6, 2)], [(1, 6, 2), (6, 7, 3)]]
    assert [runs(0, stop, 5) for stop in (10, 11)] == [[], [(10, 11, 1)]]
    kinds = [[type(message).__name__[0] for message in _in_force(log, row)] for row in range(13)]
    assert ["".join(found) for found in kinds] == [*[""] * 2, *["R"] * 4, *["TR"] * 5, *["TRR"] * 2]  # types first
    assert [log.announced(start, end) for start, end in ((0, ends[0]), (ends[0], ends[1]), (ends[1], stream.lsn))] == [
        {16384}, {16384}, {5},
    ]  # fmt: skip


def _in_force(log: ChangeLog, row: int) -> list[PgoutputMessage]:
    from wal2lake.pgoutput.codec import read_message

    return [read_message(payload) for payload in log.in_force(Extent(0, row, row + 1))]


def test_a_segment_goes_at_the_moment_when_it_is_old_enough(
    open_writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = ScriptedStream()
    with open_writer() as writer:
        for number in range(3):
            writer.append(without_headers(stream.transaction(insert(number, "a"))))
    log = ChangeLog.open(writer.log.storage)
    log.release("a", stream.lsn)
    monkeypatch.setattr(log.storage, "modified", lambda name: 1000.0 if name == SEGMENT else 1500.0)
    monkeypatch.setattr(log_module.time, "time", lambda: 2000.0)
    assert [log.trim(age) for age in (1000.5, 1000, 1000, 500)] == [0, 1, 0, 1]
    assert [segment.seq for segment in log.segments] == [2]


def test_what_was_asked_for_last_is_kept() -> None:
    loaded = list[int]()
    recent = log_module._Recent(2, lambda seq: loaded.append(seq) or seq)  # type: ignore[func-returns-value] # noqa: SLF001
    assert [recent.get(seq) for seq in (1, 2, 1, 3, 1, 2, 2)] == [1, 2, 1, 3, 1, 2, 2]
    assert loaded == [1, 2, 3, 2]


def test_a_consumer_may_be_ahead_of_the_log(open_writer: Writer) -> None:
    with open_writer() as writer:
        writer.log.release("a", 0x2000)
        writer.log.release("b", 0xFFF)
        assert [consumer["behind_bytes"] for consumer in list_consumers(writer.log)] == [1, 0]


def test_of_consumers_that_are_level_the_names_are_in_order(open_writer: Writer) -> None:
    """Those that stand for a table are asked for after the others."""
    with open_writer() as writer:
        writer.log.release("z", 0x1000)
        TableDocuments(writer.log.storage, "a", "shop", "t").write_state({"needs_lsn": "0/1000"})
        assert [consumer["consumer"] for consumer in list_consumers(writer.log)] == ["a@shop.t", "z"]


def test_a_writer_goes_on_with_the_next_number(open_writer: Writer) -> None:
    stream = ScriptedStream()
    for seq in range(3):
        with open_writer() as writer:
            assert writer.append(without_headers(stream.transaction(insert(seq, "a")))).seq == seq
            writer.set_position(writer.durable_lsn)  # says nothing new
            assert writer.durable_lsn == stream.lsn
            writer.set_position(writer.durable_lsn + 1)
            assert writer.durable_lsn == stream.lsn + 1
        stream.lsn = LSN(stream.lsn + 8)
    log = ChangeLog.open(writer.log.storage)
    assert ([segment.seq for segment in log.segments], log.durable_lsn()) == ([0, 1, 2], stream.lsn - 7)


def test_rows_that_adjoin_are_one_extent_and_others_are_not(open_writer: Writer) -> None:
    stream = ScriptedStream()
    one, two = stream.transaction(insert(1, "a")), stream.transaction(insert(2, "b"))
    note, three = stream.message(NOTE), stream.transaction(insert(3, "c"))
    with open_writer() as writer:
        for part in ([*one, *two[:1]], [*two[1:], note, *three]):
            writer.append(without_headers(part))
        log = ChangeLog.open(writer.log.storage)
    assert log.plan(0, stream.lsn) == [Extent(0, 0, 4), Extent(1, 0, 2), Extent(1, 3, 6)]
    assert log.plan(0, stream.lsn - 1) == [Extent(0, 0, 4), Extent(1, 0, 2)]


def test_a_batch_goes_on_into_the_next_segment_where_it_has_all_of_one_and_only_there(open_writer: Writer) -> None:
    stream, sent, ends = ScriptedStream(), list[list[bytes]](), [0x1000]
    for changes in (1, 4, 1, 1):
        sent.append(stream.transaction(*[insert(n, "a") for n in range(changes)]))
        ends.append(int(stream.lsn))
    with open_writer() as writer:
        for part in (sent[0] + sent[1], sent[2] + sent[3]):
            writer.append(without_headers(part))
        log = ChangeLog.open(writer.log.storage)
    assert [log.end_lsn_within(ends[0], max_rows=rows) for rows in (6, 8, 9, 11, 12)] == [
        ends[1], ends[1], ends[2], ends[2], ends[3],
    ]  # fmt: skip
    assert [log.end_lsn_within(ends[1], max_rows=rows) for rows in (5, 8, 9, 12)] == [
        ends[2], ends[2], ends[3], ends[4],
    ]  # fmt: skip


def test_what_is_left_of_a_log_says_what_is_gone(open_writer: Writer) -> None:
    stream = ScriptedStream()
    with open_writer() as writer:
        for number in range(3):
            writer.append(without_headers(stream.transaction(insert(number, "a"))))
        writer.set_position(stream.lsn + 8)
    storage = writer.log.storage
    end = ChangeLog.open(storage).segments[0].end_lsn
    storage.remove(layout.segment_name(0))
    log = ChangeLog.open(storage)
    for ask in (log.plan, log.transactions):
        with pytest.raises(LogMismatchError, match="no longer holds"):
            ask(end - 1, stream.lsn)
        assert len(ask(end, stream.lsn)) == 2
    with pytest.raises(LogMismatchError, match="no longer holds"):
        log.end_lsn_within(end - 1, max_rows=1)
    assert log.beginning() == end
    for seq in (1, 2):
        storage.remove(layout.segment_name(seq))
    with pytest.raises(LogCorruptError, match=f"{layout.segment_name(2)}.*missing"):
        _ = ChangeLog.open(storage).segments


def test_segments_without_a_commit_stay_as_long_as_nothing_follows(open_writer: Writer) -> None:
    """Where the log ends stands in them, and what began in them may go on."""
    with open_writer() as writer:
        for _ in range(3):
            writer.append(without_headers([ScriptedStream().message(NOTE)]))
        log = ChangeLog.open(writer.log.storage)
    assert log.trim(0) == 0
    log.release("a", log.last_end_lsn)
    assert (log.trim(0), len(log.segments), log.durable_lsn()) == (0, 3, IDENTITY.start_lsn)


@pytest.mark.parametrize("cut", [False, True], ids=["a segment each", "in two segments"])
def test_what_may_have_changed_is_told_by_the_newest_segments(open_writer: Writer, cut: bool) -> None:
    stream, ends = ScriptedStream(), list[int]()
    with open_writer() as writer:
        for oid in range(5):
            sent = stream.transaction(insert(1, "a", oid=oid), insert(1, "b", oid=oid + 10))
            for part in (sent[:2], sent[2:]) if cut else (sent,):
                writer.append(without_headers(part))
            ends.append(int(stream.lsn))
        log = ChangeLog.open(writer.log.storage)
    each = 2 if cut else 1
    for passed in range(5):
        held = {oid + more for oid in range(passed + 1, 5) for more in (0, 10)}
        for most in range(1, 12):
            enough = (4 - passed) * each <= most
            assert log.changed_above(ends[passed], most) == (held if enough else None), (passed, most)
    assert ChangeLog.create(MemoryStorage(), IDENTITY).changed_above(0, 1) == set()


def test_what_changed_before_many_segments_without_a_commit_is_not_passed_over(open_writer: Writer) -> None:
    stream = ScriptedStream()
    with open_writer() as writer:
        writer.append(without_headers(stream.transaction(insert(1, "a"))))
        end = stream.lsn
        for _ in range(4):
            writer.append(without_headers([stream.message(NOTE)]))
        log = ChangeLog.open(writer.log.storage)
    assert [log.changed_above(0x1000, most) for most in range(1, 7)] == [None] * 4 + [{16384}] * 2
    assert [log.changed_above(end, most) for most in range(1, 7)] == [set()] * 6


@pytest.mark.parametrize("cut", [2, 3, 7, 100])
def test_where_the_transactions_before_an_announcement_end(open_writer: Writer, cut: int) -> None:
    stream, flat, ends = ScriptedStream(), list[bytes](), [0x1000]
    one, two = relation(1, "one"), relation(2, "two")
    for said in ([one, insert(1, "a", oid=1)], [insert(2, "a", oid=1)], [two, one, insert(3, "a", oid=1)], [two]):
        flat += stream.transaction(*said)
        ends.append(int(stream.lsn))
    with open_writer() as writer:
        for at in range(0, len(flat), cut):
            writer.append(without_headers(flat[at : at + cut]))
        log = ChangeLog.open(writer.log.storage)
    announced = {1: (1, 3), 2: (3, 4), 9: ()}
    for oid, transactions in announced.items():
        for first in range(5):
            for last in range(first, 5):
                before = next((number - 1 for number in transactions if first < number <= last), last)
                assert log.end_before_announcement(ends[first], ends[last], oid) == ends[before]


# -- what people see of it


def test_a_line_for_each_kind_of_message(open_writer: Writer) -> None:
    said = [
        Origin(LSN(8), "elsewhere"),
        Type(90000, "public", "mood"),
        relation(5, "o.t", ("id", "v")),
        insert(1, "ab", oid=5),
        Truncate((5, 6), 3),
        Message(True, LSN(8), "p", b"secret"),
    ]
    with open_writer() as writer:
        writer.append(without_headers(ScriptedStream().transaction(*said)))
        log = ChangeLog.open(writer.log.storage)
    assert list(dump_messages(log, 0, log.last_end_lsn)) == [
        "0/1000 701 Begin commit at 0/1038",
        "0/1008 701 Origin 19 bytes",
        "0/1010 701 Type 90000 public.mood",
        '0/1018 701 Relation 5 public."o.t" (id, v)',
        "0/1020 701 Insert 5 21 bytes",
        "0/1028 701 Truncate 5, 6",
        "0/1030 701 Message 22 bytes",
        "0/1038 701 Commit end 0/1040",
    ]
    (listed,) = list_segments(log)
    sizes = log.segments[0].payload_bytes
    about = {"segment": 0, "first_lsn": "0/1000", "last_lsn": "0/1038", "end_lsn": "0/1040", "rows": 8, "commits": 1}
    assert listed.items() >= (about | {"payload_bytes": sizes, "relations": 2}).items()


@pytest.mark.parametrize("kind", [CaptureStatus, PipelineStatus, TableStatus])
def test_what_nobody_has_said_yet_is_nothing(kind: type[Any]) -> None:
    """Zero for each number, but for a batch, which are counted from zero."""
    defaults = {field.name: field.default for field in fields(kind) if field.default is not MISSING}
    numbers = {name: value for name, value in defaults.items() if isinstance(value, int | float)}
    counted = {name: value for name, value in numbers.items() if not isinstance(value, bool)}
    assert counted == {name: -1 if name == "batch" else 0 for name in counted}
    assert {type(value) for name, value in counted.items() if name.endswith("_lsn")} == {LSN}


# -- plugins


@pytest.mark.parametrize("cut", [2, 5, 100])
def test_an_output_plugin_gets_what_is_in_the_range(open_writer: Writer, cut: int) -> None:
    """However the transactions lie in segments; a relation may have been announced before the range."""
    stream, flat, ends = ScriptedStream(), list[bytes](), [0x1000]
    for number, announced in enumerate(([relation()], [], [], [relation(columns=("k", "w"))], [])):
        flat += stream.transaction(*announced, insert(number, "a"))
        ends.append(int(stream.lsn))
    with open_writer() as writer:
        for at in range(0, len(flat), cut):
            writer.append(without_headers(flat[at : at + cut]))
        log = ChangeLog.open(writer.log.storage)

    def said(start: int | None, end: int | None) -> list[object]:
        found = decode_log(log, "test_decoding", [("skip-empty-xacts", "1")], start=start, end=end)
        return [str(decoded.data) for decoded in found if "table" in str(decoded.data)]

    names = [("id", "v")] * 3 + [("k", "w")] * 2
    rows = [f"table public.t: INSERT: {k}[bigint]:{n} {v}[text]:'a'" for n, (k, v) in enumerate(names)]
    assert said(None, None) == rows
    for first in range(6):
        for last in range(6):
            assert said(ends[first], ends[last]) == rows[first:last]
