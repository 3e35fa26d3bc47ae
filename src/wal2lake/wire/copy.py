"""COPY in, out and both as one table: who may send what in which state, what becomes of it, and the state after.

Both ends keep the same machine and tell it what they send and receive, each in the order in which it does. The two
orders differ only in what is under way: CopyData that crosses an ErrorResponse was legal to send, and is dropped.
Dropped is also the keepalive that every logical walsender sends once more after its own CopyDone; libpq does the same.

Source: PostgreSQL documentation, "COPY Operations" and "Extended Query"; src/backend/commands/copyfromparse.c
(CopyGetData), src/backend/replication/walsender.c (ProcessRepliesIfAny), src/backend/tcop/postgres.c (PostgresMain).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import Final, NamedTuple

from wal2lake.errors import ProtocolError
from wal2lake.wire.messages import (
    BackendMessage,
    CommandComplete,
    CopyBothResponse,
    CopyData,
    CopyDone,
    CopyFail,
    CopyInResponse,
    CopyOutResponse,
    ErrorResponse,
    Flush,
    FrontendMessage,
    NoticeResponse,
    NotificationResponse,
    ParameterStatus,
    ReadyForQuery,
    Sync,
    Terminate,
    WireMessage,
)


class CopyState(Enum):
    """Where a connection stands with respect to COPY."""

    NONE = auto()  # no COPY; what else happens here is the query's own matter
    IN = auto()  # the frontend sends
    OUT = auto()  # the backend sends
    BOTH = auto()  # both send
    BOTH_OUT = auto()  # half closed: the frontend is done, the backend still sends
    BOTH_IN = auto()  # half closed: the backend is done, the frontend still sends
    DONE = auto()  # all is sent; results and CommandComplete follow
    FAILING = auto()  # the frontend broke it off; the ErrorResponse must come
    FAILED = auto()  # after ErrorResponse, until ReadyForQuery
    DISCARDING = auto()  # the same in the extended protocol: everything is discarded until Sync
    CLOSED = auto()  # Terminate was sent


class Side(Enum):
    """Who sends a message."""

    FRONTEND = FrontendMessage
    BACKEND = BackendMessage


class Action(Enum):
    """What the receiver does with a message."""

    TAKE = auto()  # it counts
    IGNORE = auto()  # it is legal and means nothing here
    DROP = auto()  # it belongs to a COPY that is over, or stands before the awaited Sync
    ABORT = auto()  # it breaks the COPY: the backend answers ErrorResponse


class Row(NamedTuple):
    """In ``state``, a message of ``messages`` from ``side``: ``action``, then ``then``. No messages: any other."""

    state: CopyState
    side: Side
    messages: tuple[type[WireMessage], ...]
    action: Action
    then: CopyState


F, B = Side.FRONTEND, Side.BACKEND
_S, _A = CopyState, Action
_COPY: Final = (CopyData, CopyDone, CopyFail)
_ANYTIME: Final = (NoticeResponse, ParameterStatus, NotificationResponse)

TABLE: Final[tuple[Row, ...]] = (
    Row(_S.NONE, B, (CopyInResponse,), _A.TAKE, _S.IN),
    Row(_S.NONE, B, (CopyOutResponse,), _A.TAKE, _S.OUT),
    Row(_S.NONE, B, (CopyBothResponse,), _A.TAKE, _S.BOTH),
    Row(_S.NONE, F, _COPY, _A.DROP, _S.NONE),
    Row(_S.NONE, F, (), _A.TAKE, _S.NONE),
    Row(_S.NONE, B, (), _A.TAKE, _S.NONE),
    Row(_S.IN, F, (CopyData,), _A.TAKE, _S.IN),
    Row(_S.IN, F, (CopyDone,), _A.TAKE, _S.DONE),
    Row(_S.IN, F, (CopyFail,), _A.TAKE, _S.FAILING),
    Row(_S.IN, F, (Flush, Sync), _A.IGNORE, _S.IN),
    Row(_S.IN, F, (), _A.ABORT, _S.FAILING),
    Row(_S.OUT, B, (CopyData,), _A.TAKE, _S.OUT),
    Row(_S.OUT, B, (CopyDone,), _A.TAKE, _S.DONE),
    Row(_S.BOTH, F, (CopyData,), _A.TAKE, _S.BOTH),
    Row(_S.BOTH, F, (CopyDone,), _A.TAKE, _S.BOTH_OUT),
    Row(_S.BOTH, F, (), _A.ABORT, _S.FAILING),
    Row(_S.BOTH, B, (CopyData,), _A.TAKE, _S.BOTH),
    Row(_S.BOTH, B, (CopyDone,), _A.TAKE, _S.BOTH_IN),
    Row(_S.BOTH_OUT, B, (CopyData,), _A.TAKE, _S.BOTH_OUT),
    Row(_S.BOTH_OUT, B, (CopyDone,), _A.TAKE, _S.DONE),
    Row(_S.BOTH_IN, B, (CopyData,), _A.DROP, _S.BOTH_IN),
    Row(_S.BOTH_IN, F, (CopyData,), _A.TAKE, _S.BOTH_IN),
    Row(_S.BOTH_IN, F, (CopyDone,), _A.TAKE, _S.DONE),
    Row(_S.BOTH_IN, F, (), _A.ABORT, _S.FAILING),
    Row(_S.DONE, B, (CopyData,), _A.DROP, _S.DONE),
    Row(_S.DONE, B, (CommandComplete,), _A.TAKE, _S.NONE),
    Row(_S.DONE, B, (), _A.TAKE, _S.DONE),
    Row(_S.FAILING, F, _COPY, _A.DROP, _S.FAILING),
    Row(_S.FAILED, F, _COPY, _A.DROP, _S.FAILED),
    Row(_S.FAILED, B, (ReadyForQuery,), _A.TAKE, _S.NONE),
    # an ERROR may be followed by a FATAL one: a Query inside a COPY IN has lost its place in the protocol
    Row(_S.FAILED, B, (ErrorResponse,), _A.TAKE, _S.FAILED),
    Row(_S.DISCARDING, B, (ErrorResponse,), _A.TAKE, _S.DISCARDING),
    Row(_S.DISCARDING, F, (Sync,), _A.TAKE, _S.FAILED),
    Row(_S.DISCARDING, F, (), _A.DROP, _S.DISCARDING),
)

# What the extended protocol adds: the frontend's Sync may stand anywhere behind its part of the COPY, and before it
# what is pipelined: the frontend cannot know yet whether the COPY fails, and all of it is discarded if so.
EXTENDED: Final[tuple[Row, ...]] = (
    *(Row(state, F, (Flush, Sync), _A.TAKE, state) for state in (_S.OUT, _S.DONE, _S.FAILING)),
    Row(_S.DONE, F, (), _A.TAKE, _S.DONE),
    Row(_S.DONE, F, _COPY, _A.DROP, _S.DONE),
    Row(_S.FAILING, F, (), _A.DROP, _S.FAILING),
)
_Steps = dict[tuple[CopyState, Side, type[WireMessage] | None], tuple[Action, CopyState]]
_OPEN: Final = (_S.IN, _S.OUT, _S.BOTH, _S.BOTH_OUT, _S.BOTH_IN, _S.DONE, _S.FAILING)


def _expand(rows: Iterable[Row], failed: CopyState) -> _Steps:
    """``rows`` by state, side and message, with those that hold in every state; ErrorResponse leads to ``failed``."""
    table: _Steps = {}
    for row in rows:
        for message in row.messages or (None,):
            table[row.state, row.side, message] = (row.action, row.then)
    for state in CopyState:
        table[state, F, Terminate] = (_A.TAKE, _S.CLOSED)
        for message in _ANYTIME:
            table[state, B, message] = (_A.TAKE, state)
    for state in _OPEN:
        table[state, B, ErrorResponse] = (_A.TAKE, failed)
    return table


_SIMPLE_STEPS: Final = _expand(TABLE, _S.FAILED)
_EXTENDED_STEPS: Final = _expand((*TABLE, *EXTENDED), _S.DISCARDING)


class CopyMachine:
    """One connection's COPY state, at either end; ``extended``: the COPY was begun by Execute, not by Query."""

    def __init__(self, *, extended: bool = False) -> None:
        self.state = CopyState.NONE
        self._table = _EXTENDED_STEPS if extended else _SIMPLE_STEPS
        self._synced = False  # a Sync is under way: an error need not wait for another

    def step(self, side: Side, message: WireMessage) -> Action:
        """Tell that ``side`` sent ``message``; raise ProtocolError when it may not, leaving the state as it is."""
        kind = type(message)
        found = self._table.get((self.state, side, kind)) or self._table.get((self.state, side, None))
        if found is None or not isinstance(message, side.value):
            problem = f"The {side.name.lower()} cannot send {kind.__name__} in COPY state {self.state.name}."
            raise ProtocolError(problem, offset=0)
        action, self.state = found
        # a Sync that was sent before the COPY IN began is read within it, and so ignored
        if kind is ReadyForQuery or self.state is CopyState.IN:
            self._synced = False
        elif kind is Sync and action is Action.TAKE:
            self._synced = True
        if self._synced and self.state is CopyState.DISCARDING:
            self.state = CopyState.FAILED
        return action
