"""When a lost connection is tried again, for all streams alike.

Before anything was streamed a failure may as well be the DSN, and a person waits: it is told at once. Afterwards time
mends what breaks a connection, and our own walsender of before may hold the slot until it notices that we are gone.
"""

from __future__ import annotations

from collections.abc import Callable

from wal2lake.errors import ConnectError, SlotInUseError, Wal2LakeError

OnWait = Callable[[Wal2LakeError, float], None]


class Reconnect:
    """``pause_s`` grows twofold up to ``most_s`` (without one: not) until something is ``received``; None: never."""

    def __init__(self, pause_s: float | None, most_s: float | None = None, on_wait: OnWait | None = None) -> None:
        self._first_s = self._next_s = pause_s
        self._most_s = most_s or pause_s or 0.0
        self._on_wait = on_wait
        self._opened = False

    def opened(self) -> None:
        """A stream stands."""
        self._opened = True

    def received(self) -> None:
        """The stream brings something: not sooner, for a server may crash each time over what it should send."""
        self._next_s = self._first_s

    def can_retry(self, error: Wal2LakeError) -> bool:
        """Waiting can help, and is wanted."""
        return self._next_s is not None and self._opened and isinstance(error, ConnectError | SlotInUseError)

    def pause_after(self, error: Wal2LakeError) -> float:
        """The seconds to wait before the next try, as ``on_wait`` is told; raises ``error`` when there is none."""
        if self._next_s is None or not self.can_retry(error):
            raise error
        pause_s, self._next_s = self._next_s, min(self._next_s * 2, self._most_s)
        if self._on_wait is not None:
            self._on_wait(error, pause_s)
        return pause_s
