"""What the telling of the status needs: rates, and a thread that calls again and again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

_logger = logging.getLogger(__name__)


class Rates:
    """Changes per second by name, over about the last ten seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, window_s: float = 10.0) -> None:
        self._clock = clock
        self._window = window_s
        self._marks: dict[str, list[tuple[float, int]]] = {}

    def rate(self, name: str, total: int) -> float:
        """Note that ``name`` stands at ``total`` now, and tell its rate; 0 for what was begun anew."""
        now = self._clock()
        marks = self._marks.setdefault(name, [])
        marks.append((now, total))
        while len(marks) > 2 and now - marks[1][0] >= self._window:
            marks.pop(0)
        elapsed = now - marks[0][0]
        return max(0.0, (total - marks[0][1]) / elapsed) if elapsed > 0 else 0.0


class Ticker:
    """Calls ``tick`` about every ``interval_s`` seconds in a thread of its own, and once more at the end.

    What it raises is logged, and the next call may do better; what the last one raises is raised where the block
    ends, unless something else is.
    """

    def __init__(self, tick: Callable[[], None], interval_s: float) -> None:
        self._tick = tick
        self._interval = interval_s
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="wal2lake status", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, kind: type[BaseException] | None, *failure: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._failure is not None and kind is None:
            raise self._failure

    def _run(self) -> None:
        while not self._ended.wait(self._interval):
            self._call()
        self._call()

    def _call(self) -> None:
        before, self._failure = self._failure, None
        try:
            self._tick()
        except Exception as error:  # noqa: BLE001 - it goes on in the thread that owns the block
            self._failure = error
            if before is None:
                _logger.warning("The status cannot be brought up to date: %s", error)
