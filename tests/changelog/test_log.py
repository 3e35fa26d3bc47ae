"""What was appended is what a range gives back, however it was cut into segments and whatever broke in between."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.changelog.conftest import IDENTITY, flushed_paths
from wal2lake.capture.frames import without_headers
from wal2lake.changelog.format import SEGMENT_SCHEMA
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.plan import Extent
from wal2lake.changelog.writer import LogWriter
from wal2lake.errors import ConfigError, LogCorruptError, LogFullError, LogMismatchError, ProtocolError, SlotInUseError
from wal2lake.lsn import LSN
from wal2lake.pgoutput.messages import Message, Truncate, Type
from wal2lake.testing.stream import ScriptedStream, delete, insert, relation, update
from wal2lake.wire.replication import read_xlog_data

Writer = Callable[..., LogWriter]


def payloads_of(log: ChangeLog, start: int, end: int) -> list[bytes]:
    """Every planned message of the range, in order."""
    return [p for e in log.plan(start, end) for p in log.read(e).column("payload").to_pylist()]


def messages(copy_data: Sequence[bytes]) -> list[bytes]:
    return [read_xlog_data(p).payload for p in copy_data]


def test_rows_are_the_columns_of_the_messages(open_writer: Writer) -> None:
    stream = ScriptedStream()
    sent = stream.transaction(relation(), insert(1, "a"), update(1, "b"), delete(1, None), Truncate((16384, 9), 0))
    with open_writer() as writer:
        info = writer.append(without_headers(sent))
        batch = ChangeLog.open(writer.log.storage.root).read(Extent(0, 0, 7))
    assert batch.schema == SEGMENT_SCHEMA
    assert bytes(batch.column("tag").to_pylist()) == b"BRIUDTC"
    assert batch.column("relation_id").to_pylist() == [0, 16384, 16384, 16384, 16384, 0, 0]
    assert batch.column("xid").to_pylist() == [701] * 7
    assert batch.column("lsn").to_pylist() == [0x1000 + 8 * i for i in range(7)]
    assert batch.column("payload").to_pylist() == messages(sent)
    assert info.counts == {16384: {"I": 1, "U": 1, "D": 1, "T": 1}, 9: {"T": 1}}
    assert (info.rows, info.commits, info.commit_rows) == (7, 1, 7)
    assert info.payload_bytes == info.commit_bytes == sum(map(len, messages(sent)))


@given(
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=8),
    cuts=st.lists(st.integers(1, 7), min_size=1, max_size=12),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_any_range_of_any_cutting(
    sizes: list[int], cuts: list[int], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stream = ScriptedStream()
    sent: list[tuple[int, list[bytes]]] = []
    for size in sizes:
        transaction = stream.transaction(*(insert(i, "x") for i in range(size)))
        sent.append((stream.lsn, transaction))
    flat = [m for _, transaction in sent for m in transaction]
    path = tmp_path_factory.mktemp("log")
    with LogWriter(path, IDENTITY) as writer:
        while flat:
            cut = cuts[len(flat) % len(cuts)]
            writer.append(without_headers(flat[:cut]))
            flat = flat[cut:]
    log = ChangeLog.open(path)
    ends = [IDENTITY.start_lsn, *(end for end, _ in sent)]
    start, end = sorted((data.draw(st.sampled_from(ends)), data.draw(st.sampled_from(ends))))
    expected = [t for lsn, t in sent if start < lsn <= end]
    assert payloads_of(log, start, end) == [m for t in expected for m in messages(t)]
    index = log.transactions(start, end)
    assert index.column("end_lsn").to_pylist() == [lsn for lsn, _ in sent if start < lsn <= end]
    assert index.column("rows").to_pylist() == [len(t) for t in expected]
    assert index.column("bytes").to_pylist() == [sum(map(len, messages(t))) for t in expected]
    limit = data.draw(st.integers(1, 12))
    assert log.end_lsn_within(start, max_rows=limit) == naive_end(sent, start, limit)


def naive_end(sent: list[tuple[int, list[bytes]]], start: int, limit: int) -> int:
    rows, best = 0, start
    for lsn, transaction in sent:
        if lsn > start:
            rows += len(transaction)
            if rows > limit and best != start:
                break
            best = lsn
            if rows > limit:
                break
    return best


def test_limits_by_bytes_and_before_a_commit(open_writer: Writer) -> None:
    stream = ScriptedStream()
    first = stream.transaction(insert(1, "a" * 100))
    end1 = stream.lsn
    second = stream.transaction(insert(2, "b" * 100))
    end2 = stream.lsn
    with open_writer() as writer:
        writer.append(without_headers(first + second))
        log = writer.log
        log.refresh()
        assert log.end_lsn_within(0, max_bytes=1) == end1
        assert log.end_lsn_within(0, max_bytes=400) == end2
        assert log.end_lsn_within(0, max_bytes=400, max_rows=3) == end1
        assert log.end_lsn_within(0, before_commit_lsn=end2 - 8) == end1
        assert log.end_lsn_within(0, before_commit_lsn=end2) == end2
        assert log.end_lsn_within(0, before_commit_lsn=0x1000) == 0
        assert log.end_lsn_within(end2, max_bytes=1) == end2


def test_a_torn_transaction_comes_again_whole(open_writer: Writer) -> None:
    stream = ScriptedStream()
    whole = stream.transaction(relation(), insert(1, "a"))
    start = stream.lsn
    torn = stream.transaction(relation(), insert(2, "b"), insert(3, "c"))
    with open_writer() as writer:
        writer.append(without_headers(whole + torn[:3]))
    with open_writer() as writer:
        assert writer.durable_lsn == start
        writer.append(without_headers(torn[:2]))  # this session breaks as well, while capture lives on
        writer.new_session()
        writer.append(without_headers(torn))
        writer.log.refresh()
        assert payloads_of(writer.log, 0, stream.lsn) == messages(whole + torn)
        assert writer.log.segments[-1].relation_files == ()


def test_a_transaction_that_the_log_has_is_not_indexed_again(open_writer: Writer) -> None:
    stream = ScriptedStream()
    first, second = stream.transaction(insert(1, "a")), stream.transaction(insert(2, "b"))
    with open_writer() as writer:
        writer.append(without_headers(first))
        writer.new_session()
        writer.append(without_headers(first + second))
        writer.log.refresh()
        assert payloads_of(writer.log, 0, stream.lsn) == messages(first + second)


def test_leftovers_of_a_dead_writer_are_removed(open_writer: Writer, tmp_path: Path) -> None:
    stream = ScriptedStream()
    with open_writer() as writer:
        writer.append(without_headers(stream.transaction(insert(1, "a"))))
    leftover = tmp_path / "log/segments/.0000000000000001.arrow.99-1.tmp"
    leftover.write_bytes(b"half")
    assert len(ChangeLog.open(tmp_path / "log").segments) == 1
    with open_writer():
        assert not leftover.exists()


def test_what_a_dead_writer_renamed_is_durable_before_it_counts(
    open_writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have died between the rename and the flush of the folder, and the slot moves by what the next one says."""
    with open_writer() as writer:
        writer.append(without_headers(ScriptedStream().transaction(insert(1, "a"))))
    flushed = flushed_paths(monkeypatch)
    with open_writer():
        assert {tmp_path / "log/segments", tmp_path / "log"} <= set(flushed)


