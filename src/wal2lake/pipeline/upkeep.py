"""A table is cleaned up also when nothing changes it any more: what it removed goes when its time is over.

The rule: what a change makes due is done behind its batch, or one of the next. What must stay then, for those who read,
is left to this: each table that was changed, or read, since it was last clean is looked after now and then, a few in a
turn. When it is asked for again is known in memory alone: after a start every table is looked after once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from wal2lake.errors import Wal2LakeError
from wal2lake.pipeline.apply import maintain
from wal2lake.pipeline.engine import Jobs
from wal2lake.tables.table import Table

EVERY_S: Final = 300.0
_TABLES: Final = 4  # in a turn, for each task that runs at once: batches wait meanwhile
_logger = logging.getLogger(__name__)


class Upkeep:
    """Looks after tables with ``jobs``; not for two threads at once."""

    def __init__(self, jobs: Jobs, clock: Callable[[], float] = time.monotonic) -> None:
        self._jobs = jobs
        self._clock = clock
        self._due: dict[str, float] = {}
        self._clean: dict[str, tuple[int, str]] = {}  # as which they had nothing left that ever has to go

    def tick(self, tables: Iterable[Table], changes: Mapping[str, int]) -> None:
        """Maintain those that it is time for; ``changes``: how many each has had. In a turn."""
        now = self._clock()
        stand = {table: (changes.get(str(table), 0), table.plan.plan_id) for table in tables if table.ready}
        waiting = [table for table, stands in stand.items() if self._clean.get(str(table)) != stands]
        due = [table for table in waiting if self._due.setdefault(str(table), now + EVERY_S) <= now]
        due = due[: _TABLES * self._jobs.parallelism]
        outcomes = self._jobs.run(maintain, [table.target for table in due])
        for table, outcome in zip(due, outcomes, strict=True):
            self._due.pop(str(table))
            if isinstance(outcome, Wal2LakeError):
                _logger.warning("%s is cleaned up later: %s", table, outcome)
            elif outcome is None:
                self._clean[str(table)] = stand[table]
            else:
                self._due[str(table)] = now + max(outcome, EVERY_S)
