"""Transactions come out whole, in the order of their commits, without what was aborted: whatever came in between."""

from __future__ import annotations

import random
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.decoding.walsender import ONE_PIECE, STREAMED, TWO_PHASE, Listening, Walsender
from wal2lake.decoding.reorderbuffer import ReorderBuffer
from wal2lake.errors import ConfigError, PluginError, ProtocolError
from wal2lake.lsn import LSN
from wal2lake.pgoutput.codec import read_message
from wal2lake.pgoutput.messages import Begin, Message, Origin, PgoutputMessage, StreamAbort, StreamStop, Truncate
from wal2lake.testing.stream import insert, relation

T = 16384


def inserted(*values: int) -> list[str]:
    return [f"table public.t: INSERT: id[bigint]:{value} v[text]:null" for value in values]


def rows(*values: int) -> list[PgoutputMessage]:
    return [insert(value, None) for value in values]


def test_streamed_transactions_come_out_in_the_order_of_their_commits() -> None:
    sender = Walsender(STREAMED)
    sender.chunk(701, relation(), *rows(1), first=True)
    sender.chunk(702, *rows(2), first=True)
    sender.chunk(701, *rows(3))
    sender.stream_commit(702)
    sender.transaction(703, *rows(4))
    sender.stream_commit(701)
    lines = Listening("test_decoding", STREAMED).hear(sender)
    expected = ["BEGIN 702", *inserted(2), "COMMIT 702", "BEGIN 703", *inserted(4), "COMMIT 703"]
    assert lines == [*expected, "BEGIN 701", *inserted(1, 3), "COMMIT 701"]


def test_what_a_subtransaction_did_goes_with_it() -> None:
    sender = Walsender(STREAMED)
    sender.chunk(701, relation(), *rows(1), (702, insert(2, None)), (703, insert(3, None)), first=True)
    sender.send(StreamAbort(701, 702))
    sender.chunk(701, (704, insert(4, None)))
    sender.stream_commit(701)
    assert Listening("test_decoding", STREAMED).hear(sender) == ["BEGIN 701", *inserted(1, 3, 4), "COMMIT 701"]


def test_an_aborted_transaction_leaves_nothing(tmp_path: Path) -> None:
    sender = Walsender(STREAMED)
    sender.chunk(701, relation(), *rows(1), first=True)
    sender.send(StreamAbort(701, 701))
    listening = Listening("test_decoding", STREAMED, memory=1)
    assert listening.hear(sender) == []
    assert len(listening.decoder.buffer) == 0


def test_a_held_row_is_read_as_its_table_was_then() -> None:
    sender = Walsender(STREAMED)
    sender.chunk(701, relation(), *rows(1), first=True)
    sender.chunk(702, relation(columns=("id", "v", "w")), insert(2, None, "new"), first=True)
    sender.stream_commit(702)
    sender.stream_commit(701)
    lines = Listening("test_decoding", STREAMED).hear(sender)
    assert lines[1] == "table public.t: INSERT: id[bigint]:2 v[text]:null w[text]:'new'"
    assert lines[4:5] == inserted(1)


def test_truncate_and_messages_are_held_as_rows_are() -> None:
    sender = Walsender(STREAMED)
    other = relation(16390, "u")
    told = Message(True, LSN(0x1000), "p", b"text")
    sender.chunk(701, relation(), other, Truncate((T, 16390), 3), told, (702, told), first=True)
    sender.send(Message(False, sender.lsn, "p", b"now"), StreamAbort(701, 702))
    sender.stream_commit(701)
    assert Listening("test_decoding", STREAMED).hear(sender) == [
        "message: transactional: 0 prefix: p, sz: 3 content:now",
        "BEGIN 701",
        "table public.t, public.u: TRUNCATE: restart_seqs cascade",
        "message: transactional: 1 prefix: p, sz: 4 content:text",
        "COMMIT 701",
    ]


