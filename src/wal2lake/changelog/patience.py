"""Whoever had a lock before may be about to end, as when the parent of both was killed: wait a while, then refuse."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Event
from typing import TypeVar

from wal2lake.errors import InterruptedByUser, SlotInUseError

T = TypeVar("T")
_logger = logging.getLogger(__name__)


def patiently(ask: Callable[[], T], patience_s: float, stop: Event, hopeless: Callable[[], bool] = lambda: False) -> T:
    """``ask`` again while it raises SlotInUseError, for ``patience_s`` or until it is ``hopeless``.

    Raises InterruptedByUser when ``stop`` is set meanwhile.
    """
    deadline, told = time.monotonic() + patience_s, False
    while True:
        try:
            return ask()
        except SlotInUseError as error:
            if hopeless() or time.monotonic() >= deadline:
                raise
            if not told:
                _logger.info("%s Waiting for it to end.", error.message)
                told = True
            if stop.wait(0.1):
                raise InterruptedByUser("Stopped while waiting for another process to end.") from error
