"""An exchange with the server is a generator that yields what it waits for; here it is driven, and nothing else waits.

Exchanges know no thread and no event loop, so each is written once. A driver resumes one when the socket is ready or
the moment has come: ``wait`` blocks in poll, so that Ctrl-C works; ``wait_async`` leaves the loop to others; the
stream's thread (read_ahead.py) is one more, which can be woken. An exchange that is resumed for nothing waits again.

Source: psycopg's generators and waiting modules, whose Wait and Ready these are.
"""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Callable, Generator
from typing import Final, NamedTuple, TypeVar

from psycopg.waiting import Ready, Wait

T = TypeVar("T")
_TICK_S = 1.0
_READABLE: Final = ~select.POLLOUT  # an error or a hang-up shows in the next read


class Waiting(NamedTuple):
    """What an exchange waits for: ``wait`` (Wait.R, W, RW, or 0: no socket) or the moment ``until`` (time.monotonic();
    None: as long as it takes). ``flowing``: data came just now, and whoever drives may wait for a good piece more."""

    wait: int
    until: float | None = None
    flowing: bool = False

    def seconds(self, most: float) -> float:
        """How long to wait from now, ``most`` at the longest."""
        return most if self.until is None else max(0.0, min(most, self.until - time.monotonic()))


Exchange = Generator[Waiting, int, T]


def drive(exchange: Exchange[T], ready: Callable[[Waiting], int]) -> T:
    """Run ``exchange`` to its end; ``ready`` waits, and says what is ready (Ready; 0: nothing)."""
    try:
        waiting = next(exchange)
        while True:
            waiting = exchange.send(ready(waiting))
    except StopIteration as end:
        result: T = end.value
        return result


def wait(exchange: Exchange[T], fileno: int, while_waiting: Callable[[], None] | None = None) -> T:
    """Run ``exchange`` over the socket ``fileno``; ``while_waiting`` is called about once a second meanwhile, and what
    it raises ends the waiting."""

    def ready(waiting: Waiting) -> int:
        found = poll_once(fileno, waiting, _TICK_S)
        if not found and while_waiting is not None:
            while_waiting()
        return found

    return drive(exchange, ready)


def poll_once(fileno: int, waiting: Waiting, most_s: float) -> int:
    """Wait once, up to ``most_s``; what is ready."""
    poll = select.poll()
    if waiting.wait:
        events = (select.POLLIN if waiting.wait & Wait.R else 0) | (select.POLLOUT if waiting.wait & Wait.W else 0)
        poll.register(fileno, events)
    found = poll.poll(waiting.seconds(most_s) * 1000)
    return as_ready(found[0][1]) if found else Ready.NONE


def as_ready(events: int) -> int:
    """poll's events as psycopg's Ready."""
    return (Ready.R if events & _READABLE else 0) | (Ready.W if events & select.POLLOUT else 0)


async def wait_async(exchange: Exchange[T], fileno: int, while_waiting: Callable[[], None] | None = None) -> T:
    """wait for an event loop, which serves others meanwhile."""
    try:
        waiting = next(exchange)
        while True:
            ready = await _ready(fileno, waiting)
            if not ready and while_waiting is not None:
                while_waiting()
            waiting = exchange.send(ready)
    except StopIteration as end:
        result: T = end.value
        return result


async def _ready(fileno: int, waiting: Waiting) -> int:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[int] = loop.create_future()

    def wake(ready: int) -> None:
        if not future.done():
            future.set_result(ready)

    timer = loop.call_later(waiting.seconds(_TICK_S), wake, Ready.NONE)
    if waiting.wait & Wait.R:
        loop.add_reader(fileno, wake, Ready.R)
    if waiting.wait & Wait.W:
        loop.add_writer(fileno, wake, Ready.W)
    try:
        return await future
    finally:
        timer.cancel()
        loop.remove_reader(fileno)
        loop.remove_writer(fileno)