@given(seed=st.integers(0, 1 << 32), memory=st.sampled_from((1, 300, 1 << 20)))
def test_streaming_says_what_one_piece_says(seed: int, memory: int) -> None:
    """Any transactions, cut into any chunks, interleaved in any way, spilled or not."""
    dice = random.Random(seed)
    streamed, one_piece = Walsender(STREAMED), Walsender(ONE_PIECE)
    one_piece.transaction(1, relation())
    streamed.transaction(1, relation())
    numbers = count(2)
    running: dict[int, dict[int, list[int]]] = {}  # values by transaction and subtransaction
    for _ in range(dice.randrange(60)):
        action = dice.choice(("begin", "chunk", "chunk", "chunk", "abort", "commit", "rollback"))
        if action == "begin":
            xid = next(numbers)
            running[xid] = {xid: []}
            streamed.chunk(xid, first=True)
        if not running:
            continue
        xid = dice.choice(list(running))
        subs = running[xid]
        if action == "chunk":
            subs[next(numbers)] = []
            changes = [(dice.choice(list(subs)), next(numbers)) for _ in range(dice.randrange(5))]
            streamed.chunk(xid, *((sub, insert(value, None)) for sub, value in changes))
            for sub, value in changes:
                subs[sub].append(value)
        elif action == "abort" and len(subs) > 1:
            sub = dice.choice([sub for sub in subs if sub != xid])
            streamed.send(StreamAbort(xid, sub))
            del subs[sub]
        elif action == "rollback":
            del running[xid]
            streamed.send(StreamAbort(xid, xid))
        elif action == "commit":
            del running[xid]
            streamed.stream_commit(xid)
            one_piece.transaction(xid, *rows(*sorted(value for values in subs.values() for value in values)))
    expected = Listening("test_decoding", ONE_PIECE).hear(one_piece)
    listening = Listening("test_decoding", STREAMED, memory=memory)
    assert listening.hear(streamed) == expected
    assert listening.decoder.buffer.memory <= memory


def test_a_streaming_plugin_gets_the_chunks_as_they_come() -> None:
    sender = Walsender(STREAMED)
    sender.chunk(701, relation(), *rows(1), (702, insert(2, None)), first=True)
    sender.send(StreamAbort(701, 702))
    sender.chunk(701, Truncate((T,), 0), Message(True, LSN(0x1000), "p", b"text"))
    sender.stream_commit(701)
    listening = Listening("test_decoding", STREAMED, ("stream-changes", "1"))
    assert listening.hear(sender) == [
        "opening a streamed block for transaction TXN 701",
        "streaming change for TXN 701",
        "streaming change for TXN 701",
        "closing a streamed block for transaction TXN 701",
        "aborting streamed (sub)transaction TXN 702",
        "opening a streamed block for transaction TXN 701",
        "streaming truncate for TXN 701",
        "streaming message: transactional: 1 prefix: p, sz: 4",
        "closing a streamed block for transaction TXN 701",
        "committing streamed transaction TXN 701",
    ]
    assert len(listening.decoder.buffer) == 0


# -- two-phase commit


def test_a_prepared_transaction_comes_at_its_prepare() -> None:
    sender = Walsender(TWO_PHASE)
    sender.prepared(701, "it's", relation(), *rows(1))
    sender.commit_prepared(701, "it's")
    sender.rollback_prepared(702, "b")
    prepared = ["BEGIN 701", *inserted(1), "PREPARE TRANSACTION 'it''s', txid 701"]
    ends = ["COMMIT PREPARED 'it''s', txid 701", "ROLLBACK PREPARED 'b', txid 702"]
    assert Listening("test_decoding", TWO_PHASE).hear(sender) == [*prepared, *ends]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_filtered_one_comes_at_commit_prepared_and_holds_the_slot(streamed: bool) -> None:
    sender, listening = Walsender(TWO_PHASE), Listening("test_decoding", TWO_PHASE)
    if streamed:
        sender.chunk(701, relation(), *rows(1), first=True)
        prepare_lsn = sender.lsn
        sender.stream_prepare(701, "x_nodecode")
    else:
        prepare_lsn = LSN(sender.lsn + 8 * 3)
        sender.prepared(701, "x_nodecode", relation(), *rows(1))
    assert listening.hear(sender) == []
    assert listening.decoder.hold_lsn == prepare_lsn
    sender.transaction(702, *rows(2))
    sender.commit_prepared(701, "x_nodecode")
    assert listening.hear(sender)[3:] == ["BEGIN 701", *inserted(1), "COMMIT 701"]
    assert listening.decoder.hold_lsn is None


def test_a_filtered_one_that_is_rolled_back_was_never_there() -> None:
    sender, listening = Walsender(TWO_PHASE), Listening("test_decoding", TWO_PHASE)
    sender.prepared(701, "x_nodecode", relation(), *rows(1))
    sender.rollback_prepared(701, "x_nodecode")
    assert listening.hear(sender) == []
    assert listening.decoder.hold_lsn is None
    assert len(listening.decoder.buffer) == 0


