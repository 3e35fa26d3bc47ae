"""What is streamed before its commit is read as if it had come at its commit, whoever else is streamed meanwhile."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.changelog.conftest import IDENTITY
from tests.changelog.memory import MemoryStorage
from wal2lake.capture.frames import without_headers
from wal2lake.capture.history import Resent
from wal2lake.changelog.decoding import decode_log
from wal2lake.changelog.dump import dump_messages, verify_log
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.writer import LogWriter
from wal2lake.columnar.types import TableSchema
from wal2lake.config import Config, LakeConfig, LogConfig, SourceConfig
from wal2lake.errors import LogMismatchError, ProtocolError
from wal2lake.lsn import LSN
from wal2lake.monitor.status import read_status
from wal2lake.pgoutput.codec import read_message
from wal2lake.pgoutput.messages import Commit, StreamAbort, StreamStart, StreamStop
from wal2lake.tables.committed import read_extent
from wal2lake.testing.stream import ScriptedStream, insert, relation
from wal2lake.wire.replication import XLOG_DATA_HEADER

Writer = Callable[..., LogWriter]
Row = tuple[int, str]  # xid, value


@dataclass
class Sending:
    """A walsender that streams transactions by turns, as chance has it. ``rows``: what is committed, in order."""

    rng: random.Random
    stream: ScriptedStream = field(default_factory=ScriptedStream)
    sent: list[bytes] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    ends: list[tuple[int, int]] = field(default_factory=list)  # xid, end LSN
    xid: int = 1000
    open: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    prepared: dict[int, list[str]] = field(default_factory=dict)

    def step(self) -> None:
        known = [*self.open]
        ways = ["whole", "begin", "chunk", "chunk", "abort sub", "abort", "commit", "prepare", "prepare", "end"]
        match self.rng.choice(ways):
            case "whole":
                value = self._value()
                self.sent += self.stream.transaction(relation(), insert(1, value))
                self._committed(self.stream.xid, [value])
            case "begin":
                self.xid += 10
                self.open[self.xid] = []
                self._chunk(self.xid, first=True)
            case "prepare" if self.rng.random() < 0.5:
                self.xid += 10
                value = self._value()
                self.sent += self.stream.prepare(self.xid, relation(), insert(1, value))
                self.prepared[self.xid] = [value]
            case "end" if self.prepared:
                self._end(self.rng.choice([*self.prepared]))
            case _ if not known:
                self.step()
            case "prepare" | "end":
                xid = self.rng.choice(known)
                self.sent.append(self.stream.stream_prepare(xid))
                self.prepared[xid] = [value for _, value in self.open.pop(xid)]
            case "chunk":
                self._chunk(self.rng.choice(known), first=False)
            case "abort sub":
                xid = self.rng.choice(known)
                if subs := {sub for sub, _ in self.open[xid] if sub != xid}:
                    sub = self.rng.choice(sorted(subs))
                    self.sent.append(self.stream.message(StreamAbort(xid, sub)))
                    self.open[xid] = [(of, value) for of, value in self.open[xid] if of != sub]
                    self.xid += 1  # nobody has that number again
            case "abort":
                xid = self.rng.choice(known)
                self.sent.append(self.stream.message(StreamAbort(xid, xid)))
                del self.open[xid]
            case "commit":
                xid = self.rng.choice(known)
                self.sent.append(self.stream.stream_commit(xid))
                self._committed(xid, [value for _, value in self.open.pop(xid)])

    def _end(self, xid: int) -> None:
        if self.rng.random() < 0.3:
            self.sent.append(self.stream.rollback_prepared(xid))
            del self.prepared[xid]
        else:
            self.sent.append(self.stream.commit_prepared(xid))
            self._committed(xid, self.prepared.pop(xid))

    def _committed(self, xid: int, values: list[str]) -> None:
        self.rows += [(xid, value) for value in values]
        self.ends.append((xid, self.stream.lsn))

    def _value(self) -> str:
        return f"v{self.rng.randrange(10**9)}"

    def _chunk(self, xid: int, *, first: bool) -> None:
        subs = [xid, *range(xid + 1, xid + 4)] if not first else [xid]
        made = [(self.rng.choice(subs), self._value()) for _ in range(self.rng.randrange(5))]
        aborted = {sub for sub in subs if sub in self._gone}
        made = [(sub, value) for sub, value in made if sub not in aborted]
        self.open[xid] += made
        changes = [(sub, insert(1, value)) for sub, value in made]
        self.sent += self.stream.chunk(xid, relation(), *changes, first=first)

    @property
    def _gone(self) -> set[int]:
        """Subtransactions that aborted; a new one has another number."""
        found = (
            read_message(payload[XLOG_DATA_HEADER:])
            for payload in self.sent
            if payload[XLOG_DATA_HEADER : XLOG_DATA_HEADER + 1] == b"A"
        )
        return {abort.subxid for abort in found if isinstance(abort, StreamAbort)}


def rows_of(log: ChangeLog, start: int, end: int) -> Iterator[Row]:
    """As a task reads them."""
    known = log.transactions(start, end)
    for extent in log.plan(start, end):
        for found in read_extent(log, extent, 16384, known):
            assert isinstance(found.changes.schema, TableSchema)
            yield from zip(found.changes.xid.tolist(), found.changes.new[1].to_pylist(), strict=True)


def decoded(log: ChangeLog) -> list[tuple[int, str]]:
    """What a plugin sees, as BEGIN, its rows and COMMIT."""
    return [(xid, str(data)) for _, xid, data in decode_log(log, "test_decoding")]


@given(seed=st.integers(0, 10**6), cuts=st.lists(st.integers(1, 40), min_size=1, max_size=6), torn=st.booleans())
@settings(max_examples=12, deadline=None)
def test_what_committed_is_read_in_the_order_of_the_commits(seed: int, cuts: list[int], *, torn: bool) -> None:
    sending = Sending(random.Random(seed))
    for _ in range(40):
        sending.step()
    path = MemoryStorage()
    sessions = [sending.sent[: len(sending.sent) // 2], sending.sent] if torn else [sending.sent]
    for sent in sessions:  # the second begins where the first did: what the log has is not doubled
        with LogWriter(path, IDENTITY) as writer:
            writer.new_session()
            left = [*sent]
            while left:
                cut = cuts[len(left) % len(cuts)]
                writer.append(without_headers(left[:cut], in_chunk=writer.in_chunk))
                left = left[cut:]
    assert (writer.open_streams, writer.prepared) == (len(sending.open), len(sending.prepared))
    assert ChangeLog.open(path).prepared().keys() == sending.prepared.keys()
    log = ChangeLog.open(path)
    index = log.transactions(0, log.last_end_lsn)
    assert list(zip(index["xid"].to_pylist(), index["end_lsn"].to_pylist(), strict=True)) == sending.ends
    assert list(rows_of(log, 0, log.last_end_lsn)) == sending.rows
    assert list(verify_log(log.storage)) == []
    ends = [0, *(end for _, end in sending.ends)]
    middle = sending.rng.choice(ends)  # in two steps as in one
    assert [*rows_of(log, 0, middle), *rows_of(log, middle, ends[-1])] == sending.rows
    told = [(xid, text) for xid, text in decoded(log) if not text.startswith("COMMIT")]
    expected = [
        text for xid, _ in sending.ends for text in [f"BEGIN {xid}", *(v for of, v in sending.rows if of == xid)]
    ]
    assert [
        text if text.startswith("BEGIN") else text.rpartition("'")[0].rpartition("'")[2] for _, text in told
    ] == expected


def append(writer: LogWriter, *parts: list[bytes]) -> None:
    for part in parts:
        writer.append(without_headers(part, in_chunk=writer.in_chunk))


def test_retention_keeps_what_a_transaction_has_that_has_not_ended(open_writer: Writer) -> None:
    stream, ends = ScriptedStream(), []
    with open_writer() as writer:
        append(writer, stream.transaction(relation(), insert(0, "a")))
        ends.append(stream.lsn)
        append(writer, stream.chunk(90, insert(1, "b"), first=True), stream.chunk(91, insert(2, "c"), first=True))
        append(writer, stream.transaction(insert(3, "d")), stream.transaction(insert(4, "e")))
        ends.append(stream.lsn)
        log = ChangeLog.open(writer.log.storage)
        log.release("a", ends[1])
        assert (log.trim(0), log.segments[0].seq, log.beginning()) == (1, 1, ends[0])
        append(writer, [stream.stream_commit(90)], [stream.message(StreamAbort(91, 91))])
        log.refresh()
        assert (log.trim(0), log.changed_above(ends[1], 9)) == (0, {16384})
        assert [(extent.seq, extent.row_start, extent.row_stop) for extent in log.plan(ends[1], stream.lsn)] == [
            (1, 0, 3),
            (5, 0, 1),
        ]
        assert log.beginning() == ends[0]
        log.release("a", stream.lsn)
        assert (log.trim(0), [s.seq for s in log.segments]) == (4, [5, 6])


def test_retention_keeps_the_first_chunk_of_what_ends_in_a_segment_of_which_a_part_is_released(
    open_writer: Writer,
) -> None:
    stream = ScriptedStream()
    with open_writer() as writer:
        append(writer, stream.chunk(90, relation(), insert(1, "b"), first=True))
        first = stream.transaction(insert(2, "c"))
        released = stream.lsn
        append(writer, [*first, stream.stream_commit(90)], stream.transaction(insert(3, "d")))
        log = ChangeLog.open(writer.log.storage)
        log.release("a", released)
        assert (log.trim(0), [extent.seq for extent in log.plan(released, stream.lsn)]) == (0, [0, 1, 2])


def test_the_log_begins_after_a_transaction_whose_first_chunk_is_gone(open_writer: Writer) -> None:
    stream = ScriptedStream()
    with open_writer() as writer:
        append(writer, stream.chunk(90, relation(), insert(1, "b"), first=True), stream.transaction(insert(2, "c")))
        append(writer, stream.transaction(insert(2, "d")))
        whole = stream.lsn
        append(writer, [stream.stream_commit(90)], stream.transaction(insert(3, "e")))
        storage = writer.log.storage
    end = ChangeLog.open(storage).segments[3].end_lsn
    storage.remove("segments/0000000000000000.arrow")
    log = ChangeLog.open(storage)
    assert log.beginning() == end
    with pytest.raises(LogMismatchError, match="no longer holds"):
        log.plan(whole, log.last_end_lsn)
    assert [*rows_of(log, end, log.last_end_lsn)] == [(stream.xid, "e")]
    assert list(verify_log(storage)) == []


@pytest.mark.parametrize(
    ("sent", "sentence"),
    [
        (lambda s: s.chunk(90, insert(1, "a"), first=False), "goes on to stream, and never began, transaction 90"),
        (lambda s: s.chunk(90, first=True) + s.chunk(90, first=True), "twice began to stream transaction 90"),
        (lambda s: [s.stream_commit(90)], "committed transaction 90, which never began"),
        (lambda s: s.chunk(90, first=True)[:1] + s.transaction(), "began a transaction inside another"),
        (lambda s: s.chunk(90, first=True)[:1] + s.chunk(91, first=True), "began a transaction inside another"),
        (lambda s: [*s.transaction()[:1], s.message(StreamStop())], "committed a transaction that never began"),
        (lambda s: s.chunk(90, first=True)[:1] + s.transaction()[1:], "committed a transaction that never began"),
        (lambda s: [*s.chunk(90, first=True)[:1], s.stream_commit(90)], "sent Stream Commit amid transaction 90"),
        (lambda s: [*s.chunk(90, first=True)[:1], s.message(StreamAbort(90, 90))], "sent StreamAbort amid transaction"),
        (lambda s: [s.message(StreamStop())], "committed a transaction that never began"),
        (lambda s: s.prepare(90)[:1] + s.transaction(), "began a transaction inside another"),
        (lambda s: s.prepare(90)[1:], "committed a transaction that never began"),
        (lambda s: s.chunk(90, first=True) + s.prepare(90), "began to prepare transaction 90, which it streams"),
        (lambda s: [s.stream_prepare(90)], "prepared transaction 90, which never began"),
        (lambda s: [s.commit_prepared(90)], "committed transaction 90, which was never prepared"),
        (lambda s: [*s.chunk(90, first=True)[:1], s.stream_prepare(90)], "sent Stream Prepare amid transaction 90"),
        (lambda s: s.chunk(90, (0, insert(1, "a")), first=True), "chunk is of xid 0"),
        (
            lambda s: [s.message(StreamStart(90, True)), s.in_chunk(insert(1, "a"), 90)[: XLOG_DATA_HEADER + 3]],
            "chunk has no xid",
        ),
    ],
)
def test_what_cannot_follow_is_refused_and_leaves_no_trace(
    open_writer: Writer, sent: Callable[[ScriptedStream], list[bytes]], sentence: str
) -> None:
    stream = ScriptedStream()
    with open_writer() as writer:
        with pytest.raises(ProtocolError, match=sentence):
            append(writer, sent(stream))
        append(writer, [*stream.chunk(90, relation(), insert(1, "a"), first=True), stream.stream_commit(90)])
    log = ChangeLog.open(writer.log.storage)
    assert [*rows_of(log, 0, stream.lsn)] == [(90, "a")]


def test_the_abort_of_what_was_never_sent_is_passed_over(open_writer: Writer) -> None:
    stream = ScriptedStream()
    with open_writer() as writer:
        append(writer, [stream.message(StreamAbort(70, 71)), *stream.chunk(90, relation(), insert(1, "a"), first=True)])
        append(writer, [stream.message(StreamAbort(90, 95)), stream.stream_commit(90)])
    assert [*rows_of(ChangeLog.open(writer.log.storage), 0, stream.lsn)] == [(90, "a")]


def test_a_transaction_of_which_all_is_aborted_is_an_empty_one(open_writer: Writer) -> None:
    stream = ScriptedStream()
    with open_writer() as writer:
        append(writer, stream.chunk(90, (91, insert(1, "a")), first=True))
        append(writer, [stream.message(StreamAbort(90, 91)), stream.stream_commit(90)])
    log = ChangeLog.open(writer.log.storage)
    assert [*dump_messages(log, 0, stream.lsn)][-1].endswith(f"90 StreamCommit end {stream.lsn}")
    assert [(xid, text.split()[0]) for xid, text in decoded(log)] == [(90, "BEGIN"), (90, "COMMIT")]
    assert not [*rows_of(log, 0, stream.lsn)]


def test_a_log_of_format_3_goes_on_in_the_present_one(tmp_path: Path) -> None:
    """Made by the version before streamed transactions: three of them, the first over two segments."""
    path = Path(shutil.copytree(Path(__file__).with_name("format3"), tmp_path / "log"))
    log = ChangeLog.open(path)
    values = [value for _, value in rows_of(log, 0, log.last_end_lsn)]
    assert (values, list(verify_log(log.storage))) == (["a", "b", "c", "d"], [])
    with LogWriter(path, IDENTITY) as writer:
        stream = ScriptedStream(writer.durable_lsn)
        append(writer, stream.chunk(90, relation(), insert(5, "e"), first=True), [stream.stream_commit(90)])
    log.refresh()
    assert [value for _, value in rows_of(log, 0, log.last_end_lsn)] == [*values, "e"]
    assert list(verify_log(log.storage)) == []
    log.release("a", log.transactions(0, log.last_end_lsn)["end_lsn"][1].as_py())
    assert (log.trim(0), list(verify_log(log.storage))) == (2, [])


def test_status_tells_of_a_transaction_that_keeps_the_log(open_writer: Writer) -> None:
    stream = ScriptedStream()
    with open_writer() as writer:
        append(writer, stream.chunk(90, insert(1, "a"), first=True))
        append(writer, stream.transaction(insert(2, "b")), stream.transaction(insert(3, "c")))
        folder = Path(writer.log.storage.where)
        config = Config(SourceConfig("host=127.0.0.1 port=1"), LogConfig(str(folder)), LakeConfig(f"{folder}-lake"))
        assert not [problem for problem in read_status(config).problems if "has not ended" in problem]
        old = time.time() - 1800
        os.utime(folder / "segments/0000000000000000.arrow", (old, old))
        (told,) = (problem for problem in read_status(config).problems if "has not ended" in problem)
        assert "keeps the change log from segment 0 on" in told
        append(writer, [stream.message(StreamAbort(90, 90))])
        assert not [problem for problem in read_status(config).problems if "has not ended" in problem]
        append(writer, stream.prepare(95, insert(6, "f")), stream.transaction(insert(7, "g")))
        os.utime(folder / "segments/0000000000000004.arrow", (old, old))
        found = read_status(config)
        assert found.log is not None and found.log.prepared == (95,)
        (told,) = (problem for problem in found.problems if "has been prepared" in problem)
        assert "Transaction 95" in told and "from segment 4 on" in told and "g95" not in told


def test_what_is_sent_again_is_compared_however_it_comes(open_writer: Writer) -> None:
    """What the log has came streamed, and comes whole, or the other way round; what it has not is not dropped."""
    one, two = ScriptedStream(), ScriptedStream()
    one.xid = 89
    sent = [*one.transaction(relation(), insert(1, "a"), insert(2, "b")), *one.transaction(insert(3, "c"))]
    first_commit, last = read_message(sent[4][XLOG_DATA_HEADER:]), one.lsn
    assert isinstance(first_commit, Commit)
    again = two.chunk(90, relation(), insert(1, "a"), first=True) + two.chunk(92, insert(9, "z"), first=True)
    two.xid, two.lsn = 90, first_commit.commit_lsn
    again += [two.stream_commit(90), *two.transaction(insert(3, "c")), two.stream_commit(92)]
    with open_writer() as writer:
        append(writer, sent)
        resent = Resent(writer.log, writer.durable_lsn, writer.log.start_lsn)
        writer.new_session()
        writer.append(resent.pass_over(without_headers(again), LSN(0)))
        assert resent.over
        assert [*rows_of(ChangeLog.open(writer.log.storage), last, two.lsn)] == [(92, "z")]
        another = without_headers([*again[:8], again[-1]])
        with pytest.raises(
            LogMismatchError, match=r"the server has transaction 92, .* where the log has transaction 91"
        ):
            Resent(writer.log, writer.durable_lsn, writer.log.start_lsn).pass_over(another, LSN(0))


def test_what_is_prepared_is_known_to_the_next_process_and_to_the_next_session(open_writer: Writer) -> None:
    """Its Prepare may have been acknowledged, and then its end comes alone."""
    stream = ScriptedStream()
    with open_writer() as writer:
        append(writer, stream.prepare(90, relation(), insert(1, "a")), stream.prepare(91, insert(2, "b"))[:2])
        stream.lsn = LSN(stream.lsn + 8)
    with open_writer() as writer:  # of the second the Prepare never came: it comes again, whole
        writer.new_session()
        append(writer, stream.prepare(91, relation(), insert(2, "b")), stream.chunk(92, insert(3, "c"), first=True))
        append(writer, [stream.stream_prepare(92)], stream.transaction(insert(4, "d")))
        known = stream.lsn
        writer.new_session()
        append(writer, [stream.commit_prepared(92)], [stream.rollback_prepared(91)], [stream.rollback_prepared(80)])
    with open_writer() as writer:
        assert (writer.prepared, writer.log.segments[-1].open_after) == (1, 0)
        log = ChangeLog.open(writer.log.storage)
        log.release("a", stream.lsn)
        assert log.trim(0) == 0, "nobody may need what is gone to be applied, but for what has not ended"
        end = stream.commit_prepared(90)
        append(writer, [end])
        writer.new_session()
        append(writer, [end, *stream.transaction(relation(), insert(5, "e"))])
    log = ChangeLog.open(writer.log.storage)
    rows = [*rows_of(log, 0, log.last_end_lsn)]
    assert rows == [(stream.xid - 1, "d"), (92, "c"), (90, "a"), (stream.xid, "e")]
    assert known < log.last_end_lsn
    assert list(verify_log(log.storage)) == []


def test_what_was_prepared_may_come_once_more_and_as_a_transaction_like_others(open_writer: Writer) -> None:
    """A slot that the server's crash put back, and one that is asked no more for what is prepared."""
    stream = ScriptedStream()
    sent = stream.prepare(90, relation(), insert(1, "a"))
    commit = stream.commit_prepared(90)
    other = stream.prepare(701, insert(2, "b"))
    with open_writer() as writer:
        append(writer, sent, [commit], other)
        writer.new_session()
        append(writer, [*sent, commit], other)
        assert writer.prepared == 1
        stream.xid = 700
        append(writer, stream.transaction(insert(2, "b")))
        assert writer.prepared == 0
    log = ChangeLog.open(writer.log.storage)
    assert [*rows_of(log, 0, log.last_end_lsn)] == [(90, "a"), (701, "b")]
    assert list(verify_log(log.storage)) == []
