"""When a lost connection is tried again, for all streams alike.

Before anything was streamed a failure may as well be the DSN, and a person waits: it is told at once. Afterwards time
mends what breaks a connection, and our own walsender of before may hold the slot until it notices that we are gone.
"""

from __future__ import annotations

from collections.abc import Callable

from wal2lake.errors import ConnectError, SlotInUseError, Wal2LakeError
from wal2lake.retry import Backoff

OnWait = Callable[[Wal2LakeError, float], None]


class Reconnect:
    """Pauses as ``backoff`` has them, until something is ``received`` again; None: never."""

    def __init__(self, backoff: Backoff | None, on_wait: OnWait | None = None) -> None:
        self._backoff = backoff
        self._on_wait = on_wait
        self._opened = False

    def opened(self) -> None:
        """A stream stands."""
        self._opened = True

    def received(self) -> None:
        """The stream brings something: not sooner, for a server may crash each time over what it should send."""
        if self._backoff is not None:
            self._backoff.reset()

    def can_retry(self, error: Wal2LakeError) -> bool:
        """Waiting can help, and is wanted."""
        return self._backoff is not None and self._opened and isinstance(error, ConnectError | SlotInUseError)

    def pause_after(self, error: Wal2LakeError) -> float:
        """The seconds to wait before the next try, as ``on_wait`` is told; raises ``error`` when there is none."""
        if self._backoff is None or not self.can_retry(error):
            raise error
        pause_s = self._backoff.pause_s()
        if self._on_wait is not None:
            self._on_wait(error, pause_s)
        return pause_s
