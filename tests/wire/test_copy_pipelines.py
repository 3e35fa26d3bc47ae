"""CopyMachine at both ends of pipelines made up by hypothesis, against a backend that reads as PostgreSQL's does.

The frontend sends on without waiting for outcomes, save that it awaits the response to which it sends rows. The
backend is the model: postgres.c's loop, copyfromparse.c's within a COPY IN, walsender.c's within a COPY both ways. It
knows what it does with each message that it reads, and its machine must say so too; the frontend's is never surprised.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from wal2lake.wire.copy import Action, CopyMachine, CopyState, Side
from wal2lake.wire.messages import (
    BackendMessage,
    Bind,
    BindComplete,
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
    FrontendMessage,
    Parse,
    ParseComplete,
    Query,
    ReadyForQuery,
    Sync,
)

DATA, DONE, COMPLETE = CopyData(b""), CopyDone(), CommandComplete("")
ERROR, READY = ErrorResponse(()), ReadyForQuery("I")
COPY = CopyData, CopyDone, CopyFail
BEGINNINGS: dict[str, list[BackendMessage]] = {
    "in": [CopyInResponse(0, ())], "in fails": [CopyInResponse(0, ())], "both": [CopyBothResponse(0, ()), DATA],
}  # fmt: skip
ANSWERS: dict[str, list[BackendMessage]] = {
    "select": [COMPLETE], "fails": [ERROR], "out": [CopyOutResponse(0, ()), DATA, DONE, COMPLETE],
    "out fails": [CopyOutResponse(0, ()), DATA, ERROR],
}  # fmt: skip


class Backend:
    """Reads what was sent, in order, and answers. A message out of place in a COPY IN is fatal since PostgreSQL 14."""

    def __init__(self, *, version: int) -> None:
        self.sent: deque[FrontendMessage] = deque()
        self.answers: deque[BackendMessage] = deque()
        self.machine = CopyMachine()
        self.dead = False
        self._version = version
        self._discards = False  # until Sync
        self._copy = ""
        self._extended = False

    def read(self) -> None:
        message = self.sent.popleft()
        action, answer = self._in_copy(message) if self._copy else self._in_loop(message)
        before = self.machine.state
        assert self.machine.step(Side.FRONTEND, message) is action, (before, message)
        for said in answer:
            self.machine.step(Side.BACKEND, said)
        self.answers += answer

    def _in_loop(self, message: FrontendMessage) -> tuple[Action, list[BackendMessage]]:
        if isinstance(message, Sync):
            self._discards = False
            return Action.TAKE, [READY]
        if self._discards or isinstance(message, COPY):
            return Action.DROP, []
        if isinstance(message, Query | Execute):
            self._extended = isinstance(message, Execute)
            asked = message.portal if isinstance(message, Execute) else message.query
            self._copy = asked if asked in BEGINNINGS else ""
            return Action.TAKE, BEGINNINGS.get(asked) or self._ended(ANSWERS[asked])
        answers: dict[type[FrontendMessage], list[BackendMessage]] = {Parse: [ParseComplete()], Bind: [BindComplete()]}
        return Action.TAKE, answers.get(type(message), [])

    def _in_copy(self, message: FrontendMessage) -> tuple[Action, list[BackendMessage]]:
        if isinstance(message, COPY[:2] if self._copy == "both" else COPY):
            fails = self._copy == "in fails" or isinstance(message, CopyFail)
            if not fails and isinstance(message, CopyData):
                return Action.TAKE, []
            return Action.TAKE, self._ended([ERROR] if fails else [*[DONE] * (self._copy == "both"), COMPLETE])
        if isinstance(message, Flush | Sync) and self._copy != "both":
            return Action.IGNORE, []
        if self._copy != "both" and self._version < 14:
            return Action.ABORT, self._ended([ERROR])
        self.dead = True
        return Action.ABORT, [ERROR] if self._copy == "both" else [ERROR, ERROR]

    def _ended(self, answer: list[BackendMessage]) -> list[BackendMessage]:
        self._copy = ""
        self._discards = self._extended and answer[-1] is ERROR
        return answer if self._extended else [*answer, READY]


class Asked(NamedTuple):
    """One request of the frontend's, and what it sends around it."""

    what: str
    extended: bool
    early: FrontendMessage | None  # before it can know the response
    end: FrontendMessage  # of the rows that it sends
    late: FrontendMessage | None  # at once behind all that


def requests() -> st.SearchStrategy[Asked]:
    what = st.sampled_from([*BEGINNINGS, *ANSWERS])
    other = st.sampled_from([None, Sync(), Flush(), Query("select")])
    # a walsender's COPY both ways is begun by Query, and has no CopyFail
    asked = st.builds(Asked, what, st.booleans(), other, st.sampled_from([DONE, CopyFail("")]), other)
    return asked.filter(lambda it: it.what != "both" or (not it.extended and it.end is DONE))


class Frontend:
    """Sends the requests one after another; its machine hears of each message as it is sent or received."""

    def __init__(self, asked: list[Asked], backend: Backend) -> None:
        self.machine = CopyMachine()
        self.over = False
        self._backend = backend
        self._script = self._messages(asked)

    def _messages(self, asked: list[Asked]) -> Iterator[FrontendMessage | None]:
        """None: what comes next depends on the answer."""
        for one in asked:
            yield from (Parse("", "", ()), Bind("", "", (), (), ())) if one.extended else ()
            yield Execute(one.what, 0) if one.extended else Query(one.what)
            if one.early is not None:
                yield one.early
            if one.what in BEGINNINGS:
                yield None
                if self.machine.state in (CopyState.IN, CopyState.BOTH):
                    yield from (DATA, one.end)
            if one.late is not None:
                yield one.late
        yield Sync()

    def send(self) -> None:
        message = next(self._script, self)
        if message is self:
            self.over = True
        elif isinstance(message, FrontendMessage):
            self.machine.step(Side.FRONTEND, message)
            self._backend.sent.append(message)
        else:
            settle(self, self._backend)

    def receive(self) -> None:
        self.machine.step(Side.BACKEND, self._backend.answers.popleft())


def settle(frontend: Frontend, backend: Backend) -> None:
    """Until all that was sent is read, and all that was answered received."""
    while backend.answers or (backend.sent and not backend.dead):
        if backend.answers:
            frontend.receive()
        else:
            backend.read()


@given(st.lists(requests(), max_size=6), st.lists(st.sampled_from("srra"), max_size=60), st.sampled_from([13, 18]))
def test_both_ends_follow_whatever_is_pipelined(asked: list[Asked], turns: list[str], version: int) -> None:
    backend = Backend(version=version)
    frontend = Frontend(asked, backend)
    for turn in turns:
        if turn == "s":
            frontend.send()
        elif turn == "r" and backend.sent and not backend.dead:
            backend.read()
        elif turn == "a" and backend.answers:
            frontend.receive()
    while not frontend.over and not backend.dead:
        frontend.send()
    settle(frontend, backend)
    if backend.dead:
        assert frontend.machine.state in (CopyState.FAILED, CopyState.DISCARDING)
    else:
        assert frontend.machine.state is backend.machine.state is CopyState.NONE