def test_a_streamed_one_is_prepared_in_one_piece_for_a_plugin_that_does_not_stream() -> None:
    sender = Walsender(TWO_PHASE)
    sender.chunk(701, relation(), *rows(1), first=True)
    sender.stream_prepare(701, "a")
    lines = Listening("test_decoding", TWO_PHASE).hear(sender)
    assert lines == ["BEGIN 701", *inserted(1), "PREPARE TRANSACTION 'a', txid 701"]


@pytest.mark.parametrize("gid, ends", [("a", "preparing streamed transaction TXN 'a', txid 701"), ("x_nodecode", None)])
def test_a_streaming_plugin_is_told_of_the_prepare_unless_it_filters_it(gid: str, ends: str | None) -> None:
    sender, listening = Walsender(TWO_PHASE), Listening("test_decoding", TWO_PHASE, ("stream-changes", "1"))
    sender.chunk(701, relation(), *rows(1), first=True)
    sender.stream_prepare(701, gid)
    assert listening.hear(sender)[3:] == ([ends] if ends else [])
    assert (listening.decoder.hold_lsn is None) is (ends is not None)
    sender.commit_prepared(701, gid)
    last = "committing streamed transaction TXN 701" if ends is None else f"COMMIT PREPARED '{gid}', txid 701"
    assert listening.hear(sender)[-1] == last


# -- origins


@pytest.mark.parametrize("streaming", ["0", "1"])
def test_what_came_from_elsewhere_is_filtered_whole(streaming: str) -> None:
    options = (("only-local", "1"), ("stream-changes", streaming))
    sender, listening = Walsender(TWO_PHASE), Listening("test_decoding", TWO_PHASE, *options)
    origin = Origin(LSN(5), "elsewhere")
    sender.transaction(701, origin, relation(), *rows(1))
    sender.chunk(702, origin, *rows(2), first=True)
    sender.chunk(702, *rows(3))
    sender.stream_commit(702)
    sender.prepared(703, "a", origin, *rows(4))
    sender.commit_prepared(703, "a")
    assert listening.hear(sender) == []
    sender.transaction(704, *rows(5))
    assert listening.hear(sender) == ["BEGIN 704", *inserted(5), "COMMIT 704"]


# -- after a lost connection


def test_what_had_come_whole_is_passed_over_when_it_comes_again() -> None:
    sender, listening = Walsender(TWO_PHASE), Listening("test_decoding", TWO_PHASE)
    sender.transaction(701, relation(), *rows(1))
    sender.prepared(702, "a", *rows(2))
    sender.prepared(703, "x_nodecode", *rows(3))
    sender.chunk(704, *rows(4), first=True)
    sender.stream_commit(704)
    again = list(sender.sent)
    before = list(listening.hear(sender))
    listening.decoder.begin_stream()
    sender.sent.extend(again)
    assert listening.hear(sender) == before
    sender.commit_prepared(703, "x_nodecode")
    assert listening.hear(sender)[len(before) :] == ["BEGIN 703", *inserted(3), "COMMIT 703"]


def test_a_commit_record_may_begin_where_a_message_ends() -> None:
    """A message's LSN is the end of its record, and the end of the slot's last word may be that."""
    sender, listening = Walsender(STREAMED), Listening("test_decoding", STREAMED)
    record_end = LSN(sender.lsn + 32)
    sender.send(Message(False, record_end, "p", b"now"))
    sender.transaction(701, relation(), *rows(1))
    assert read_message(sender.sent[1][1]) == Begin(record_end, 0, 701)
    lines = ["message: transactional: 0 prefix: p, sz: 3 content:now", "BEGIN 701", *inserted(1), "COMMIT 701"]
    again = list(sender.sent)
    assert listening.hear(sender) == lines
    listening.decoder.begin_stream()
    sender.sent.extend(again)
    assert listening.hear(sender) == lines


def test_what_was_cut_in_two_comes_again_whole() -> None:
    sender, listening = Walsender(STREAMED), Listening("test_decoding", STREAMED)
    sender.chunk(701, relation(), *rows(1), first=True)
    first = list(sender.sent)
    listening.hear(sender)
    listening.decoder.begin_stream()
    again = Walsender(STREAMED)
    again.chunk(701, relation(), *rows(1), first=True)
    again.stream_commit(701)
    assert again.sent[: len(first)] == first
    assert listening.hear(again) == ["BEGIN 701", *inserted(1), "COMMIT 701"]


# -- what no walsender sends, and what no disk takes


