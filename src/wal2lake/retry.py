"""Trying again: how long each pause is, and who is waited for.

The rule: every pause before another try comes from a Backoff. Who waits does so where a stop is heard: an Event, the
event loop, a supervisor's own clock. That is why no function here takes over the caller's loop, and no library does.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Event
from typing import TypeVar

from wal2lake.errors import InterruptedByUser, SlotInUseError

T = TypeVar("T")
_logger = logging.getLogger(__name__)


class Backoff:
    """Pauses in seconds: ``first_s``, then twice as long each time, ``longest_s`` (by default ``first_s``) at most.

    ``next_s`` is the one that comes next.
    """

    def __init__(self, first_s: float, longest_s: float | None = None) -> None:
        self._longest_s = first_s if longest_s is None else longest_s
        self._first_s = min(first_s, self._longest_s)
        self.next_s = self._first_s

    def pause_s(self) -> float:
        """How long to pause now; the next time it is longer."""
        pause_s, self.next_s = self.next_s, min(self.next_s * 2, self._longest_s)
        return pause_s

    def reset(self) -> None:
        """What was tried has worked."""
        self.next_s = self._first_s


def retry_while_in_use(
    ask: Callable[[], T], patience_s: float, stop: Event, hopeless: Callable[[], bool] = lambda: False
) -> T:
    """``ask`` again while it raises SlotInUseError, for ``patience_s`` or until it is ``hopeless``.

    Whoever has it may be about to end, as when the parent of both was killed. Raises InterruptedByUser when ``stop``
    is set meanwhile.
    """
    deadline, backoff, told = time.monotonic() + patience_s, Backoff(0.1, 0.5), False
    while True:
        try:
            return ask()
        except SlotInUseError as error:
            left = deadline - time.monotonic()
            if hopeless() or left <= 0:
                raise
            if not told:
                _logger.info("%s Waiting for it to end, %.0f s at most.", error.message, left)
                told = True
            if stop.wait(min(backoff.pause_s(), left)):
                raise InterruptedByUser("Stopped while waiting for another process to end.") from error
