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
    Execute,
    Flush,
    NoticeResponse,
    ParameterStatus,
    Parse,
    ParseComplete,
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
PARSE, EXECUTE, SYNC = Parse("", "", ()), Execute("", 0), Sync()
MESSAGES: tuple[WireMessage, ...] = (
    IN, OUT, BOTH, DATA, DONE, FAIL, ERROR, NOTICE, STATUS, COMPLETE, READY, QUERY, PARSE, EXECUTE, Flush(), SYNC,
    ParseComplete(), Terminate(),
)  # fmt: skip
TAKE, IGNORE, DROP, ABORT = Action

Script = Sequence[tuple[Side, WireMessage, Action]]


def run(script: Script) -> CopyState:
    machine = CopyMachine()
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


ASKED: list[tuple[Side, WireMessage, Action]] = [(F, QUERY, TAKE)]
EXECUTED: list[tuple[Side, WireMessage, Action]] = [(F, EXECUTE, TAKE)]


def test_in_by_the_extended_protocol_discards_until_sync() -> None:
    script = [*EXECUTED, (B, IN, TAKE), (B, ERROR, TAKE), (F, DATA, DROP), (F, DONE, DROP), (F, QUERY, DROP),
              (F, Flush(), DROP), (F, SYNC, TAKE), (B, READY, TAKE)]  # fmt: skip
    assert run(script) is CopyState.NONE


@pytest.mark.parametrize("asked", [ASKED, EXECUTED])
def test_a_sync_may_follow_the_end_of_a_copy_at_once(asked: Script) -> None:
    sent = [*asked, (B, IN, TAKE), (F, DATA, TAKE), (F, DONE, TAKE), (F, Flush(), TAKE), (F, SYNC, TAKE)]
    assert run([*sent, (B, COMPLETE, TAKE), (B, READY, TAKE)]) is CopyState.NONE
    assert run([*sent, (B, ERROR, TAKE)]) is CopyState.FAILED
    assert run([*asked, (B, IN, TAKE), (F, FAIL, TAKE), (F, SYNC, TAKE), (B, ERROR, TAKE)]) is CopyState.FAILED


@pytest.mark.parametrize("end", [DONE, FAIL])
def test_what_is_pipelined_behind_a_copy_by_query_counts_whatever_becomes_of_it(end: WireMessage) -> None:
    ended = [*ASKED, (B, IN, TAKE), (F, end, TAKE)]
    for message in (QUERY, PARSE, SYNC, Flush()):
        assert run([*ended, (F, message, TAKE), (F, DATA, DROP), (B, ERROR, TAKE)]) is CopyState.FAILED
        assert run([*ended, (B, ERROR, TAKE), (F, message, TAKE), (B, READY, TAKE)]) is CopyState.NONE


def test_what_is_pipelined_behind_a_copy_by_execute_counts_from_the_sync_on_if_it_fails() -> None:
    for end, action in ((DONE, TAKE), (FAIL, DROP)):
        sent = [*EXECUTED, (B, IN, TAKE), (F, end, TAKE), (F, QUERY, action), (F, DATA, DROP)]
        assert run([*sent, (B, ERROR, TAKE), (F, QUERY, DROP)]) is CopyState.DISCARDING
        assert run([*sent, (F, SYNC, TAKE), (F, QUERY, TAKE), (B, ERROR, TAKE), (F, QUERY, TAKE)]) is CopyState.FAILED
    taken = [*EXECUTED, (B, IN, TAKE), (F, DONE, TAKE), (F, EXECUTE, TAKE), (F, SYNC, TAKE), (B, COMPLETE, TAKE)]
    assert run([*taken, (B, ERROR, TAKE), (B, READY, TAKE)]) is CopyState.NONE


def test_each_copy_is_by_the_request_that_began_it() -> None:
    """A pipeline of both protocols: the answers come in the order of the requests, and so do their errors."""
    out = [(B, OUT, TAKE), (B, DATA, TAKE)]
    sent = [(F, QUERY, TAKE), (F, EXECUTE, TAKE), *out]
    assert run([*sent, (B, ERROR, TAKE)]) is CopyState.FAILED
    ended = [*sent, (B, DONE, TAKE), (B, COMPLETE, TAKE), (B, READY, TAKE), *out]
    assert run([*ended, (B, ERROR, TAKE)]) is CopyState.DISCARDING
    assert run([*ended, (F, SYNC, TAKE), (F, QUERY, TAKE), (B, ERROR, TAKE), (B, READY, TAKE)]) is CopyState.NONE


