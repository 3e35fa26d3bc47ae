"""COPY in, out and both as one table: who may send what in which state, what becomes of it, and the state after.

Both ends keep the same machine and tell it what they send and receive, each in the order in which it does. The two
orders differ only in what is under way: CopyData that crosses an ErrorResponse was legal to send, and is dropped.
Dropped is also the keepalive that every logical walsender sends once more after its own CopyDone; libpq does the same.

The frontend need not wait for an answer. Whatever it asks behind its own part of a COPY, or while the backend copies
out, stays unread until the COPY is over; the machine keeps such requests in order, for two questions that the COPY's
own messages don't answer: was it begun by Query or by Execute, and is the Sync under way that ends an error's damage?

Source: PostgreSQL documentation, "COPY Operations", "Extended Query" and "Pipelining"; src/backend/commands/
copyfromparse.c (CopyGetData), src/backend/replication/walsender.c (ProcessRepliesIfAny), src/backend/tcop/postgres.c
(SocketBackend, PostgresMain).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import Enum, auto
from typing import Final, NamedTuple

from wal2lake.errors import ProtocolError
from wal2lake.wire.messages import (
    BackendMessage,
    Bind,
    BindComplete,
    Close,
    CloseComplete,
    CommandComplete,
    CopyBothResponse,
    CopyData,
    CopyDone,
    CopyFail,
    CopyInResponse,
    CopyOutResponse,
    Describe,
    EmptyQueryResponse,
    ErrorResponse,
    Execute,
    Flush,
    FrontendMessage,
    FunctionCall,
    NoData,
    NoticeResponse,
    NotificationResponse,
    ParameterStatus,
    Parse,
    ParseComplete,
    PortalSuspended,
    Query,
    ReadyForQuery,
    RowDescription,
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

    TAKE = auto()  # it counts; behind a COPY of the extended protocol, unless that fails
    IGNORE = auto()  # it is legal and means nothing here
    DROP = auto()  # it belongs to a COPY that is over, or stands before the awaited Sync
    ABORT = auto()  # it breaks the COPY: the backend answers ErrorResponse


class Row(NamedTuple):
    """In ``state``, a message of ``messages`` from ``side``: ``action``, then ``then``. No messages: any other.

    CopyData, CopyDone and CopyFail are never among the others: where no row names them they are refused."""

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
    Row(_S.OUT, F, (), _A.TAKE, _S.OUT),
    Row(_S.OUT, B, (CopyData,), _A.TAKE, _S.OUT),
    Row(_S.OUT, B, (CopyDone,), _A.TAKE, _S.DONE),
    Row(_S.BOTH, F, (CopyData,), _A.TAKE, _S.BOTH),
    Row(_S.BOTH, F, (CopyDone,), _A.TAKE, _S.BOTH_OUT),
    Row(_S.BOTH, F, (CopyFail,), _A.ABORT, _S.FAILING),
    Row(_S.BOTH, F, (), _A.ABORT, _S.FAILING),
    Row(_S.BOTH, B, (CopyData,), _A.TAKE, _S.BOTH),
    Row(_S.BOTH, B, (CopyDone,), _A.TAKE, _S.BOTH_IN),
    Row(_S.BOTH_OUT, F, (), _A.TAKE, _S.BOTH_OUT),
    Row(_S.BOTH_OUT, B, (CopyData,), _A.TAKE, _S.BOTH_OUT),
    Row(_S.BOTH_OUT, B, (CopyDone,), _A.TAKE, _S.DONE),
    Row(_S.BOTH_IN, B, (CopyData,), _A.DROP, _S.BOTH_IN),
    Row(_S.BOTH_IN, F, (CopyData,), _A.TAKE, _S.BOTH_IN),
    Row(_S.BOTH_IN, F, (CopyDone,), _A.TAKE, _S.DONE),
    Row(_S.BOTH_IN, F, (CopyFail,), _A.ABORT, _S.FAILING),
    Row(_S.BOTH_IN, F, (), _A.ABORT, _S.FAILING),
    Row(_S.DONE, F, _COPY, _A.DROP, _S.DONE),
    Row(_S.DONE, F, (), _A.TAKE, _S.DONE),
    Row(_S.DONE, B, (CopyData,), _A.DROP, _S.DONE),
    # BASE_BACKUP to PostgreSQL 14: one COPY after another, and a single CommandComplete behind the last
    Row(_S.DONE, B, (CopyOutResponse,), _A.TAKE, _S.OUT),
    Row(_S.DONE, B, (CommandComplete,), _A.TAKE, _S.NONE),
    Row(_S.DONE, B, (), _A.TAKE, _S.DONE),
    Row(_S.FAILING, F, _COPY, _A.DROP, _S.FAILING),
    Row(_S.FAILING, F, (), _A.TAKE, _S.FAILING),
    Row(_S.FAILING, B, (CopyData, CopyDone), _A.DROP, _S.FAILING),  # of a COPY both ways, sent before it was broken
    Row(_S.FAILED, F, _COPY, _A.DROP, _S.FAILED),
    Row(_S.FAILED, F, (), _A.TAKE, _S.FAILED),
    Row(_S.FAILED, B, (ReadyForQuery,), _A.TAKE, _S.NONE),
    # an ERROR may be followed by a FATAL one: a Query inside a COPY IN has lost its place in the protocol
    Row(_S.FAILED, B, (ErrorResponse,), _A.TAKE, _S.FAILED),
    Row(_S.DISCARDING, B, (ErrorResponse,), _A.TAKE, _S.DISCARDING),
    Row(_S.DISCARDING, F, (Sync,), _A.TAKE, _S.FAILED),
    Row(_S.DISCARDING, F, _COPY, _A.DROP, _S.DISCARDING),
    Row(_S.DISCARDING, F, (), _A.DROP, _S.DISCARDING),
)

# What holds instead in the extended protocol while no Sync is under way: after an error all is discarded until one.
UNSYNCED: Final[tuple[Row, ...]] = (
    Row(_S.NONE, B, (ErrorResponse,), _A.TAKE, _S.DISCARDING),
    Row(_S.FAILING, F, (Sync,), _A.TAKE, _S.FAILING),
    Row(_S.FAILING, F, (), _A.DROP, _S.FAILING),
)
_Steps = dict[tuple[CopyState, Side, type[WireMessage] | None], tuple[Action, CopyState]]
_OPEN: Final = (_S.IN, _S.OUT, _S.BOTH, _S.BOTH_OUT, _S.BOTH_IN, _S.DONE, _S.FAILING)
# What ends the answer to each request. The first two stand for themselves; the others are the extended protocol's.
_ENDS: Final[dict[type[WireMessage], tuple[type[WireMessage], ...]]] = {
    Query: (ReadyForQuery,),
    FunctionCall: (ReadyForQuery,),
    Parse: (ParseComplete,),
    Bind: (BindComplete,),
    Describe: (RowDescription, NoData),
    Execute: (CommandComplete, EmptyQueryResponse, PortalSuspended),
    Close: (CloseComplete,),
    Sync: (ReadyForQuery,),
}
_SIMPLE: Final = (Query, FunctionCall)


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


_STEPS: Final = _expand(TABLE, _S.FAILED)
_UNSYNCED_STEPS: Final = _expand((*TABLE, *UNSYNCED), _S.DISCARDING)


class CopyMachine:
    """One connection's COPY state, at either end."""

    def __init__(self) -> None:
        self.state = CopyState.NONE
        self._asked: deque[type[WireMessage]] = deque()  # the requests whose answers have not ended, oldest first
        self._syncs = 0  # how many of them are Sync

    def step(self, side: Side, message: WireMessage) -> Action:
        """Tell that ``side`` sent ``message``; raise ProtocolError when it may not, leaving the state as it is."""
        kind = type(message)
        action = self._move(side, kind) if isinstance(message, side.value) else None
        if action is None:
            problem = f"The {side.name.lower()} cannot send {kind.__name__} in COPY state {self.state.name}."
            raise ProtocolError(problem, offset=0)
        if side is B:
            self._answered(kind)
        return action

    def _move(self, side: Side, kind: type[WireMessage]) -> Action | None:
        unsynced = not self._syncs and self._asked and self._asked[0] not in _SIMPLE
        steps = _UNSYNCED_STEPS if unsynced else _STEPS
        found = steps.get((self.state, side, kind))
        if found is None and kind not in _COPY:
            found = steps.get((self.state, side, None))
        if found is None:
            return None
        action, self.state = found
        if side is F and action is Action.TAKE and kind in _ENDS:
            self._asked.append(kind)
            self._syncs += kind is Sync
        return action

    def _answered(self, kind: type[WireMessage]) -> None:
        """Take from the requests what ``kind`` answers."""
        asked = self._asked
        if not asked:
            return
        if kind in (CopyInResponse, CopyBothResponse) and self.state in (CopyState.IN, CopyState.BOTH):
            # what was sent ahead of the response is read within the COPY: a Sync is ignored, a Query breaks it
            ahead = [asked.pop() for _ in range(len(asked) - 1)]
            self._syncs = int(asked[0] is Sync)
            for early in reversed(ahead):
                self._move(F, early)
        elif kind is ErrorResponse and asked[0] not in _SIMPLE:
            while asked and asked[0] is not Sync:
                asked.popleft()
        elif kind in _ENDS[asked[0]]:
            self._syncs -= asked.popleft() is Sync
