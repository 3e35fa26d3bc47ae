"""The one place where the pipeline waits for others, and hears that it shall end.

The rule: nobody sleeps or asks again without going through here, so a stop is heard whatever is waited for, and what
that is stands in the status. A wait that lasts is a warning, since nothing else tells why nothing moves.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from wal2lake.errors import InterruptedByUser

_POLL_S = 0.2
_CURRENT_S = 3.0  # a reason that nobody gave again for so long is over: asking a server may take a second
_WARN_AFTER_S = 5.0
_WARN_EVERY_S = 60.0
_logger = logging.getLogger(__name__)


class Interrupts:
    """``stop`` ends the pipeline from outside, ``close`` from inside: no batch begins any more, none goes on waiting.

    For all threads; each value stands for itself.
    """

    def __init__(self, stop: threading.Event, clock: Callable[[], float] = time.monotonic) -> None:
        self._stop = stop
        self._clock = clock
        self.closed = False
        self._reason = ""
        self._said = self._began = self._warned = float("-inf")

    def close(self) -> None:
        self.closed = True

    @property
    def is_stopping(self) -> bool:
        return self.closed or self._stop.is_set()

    def check_for_interrupts(self) -> None:
        """Between two steps that may take long; raises InterruptedByUser when the pipeline shall end."""
        if self.is_stopping:
            raise InterruptedByUser("The pipeline was told to stop.")

    def pause(self, reason: str, seconds: float = _POLL_S) -> None:
        """Wait a little, or that long, saying why; raises as ``check_for_interrupts`` does."""
        end = self._clock() + seconds
        while (left := end - self._clock()) > 0:
            self._report(reason)
            self._stop.wait(min(left, _POLL_S))
            self.check_for_interrupts()

    def _report(self, reason: str) -> None:
        now = self._clock()
        if self.reason is None:
            self._began = now
            self._warned = float("-inf")
            _logger.info("%s", reason)
        self._reason, self._said = reason, now
        if now - self._began >= _WARN_AFTER_S and now - self._warned >= _WARN_EVERY_S:
            self._warned = now
            _logger.warning("%s", reason)

    @property
    def reason(self) -> str | None:
        """What is waited for right now."""
        return self._reason if self._clock() - self._said < _CURRENT_S else None