def test_the_way_to_a_new_log_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed = flushed_paths(monkeypatch)
    with LogWriter(tmp_path / "a/b/log", IDENTITY):
        assert {tmp_path, tmp_path / "a", tmp_path / "a/b", tmp_path / "a/b/log"} <= set(flushed)


def test_a_folder_that_cannot_be_used_is_named_with_its_cure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"Not a directory\. Give the user"):
        LogWriter(tmp_path / "file/log", IDENTITY)


def test_a_full_disk_under_the_lock_is_a_full_disk(open_writer: Writer) -> None:
    """Whoever starts on a disk that is still full meets it there first."""
    with open_writer():
        pass
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(LogFullError, match="Make room"):
            open_writer()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_file_that_is_cut_or_overwritten_is_named_with_its_cure(open_writer: Writer, tmp_path: Path) -> None:
    with open_writer() as writer:
        writer.append(without_headers(ScriptedStream().transaction(insert(1, "a"))))
    file = tmp_path / "log/segments/0000000000000000.arrow"
    whole = file.read_bytes()
    for damaged in (b"", whole[:100], whole[:-40], b"x" * len(whole)):
        file.write_bytes(damaged)
        with pytest.raises(LogCorruptError, match=r"segments/0000000000000000\.arrow.*Restore"):
            _ = ChangeLog.open(tmp_path / "log").segments
    (tmp_path / "log/log.json").write_text("{")
    with pytest.raises(LogCorruptError, match=r"log\.json"):
        ChangeLog.open(tmp_path / "log")


