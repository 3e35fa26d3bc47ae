"""A stream read to its end, in a thread of one's own and in an event loop: the tests of both are the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from wal2lake import Change, Commit, Event, connect
from wal2lake.client import Connecting
from wal2lake.testing.embedded import EmbeddedPostgres

Read = Callable[..., list[Event]]
NAME = "client"


def blocking(connecting: Connecting[Any], commits: int = 1, busy_s: float = 0, acknowledge: bool = True) -> list[Any]:
    """Read up to so many Commits, computing for a while at each; every one is acknowledged."""
    seen = []
    with connecting as stream:
        for event in stream:
            seen.append(event)
            if isinstance(event, Commit):
                compute(busy_s)
                if acknowledge:
                    stream.acknowledge(event.end_lsn)
                commits -= 1
            if not commits:
                break
    return seen


def in_a_loop(connecting: Connecting[Any], commits: int = 1, busy_s: float = 0, acknowledge: bool = True) -> list[Any]:
    async def read() -> list[Any]:
        seen, left = [], commits
        async with connecting as stream:
            async for event in stream:
                seen.append(event)
                if isinstance(event, Commit):
                    compute(busy_s)
                    if acknowledge:
                        stream.acknowledge(event.end_lsn)
                    left -= 1
                if not left:
                    break
        return seen

    return asyncio.run(read())


def compute(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(10_000))


BOTH = pytest.mark.parametrize("read", [blocking, in_a_loop])


def to(server: EmbeddedPostgres, **options: Any) -> Connecting[Event]:
    return connect(server.dsn, slot=NAME, publication=NAME, **options)


def rows(events: list[Event]) -> list[tuple[str, Any, Any]]:
    return [(type(e).__name__, e.old, e.new) for e in events if isinstance(e, Change)]
