"""A browser's connection: how long it may take over saying what it wants, and which one goes when there are too many.

The rule: whoever has connected and not said a whole request is owed nothing. It has REQUEST_S for that, and where MOST
connections are open, the one that has waited longest makes room for the next. So nobody who holds connections shuts
others out; that takes as many whole requests at once as are answered, and then a sentence says so.

uvicorn has a limit for all connections together, silent or not, and none for how long a request takes to come.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import h11
from starlette.responses import PlainTextResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S: Final = 10.0
MOST: Final = 200  # connections, and requests that are answered at once
_TOO_MANY = PlainTextResponse(
    f"The page is answering {MOST} requests and takes no more now: try again in a moment.\n",
    503,
    headers={"Connection": "close", "Retry-After": "1"},
)


class Connection(H11Protocol):
    """uvicorn's, told to end by a timer that runs while no whole request is in hand."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        while len(self.connections) >= MOST and (waiting := self._longest_waiting()) is not None:
            waiting.give_up()
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.app = self.config.loaded_app if len(self.tasks) < MOST else _TOO_MANY
        super().data_received(data)
        self._look_whether_whole()

    def on_response_complete(self) -> None:
        self._wait()
        super().on_response_complete()  # which may find that the next request has come already
        self._look_whether_whole()

    def give_up(self) -> None:
        """It goes at once, and is none of the open ones from now on."""
        self._wait_no_more()
        self.connections.discard(self)
        self.transport.abort()

    def _longest_waiting(self) -> Connection | None:
        waiting = [one for one in self.connections if isinstance(one, Connection) and one.timer is not None]
        return min(waiting, key=Connection._deadline, default=None)

    def _deadline(self) -> float:
        return self.timer.when() if self.timer else 0.0

    def _look_whether_whole(self) -> None:
        answered = self.cycle is None or self.cycle.response_complete
        if not answered and self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._wait_no_more()

    def _wait(self) -> None:
        if self.timer is None:
            self.timer = self.loop.call_later(REQUEST_S, self._waited)

    def _waited(self) -> None:
        self.timer = None
        if self.transport.get_write_buffer_size():  # an answer is still under way, to somebody slow
            self._wait()
        else:
            self.give_up()

    def _wait_no_more(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
