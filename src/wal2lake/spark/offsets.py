"""Where a micro-batch ends: always at the end LSN of a committed transaction, so a batch is never half of one.

Offsets are {"lsn": end LSN}; a batch is (start, end]. Spark makes ``start`` durable before it hands it over, so
whatever lies at or below it is released for retention right then. A barrier is a commit LSN that no batch crosses:
batches end at the last transaction that commits before it, and only then go on past it.

A query that triggers as fast as it can is told at once when there is something new: Spark asks, and is kept waiting
until there is (``triggerSeconds``), where else it would ask at fixed times, or a hundred times a second. The longer it
was quiet, the longer at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.news import News
from wal2lake.spark.options import SourceOptions
from wal2lake.spark.typed import end_within_rows

WAIT_SECONDS, IDLE_WAIT_SECONDS = 0.5, 2.0  # that Spark is kept waiting at most, and a query that is to stop with it
_QUIET = 8.0  # times as long as it is kept waiting nothing has come by then
_LOOK_SECONDS = 0.02
REFRESH_SECONDS = 0.02  # Spark asks every 10 ms when idle; between refreshes the answer comes from memory

Offset = dict[str, int]


class Offsets:
    """The positions of one query over one log; not shared between threads."""

    def __init__(
        self,
        log: ChangeLog,
        options: SourceOptions,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._log = log
        self._options = options
        self._clock, self._sleep = clock, sleep
        self._news = News(log, sleep)
        self._refreshed, self._refresh_s = clock(), max(REFRESH_SECONDS, log.storage.look_s)
        self._moved = clock()  # when there was something new
        self._due = 0.0  # when the next batch may begin, by triggerSeconds
        self._target: int | None = None  # Trigger.AvailableNow: where the query ends
        self._initial: int | None = None
        self._last: int | None = None  # where the next batch starts, for Spark 4.0 and 4.1, which do not say
        self._released = -1

    def initial(self) -> Offset:
        """``startingLsn``, else where the log begins; released at once, so that what is answered stays there."""
        if self._initial is None:
            given = self._options.starting_lsn
            self._initial = self._log.beginning() if given is None else int(given)
            self._release(self._initial)
        self._last = self._initial
        return {"lsn": self._initial}

    def latest(self, start: Offset | None, max_bytes: int | None, max_rows: int | None) -> Offset:
        """The end of the next batch; ``start`` itself when there is nothing new.

        Without ``start`` (Spark 4.0, 4.1) the batch continues from the last end this process has seen, and the first
        one after a restart is not limited, since nothing says where it starts.
        """
        if start is not None:
            self._last = start["lsn"]
            self._release(self._last)
        if self._last is None:
            self._refresh()
            return {"lsn": self._end()}
        if not self._await_turn(self._last):
            return {"lsn": self._last}
        self._last = self._batch_end(self._last, max_bytes, max_rows)
        return {"lsn": self._last}

    def _await_turn(self, start: int) -> bool:
        """See what was appended. With ``triggerSeconds`` wait a little until there is something, and a batch may begin;
        False when none may yet."""
        self._refresh()
        between = self._options.trigger_s
        if between is None or self._target is not None:
            return True
        quiet_s = self._clock() - self._moved
        until = self._clock() + min(max(WAIT_SECONDS, quiet_s / _QUIET), IDLE_WAIT_SECONDS)
        while (now := self._clock()) < until:
            if now < self._due:
                self._sleep(min(self._due, until) - now)
            elif self._end() > start:
                break
            elif not self._log.has_more():
                self._news.wait(until - now, self._clock)
            else:  # Spark need not hear of a segment in which nothing has committed
                self._log.refresh()
                if self._end() <= start and self._log.has_more():
                    self._sleep(_LOOK_SECONDS)
        self._log.refresh()
        if self._clock() < self._due:
            return False
        if self._end() > start:
            self._moved = self._clock()
            self._due = self._moved + between
        return True

    def _refresh(self) -> None:
        now = self._clock()
        if now - self._refreshed >= self._refresh_s:
            self._log.refresh()
            self._refreshed = now

    def newest(self) -> Offset:
        """How far the log goes, for the lag in Spark's progress report."""
        return {"lsn": int(self._log.last_end_lsn)}

    def stop_at_newest(self) -> None:
        """Trigger.AvailableNow: what comes after this call is not read."""
        self._log.refresh()
        self._target = int(self._log.last_end_lsn)

    def committed(self, end: Offset) -> None:
        """Spark has processed everything at or below ``end``."""
        self._release(end["lsn"])

    def planned(self, end: Offset) -> None:
        """A batch up to ``end`` is under way, possibly one from before a restart."""
        self._last = max(self._last or 0, end["lsn"])

    def _batch_end(self, start: int, max_bytes: int | None, max_rows: int | None) -> int:
        if start >= self._end():
            return start
        for barrier in sorted(self._log.barriers().values()):
            end = self._within(start, max_bytes, max_rows, barrier)
            if end > start:
                return end
        return self._within(start, max_bytes, max_rows, None)

    def _within(self, start: int, max_bytes: int | None, max_rows: int | None, barrier: int | None) -> int:
        table = self._options.table
        rows = max_rows if table is None else None
        end = int(self._log.end_lsn_within(start, max_bytes=max_bytes, max_rows=rows, before_commit_lsn=barrier))
        if self._target is not None:
            end = min(end, max(start, self._target))
        if table is not None and max_rows is not None:
            return end_within_rows(self._log, table, start, end, max_rows)
        return end

    def _end(self) -> int:
        newest = int(self._log.last_end_lsn)
        return newest if self._target is None else min(newest, self._target)

    def _release(self, lsn: int) -> None:
        if self._options.consumer is not None and lsn > self._released:
            self._log.release(self._options.consumer, lsn)
            self._released = lsn
