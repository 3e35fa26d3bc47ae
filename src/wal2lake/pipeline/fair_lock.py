"""Several threads change tables, one at a time and in the order in which they asked.

A plain lock goes to whoever asks at the right moment, and a thread that lets go of it and asks again, as the steps of
a table that catches up do, mostly gets it: a batch would wait for all of them.
"""

from __future__ import annotations

import threading
from collections import deque


class FairLock:
    """A lock for a ``with`` block, first come, first served. Not to be taken twice by one thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()

    def __enter__(self) -> None:
        ticket = object()
        with self._changed:
            self._queue.append(ticket)
            try:
                self._changed.wait_for(lambda: self._queue[0] is ticket)
            except BaseException:  # Ctrl-C in the main thread: nobody may wait for a turn that is never taken
                self._queue.remove(ticket)
                self._changed.notify_all()
                raise

    def __exit__(self, *failure: object) -> None:
        with self._changed:
            self._queue.popleft()
            self._changed.notify_all()
