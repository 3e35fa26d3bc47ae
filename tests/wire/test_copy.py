"""COPY conversations as the documentation tells them, and every pair of state and message against the table."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wal2lake.errors import ProtocolError
from wal2lake.wire.copy import Action, CopyMachine, CopyState, Side
from wal2lake.wire.messages import (
    CommandComplete,
    CopyBothResponse,
    CopyData,
    CopyDone,
    CopyFail,
    CopyInResponse,
    CopyOutResponse,
    ErrorResponse,
    Flush,
    NoticeResponse,
    ParameterStatus,
    Query,
    ReadyForQuery,
    RowDescription,
    Sync,
    Terminate,
    WireMessage,
)

F, B = Side.FRONTEND, Side.BACKEND
IN, OUT, BOTH = CopyInResponse(0, ()), CopyOutResponse(0, ()), CopyBothResponse(0, ())
DATA, DONE, FAIL = CopyData(b""), CopyDone(), CopyFail("")
ERROR, NOTICE, STATUS = ErrorResponse(()), NoticeResponse(()), ParameterStatus("a", "b")
COMPLETE, READY, QUERY = CommandComplete(""), ReadyForQuery("I"), Query("")
MESSAGES: tuple[WireMessage, ...] = (
    IN, OUT, BOTH, DATA, DONE, FAIL, ERROR, NOTICE, STATUS, COMPLETE, READY, QUERY, Flush(), Sync(), Terminate(),
)  # fmt: skip
TAKE, IGNORE, DROP, ABORT = Action

Script = Sequence[tuple[Side, WireMessage, Action]]


def run(script: Script, *, extended: bool = False) -> CopyState:
    machine = CopyMachine(extended=extended)
    for side, message, action in script:
        assert machine.step(side, message) is action, (machine.state, message)
    return machine.state


def test_in() -> None:
    script = [(B, IN, TAKE), (F, DATA, TAKE), (B, NOTICE, TAKE), (F, Flush(), IGNORE), (F, Sync(), IGNORE),
              (F, DATA, TAKE), (F, DONE, TAKE), (B, STATUS, TAKE), (B, COMPLETE, TAKE), (B, READY, TAKE)]  # fmt: skip
    assert run(script) is CopyState.NONE


def test_in_broken_off_by_the_frontend() -> None:
    script = [(B, IN, TAKE), (F, FAIL, TAKE), (F, DATA, DROP), (B, ERROR, TAKE), (F, DONE, DROP), (B, READY, TAKE)]
    assert run(script) is CopyState.NONE


def test_in_broken_off_by_the_backend_drops_what_is_under_way() -> None:
    script = [(B, IN, TAKE), (B, ERROR, TAKE), (F, DATA, DROP), (B, READY, TAKE), (F, DATA, DROP), (F, DONE, DROP)]
    assert run(script) is CopyState.NONE


def test_in_by_the_extended_protocol_discards_until_sync() -> None:
    script = [(B, IN, TAKE), (B, ERROR, TAKE), (F, DATA, DROP), (F, DONE, DROP), (F, QUERY, DROP), (F, Flush(), DROP),
              (F, Sync(), TAKE), (B, READY, TAKE)]  # fmt: skip
    assert run(script, extended=True) is CopyState.NONE


def test_the_extended_protocols_sync_follows_copy_done() -> None:
    sent = [(B, IN, TAKE), (F, DATA, TAKE), (F, DONE, TAKE), (F, Flush(), TAKE), (F, Sync(), TAKE)]
    assert run([*sent, (B, COMPLETE, TAKE), (B, READY, TAKE)], extended=True) is CopyState.NONE
    assert run([*sent, (B, ERROR, TAKE)], extended=True) is CopyState.FAILED
    assert run([(B, IN, TAKE), (F, FAIL, TAKE), (F, Sync(), TAKE), (B, ERROR, TAKE)], extended=True) is CopyState.FAILED
    with pytest.raises(ProtocolError):
        run(sent)


def test_what_is_pipelined_behind_the_end_of_a_copy() -> None:
    for end, action in ((DONE, TAKE), (FAIL, DROP)):
        sent = [(B, IN, TAKE), (F, end, TAKE), (F, QUERY, action), (F, DATA, DROP)]
        assert run([*sent, (B, ERROR, TAKE), (F, QUERY, DROP)], extended=True) is CopyState.DISCARDING
        assert run([*sent, (F, Sync(), TAKE), (B, ERROR, TAKE)], extended=True) is CopyState.FAILED
    taken = [(B, IN, TAKE), (F, DONE, TAKE), (F, QUERY, TAKE), (F, Sync(), TAKE), (B, COMPLETE, TAKE)]
    assert run([*taken, (B, READY, TAKE)], extended=True) is CopyState.NONE


def test_an_error_may_be_followed_by_a_fatal_one() -> None:
    assert run([(B, IN, TAKE), (F, QUERY, ABORT), (B, ERROR, TAKE), (B, ERROR, TAKE)]) is CopyState.FAILED
    broken = [(B, IN, TAKE), (B, ERROR, TAKE), (B, ERROR, TAKE)]
    assert run(broken, extended=True) is CopyState.DISCARDING


def test_a_sync_from_before_the_copy_counts_for_out_and_not_for_in() -> None:
    assert run([(F, Sync(), TAKE), (B, OUT, TAKE), (B, ERROR, TAKE)], extended=True) is CopyState.FAILED
    assert run([(F, Sync(), TAKE), (B, IN, TAKE), (B, ERROR, TAKE)], extended=True) is CopyState.DISCARDING
    ended = [(F, Sync(), TAKE), (B, READY, TAKE)]
    assert run([*ended, (B, OUT, TAKE), (B, ERROR, TAKE)], extended=True) is CopyState.DISCARDING


def test_in_aborted_by_a_message_that_is_no_copy_message() -> None:
    assert run([(B, IN, TAKE), (F, QUERY, ABORT), (B, ERROR, TAKE)]) is CopyState.FAILED


def test_out() -> None:
    script = [(B, OUT, TAKE), (B, DATA, TAKE), (B, STATUS, TAKE), (B, DONE, TAKE), (B, COMPLETE, TAKE)]
    assert run(script) is CopyState.NONE
    assert run([(B, OUT, TAKE), (B, DATA, TAKE), (B, ERROR, TAKE), (B, READY, TAKE)]) is CopyState.NONE


def test_both_closed_by_the_frontend_first() -> None:
    script = [(B, BOTH, TAKE), (B, DATA, TAKE), (F, DATA, TAKE), (F, DONE, TAKE), (B, DATA, TAKE), (B, NOTICE, TAKE),
              (B, DONE, TAKE), (B, COMPLETE, TAKE)]  # fmt: skip
    assert run(script) is CopyState.NONE


def test_both_closed_by_the_backend_at_the_end_of_a_timeline() -> None:
    script = [(B, BOTH, TAKE), (B, DATA, TAKE), (B, DONE, TAKE), (F, DATA, TAKE), (F, DONE, TAKE),
              (B, RowDescription(()), TAKE), (B, COMPLETE, TAKE), (B, COMPLETE, TAKE), (B, READY, TAKE)]  # fmt: skip
    assert run(script) is CopyState.NONE


def test_a_keepalive_after_the_backends_copy_done_is_dropped() -> None:
    assert run([(B, BOTH, TAKE), (B, DONE, TAKE), (B, DATA, DROP), (F, DONE, TAKE)]) is CopyState.DONE
    assert run([(B, BOTH, TAKE), (F, DONE, TAKE), (B, DONE, TAKE), (B, DATA, DROP)]) is CopyState.DONE


def test_both_ended_by_an_error() -> None:
    script = [(B, BOTH, TAKE), (B, ERROR, TAKE), (F, DATA, DROP), (B, READY, TAKE), (F, DONE, DROP)]
    assert run(script) is CopyState.NONE


def test_both_does_not_ignore_sync() -> None:
    assert run([(B, BOTH, TAKE), (F, Sync(), ABORT), (B, ERROR, TAKE)]) is CopyState.FAILED


def test_terminate_closes_everywhere() -> None:
    for opening in (IN, OUT, BOTH):
        assert run([(B, opening, TAKE), (F, Terminate(), TAKE)]) is CopyState.CLOSED


@pytest.mark.parametrize(
    ("script", "side", "message"),
    [
        ([(B, OUT, TAKE)], F, DATA),
        ([(B, IN, TAKE)], B, DATA),
        ([(B, IN, TAKE)], B, COMPLETE),
        ([(B, OUT, TAKE)], B, OUT),
        ([(B, BOTH, TAKE), (F, DONE, TAKE)], F, DATA),
        ([(B, BOTH, TAKE), (B, DONE, TAKE)], B, DONE),
        ([(B, IN, TAKE), (F, FAIL, TAKE)], B, COMPLETE),
        ([(F, Terminate(), TAKE)], F, QUERY),
        ([], F, IN),
        ([], B, QUERY),
    ],
)
def test_what_neither_end_may_do(script: Script, side: Side, message: WireMessage) -> None:
    machine = CopyMachine()
    for sender, earlier, _ in script:
        machine.step(sender, earlier)
    before = machine.state
    with pytest.raises(ProtocolError):
        machine.step(side, message)
    assert machine.state is before


@given(st.lists(st.tuples(st.sampled_from(Side), st.sampled_from(MESSAGES)), max_size=30), st.booleans())
def test_any_conversation_is_followed_or_refused(said: list[tuple[Side, WireMessage]], extended: bool) -> None:
    machine = CopyMachine(extended=extended)
    for side, message in said:
        try:
            machine.step(side, message)
        except ProtocolError:
            continue
    assert machine.state in CopyState