def test_a_missing_segment_is_found(open_writer: Writer, tmp_path: Path) -> None:
    stream = ScriptedStream()
    with open_writer() as writer:
        for i in range(3):
            writer.append(without_headers(stream.transaction(insert(i, "a"))))
    (tmp_path / "log/segments/0000000000000001.arrow").unlink()
    with pytest.raises(LogCorruptError, match=r"0000000000000001\.arrow"):
        _ = ChangeLog.open(tmp_path / "log").segments


def test_one_writer_and_one_source(open_writer: Writer, tmp_path: Path) -> None:
    with open_writer(), pytest.raises(SlotInUseError, match=f"pid {os.getpid()}"):
        open_writer()
    with pytest.raises(LogMismatchError, match="belongs to database shop"):
        LogWriter(tmp_path / "log", replace(IDENTITY, database="other"))
    with pytest.raises(ConfigError, match="no change log"):
        ChangeLog.open(tmp_path / "nothing")


def test_the_idle_position_is_durable(open_writer: Writer) -> None:
    stream = ScriptedStream()
    with open_writer() as writer:
        writer.append(without_headers(stream.transaction(insert(1, "a"))))
        writer.set_position(0x9000)
        writer.set_position(0x8000)
        assert writer.durable_lsn == 0x9000
    with open_writer() as writer:
        assert (writer.durable_lsn, writer.log.last_end_lsn) == (0x9000, stream.lsn)
        assert json.loads(writer.log.storage.get("position.json"))["lsn"] == "0/9000"


def test_a_reader_takes_nothing_for_durable_that_it_has_not_seen(open_writer: Writer) -> None:
    """Verify asks of one look at the log both: how far it goes, and what is in it up to there."""
    stream = ScriptedStream()
    with open_writer() as writer:
        writer.append(without_headers(stream.transaction(insert(1, "a"))))
        readers = [ChangeLog.open(writer.log.storage.root) for _ in range(2)]
        seen = [(len(log.segments), log.durable_lsn()) for log in readers]
        writer.append(without_headers(stream.transaction(insert(2, "b"))))
        writer.set_position(0x9000)
        assert [(len(log.segments), log.durable_lsn()) for log in readers] == seen
        readers[0].refresh()
        assert (len(readers[0].segments), readers[0].durable_lsn()) == (2, 0x9000)