def test_two_syncs_under_way_end_two_errors() -> None:
    sent = [*EXECUTED, (B, IN, TAKE), (F, DONE, TAKE), (F, SYNC, TAKE), (F, EXECUTE, TAKE), (F, SYNC, TAKE)]
    assert run([*sent, (B, ERROR, TAKE), (B, READY, TAKE), (B, OUT, TAKE), (B, ERROR, TAKE)]) is CopyState.FAILED


def test_an_error_before_a_copy_discards_the_copys_request() -> None:
    failed = [(F, PARSE, TAKE), (F, EXECUTE, TAKE), (B, ERROR, TAKE), (F, QUERY, DROP), (F, SYNC, TAKE)]
    assert run([*failed, (B, READY, TAKE), (F, QUERY, TAKE), (B, OUT, TAKE), (B, ERROR, TAKE)]) is CopyState.FAILED


def test_requests_may_follow_while_the_backend_copies_out() -> None:
    for opening in ([*ASKED, (B, OUT, TAKE)], [*EXECUTED, (B, OUT, TAKE)], [*ASKED, (B, BOTH, TAKE), (F, DONE, TAKE)]):
        sent = [*opening, (F, QUERY, TAKE), (F, PARSE, TAKE), (F, SYNC, TAKE), (B, DATA, TAKE), (B, DONE, TAKE)]
        assert run([*sent, (F, QUERY, TAKE), (B, COMPLETE, TAKE)]) is CopyState.NONE


def test_copies_follow_each_other_within_a_command() -> None:
    """BASE_BACKUP before PostgreSQL 15."""
    copied = [(B, OUT, TAKE), (B, DATA, TAKE), (B, DONE, TAKE)]
    assert run([*ASKED, *copied, *copied, (B, COMPLETE, TAKE), (B, READY, TAKE)]) is CopyState.NONE


def test_an_error_may_be_followed_by_a_fatal_one() -> None:
    assert run([(B, IN, TAKE), (F, QUERY, ABORT), (B, ERROR, TAKE), (B, ERROR, TAKE)]) is CopyState.FAILED
    assert run([*EXECUTED, (B, IN, TAKE), (B, ERROR, TAKE), (B, ERROR, TAKE)]) is CopyState.DISCARDING


def test_a_sync_from_before_the_copy_counts_for_out_and_not_for_in() -> None:
    early = [*EXECUTED, (F, SYNC, TAKE)]
    assert run([*early, (B, OUT, TAKE), (B, ERROR, TAKE)]) is CopyState.FAILED
    assert run([*early, (B, IN, TAKE), (B, ERROR, TAKE)]) is CopyState.DISCARDING
    ended = [(F, SYNC, TAKE), (B, READY, TAKE), *EXECUTED]
    assert run([*ended, (B, OUT, TAKE), (B, ERROR, TAKE)]) is CopyState.DISCARDING


def test_what_was_asked_before_the_copy_is_read_within_it() -> None:
    for opening in (IN, BOTH):
        early = [*ASKED, (F, QUERY, TAKE), (B, opening, TAKE)]
        assert run(early) is CopyState.FAILING
        assert run([*early, (F, DATA, DROP), (B, ERROR, TAKE), (B, ERROR, TAKE)]) is CopyState.FAILED
    assert run([*ASKED, (F, SYNC, TAKE), (B, BOTH, TAKE)]) is CopyState.FAILING


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
        ([(B, BOTH, TAKE), (F, DONE, TAKE)], F, DONE),
        ([], B, DATA),
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


@given(st.lists(st.tuples(st.sampled_from(Side), st.sampled_from(MESSAGES)), max_size=30))
def test_any_conversation_is_followed_or_refused(said: list[tuple[Side, WireMessage]]) -> None:
    machine = CopyMachine()
    for side, message in said:
        try:
            machine.step(side, message)
        except ProtocolError:
            continue
    assert machine.state in CopyState