def test_an_end_without_a_beginning_is_refused() -> None:
    sender = Walsender(STREAMED)
    sender.stream_commit(701)
    with pytest.raises(ProtocolError, match="never began"):
        Listening("test_decoding", STREAMED).hear(sender)
    sender = Walsender(STREAMED)
    sender.chunk(701, first=False)
    with pytest.raises(ProtocolError, match="never began"):
        Listening("test_decoding", STREAMED).hear(sender)


def test_an_abort_of_what_never_came_is_passed_over() -> None:
    """18 sends it at protocol version 1 too (session.py)."""
    payload = b"A" + (701).to_bytes(4, "big") * 2
    for options in (ONE_PIECE, STREAMED):
        Listening("test_decoding", options).decoder.receive(LSN(1), payload)


@pytest.mark.parametrize("cut", range(1, 30))
def test_a_row_that_is_cut_short_is_refused(cut: int) -> None:
    sender, listening = Walsender(ONE_PIECE), Listening("test_decoding", ONE_PIECE)
    sender.transaction(701, relation(), insert(1, "text"))
    begin, announced, (lsn, payload), _ = sender.sent
    for before in (begin, announced):
        listening.decoder.receive(*before)
    with pytest.raises(ProtocolError) as refused:
        listening.decoder.receive(lsn, payload[: len(payload) - cut])
    assert refused.value.lsn == lsn


def test_commit_prepared_of_changes_that_went_elsewhere_is_never_lost_in_silence() -> None:
    from tests.decoding.test_contract import Least

    sender = Walsender(TWO_PHASE)
    sender.commit_prepared(701, "a")
    with pytest.raises(PluginError, match="two-phase"):
        Listening(Least(), TWO_PHASE).hear(sender)


def test_spilled_transactions_leave_no_file_behind(tmp_path: Path) -> None:
    buffer = ReorderBuffer(100, tmp_path)
    for xid in (1, 2, 3):
        buffer.begin(xid)
    for number in range(50):
        buffer.append(1 + number % 3, number, 1, 0, b"x" * 40)
        assert buffer.memory <= 100
    assert buffer.spilled_bytes > 2000
    assert [held.lsn for held in buffer.replay(2)] == list(range(1, 50, 3))
    buffer.forget(1)
    assert len(list(tmp_path.glob("*/*"))) == 2
    buffer.clear()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_spilled_is_removed_by_the_next(tmp_path: Path) -> None:
    spilling = (
        "import os, sys; from wal2lake.decoding.reorderbuffer import ReorderBuffer; b = ReorderBuffer(1, sys.argv[1]);"
        "b.begin(1); b.append(1, 1, 1, 0, b'x'); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", spilling, str(tmp_path)], check=False).returncode == -9
    (left,) = tmp_path.iterdir()
    buffers = [ReorderBuffer(1, tmp_path) for _ in range(2)]
    for buffer in buffers:
        buffer.begin(1)
        buffer.append(1, 1, 1, 0, b"x")
    assert not left.exists()
    assert len(list(tmp_path.iterdir())) == 2  # what is in use stays
    for buffer in buffers:
        assert [held.payload for held in buffer.replay(1)] == [b"x"]
        buffer.clear()


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    buffer = ReorderBuffer(1, tmp_path / "absent")
    buffer.begin(1)
    with pytest.raises(ConfigError, match="cannot be written"):
        buffer.append(1, 1, 1, 0, b"x")


def test_stream_stop_alone_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError):
        Listening("test_decoding", STREAMED).decoder.receive(LSN(1), StreamStop.tag)


def test_many_at_once_stay_under_the_limit() -> None:
    """The short form of `python -m bench spill`: a thousand transactions, chunk by chunk."""
    sender, expected = Walsender(STREAMED), []
    sender.transaction(1, relation())
    for turn in range(3):
        for xid in range(1000, 2000):
            sender.chunk(xid, *rows(3 * xid + turn), first=turn == 0)
    listening = Listening("test_decoding", STREAMED, memory=20_000)
    listening.hear(sender)
    assert len(listening.decoder.buffer) == 1000
    assert listening.decoder.buffer.memory <= 20_000 < listening.decoder.buffer.spilled_bytes
    for xid in reversed(range(1000, 2000)):
        sender.stream_commit(xid)
        expected += [f"BEGIN {xid}", *inserted(*(3 * xid + turn for turn in range(3))), f"COMMIT {xid}"]
    assert listening.hear(sender)[2:] == expected
    assert len(listening.decoder.buffer) == 0