def test_a_look_at_the_log_begins_with_its_position(open_writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer appends and moves its position while a reader looks."""
    stream = ScriptedStream()
    with open_writer() as writer:
        first, second = (stream.transaction(insert(i, "a")) for i in range(2))
        writer.append(without_headers(first))
        log = ChangeLog.open(writer.log.storage.root)
        assert log.durable_lsn() == log.last_end_lsn
        look = log.storage.get

        def get(name: str) -> bytes:
            found = look(name)
            writer.append(without_headers(second))
            writer.set_position(0x9000)
            return found

        writer.set_position(0x8000)
        monkeypatch.setattr(log.storage, "get", get)
        log.refresh()
        assert (len(log.segments), log.durable_lsn()) == (2, 0x8000)


def test_schemas_in_force(open_writer: Writer) -> None:
    stream = ScriptedStream()
    old, new = relation(), relation(columns=("id", "v", "w"))
    mood = Type(90000, "public", "mood")
    sent = stream.transaction(old, insert(1, "a"), old, insert(2, "b"), mood, new, insert(3, "c", "d"))
    with open_writer() as writer:
        writer.append(without_headers(sent))
        writer.append(without_headers(stream.transaction(insert(4, "e", "f"))))
        log = writer.log
        log.refresh()
    runs = log.relation_runs(Extent(0, 0, 9), 16384)
    assert [(r.row_start, r.row_stop, r.relation, set(r.types)) for r in runs] == [
        (1, 6, old, set()),
        (6, 9, new, {90000}),
    ]
    assert [r.relation for r in log.relation_runs(Extent(0, 7, 8), 16384)] == [new]
    assert [(r.relation, r.types) for r in log.relation_runs(Extent(1, 0, 3), 16384)] == [(new, {90000: mood})]
    assert log.relation_runs(Extent(0, 0, 9), 1) == []
    assert [(n.row, n.kind) for n in log.segments[0].announced] == [(1, "R"), (3, "R"), (5, "Y"), (6, "R")]
    assert log.counts(Extent(0, 0, 9)) == {16384: {"I": 3}}
    assert log.counts(Extent(0, 3, 5)) == {16384: {"I": 1}}


def test_a_relation_is_announced_where_the_server_says_so_and_in_committed_transactions_alone(
    open_writer: Writer,
) -> None:
    stream = ScriptedStream()
    with open_writer() as writer:
        first = stream.transaction(relation(), insert(1, "a"))
        ends = [stream.lsn]
        for sent in (stream.transaction(relation(), insert(2, "b")), stream.transaction(insert(3, "c"))):
            writer.append(
                without_headers(first + sent[:2])
            )  # the change that the Relation is sent for is in the next segment
            writer.append(without_headers(sent[2:]))
            ends.append(stream.lsn)
            first = []
        writer.append(without_headers(stream.transaction(relation(), insert(4, "d"))[:3]))
        writer.log.refresh()
        assert [writer.log.announced(ends[0], end) for end in ends] == [set(), {16384}, {16384}]
        assert writer.log.announced(ends[1], stream.lsn) == set()


def test_what_segments_repeat_is_held_once(open_writer: Writer) -> None:
    """The retention time of a log with many tables is thousands of segments."""
    stream = ScriptedStream()
    with open_writer() as writer:
        writer.append(without_headers(stream.transaction(relation(), insert(0, "a"))))
        writer.append(without_headers(stream.transaction(relation(), insert(1, "b"))))
        writer.append(without_headers(stream.transaction(insert(2, "c"))))
        log = ChangeLog.open(writer.log.storage.root)
    _, first, second = log.segments
    (before,) = log.in_force(Extent(1, 0, 1))
    assert log.relations_before(first) == log.relations_before(second) == {16384}
    assert before is log.in_force(Extent(2, 0, 1))[0] is first.announced[0].payload


def test_logical_messages_may_stand_outside(open_writer: Writer) -> None:
    stream = ScriptedStream()
    note = stream.message(Message(False, LSN(8), "p", b"x"))
    with open_writer() as writer:
        writer.append(without_headers([note, *stream.transaction(insert(1, "a")), note]))
        writer.log.refresh()
        assert writer.log.read(Extent(0, 0, 5)).column("xid").to_pylist() == [0, 701, 701, 701, 0]
        assert writer.log.plan(0, stream.lsn) == [Extent(0, 1, 4)]


def test_streams_out_of_order_are_refused(open_writer: Writer) -> None:
    stream = ScriptedStream()
    begin, change, commit = stream.transaction(insert(1, "a"))
    nonsense = change[:25] + b"?" + change[26:]
    with open_writer() as writer:
        for bad in ([change], [begin, begin], [commit], [nonsense], [begin[:30]], [b"k" + begin[1:]], [begin[:25]]):
            with pytest.raises(ProtocolError):
                writer.append(without_headers(bad))
        writer.append(without_headers([begin, change, commit]))  # a refused segment leaves no trace


def test_readers_see_what_is_appended(open_writer: Writer, tmp_path: Path) -> None:
    stream = ScriptedStream()
    with open_writer() as writer:
        log = ChangeLog.open(tmp_path / "log")
        assert (log.last_end_lsn, log.plan(0, 1 << 60)) == (IDENTITY.start_lsn, [])
        for i in range(3):
            writer.append(without_headers(stream.transaction(insert(i, "a"))))
            log.refresh()
            assert log.last_end_lsn == stream.lsn


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_compressions(open_writer: Writer, compression: str) -> None:
    stream = ScriptedStream()
    sent = stream.transaction(insert(1, "a" * 1000))
    with open_writer(compression=compression) as writer:
        writer.append(without_headers(sent))
        writer.log.refresh()
        assert payloads_of(writer.log, 0, stream.lsn) == messages(sent)
