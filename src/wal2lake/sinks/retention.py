"""How long a table keeps what it no longer holds: a time, shortened by bytes, and never below a least time.

The rule: what is kept is what the table says it keeps. So the time comes in steps, which a table seldom leaves, and not
as whatever second would just do; and it is said before anything is deleted by it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from wal2lake.config import LakeConfig

_INTERVAL: Final = re.compile(r"interval (\d+) (second|minute|hour|day|week)s?")  # what delta-rs reads, too
_UNITS: Final = {"week": 604_800, "day": 86_400, "hour": 3600, "minute": 60, "second": 1}
_LEAST: Final = 32 << 10  # bytes that a file counts for: opening a table and maintaining it look at each


@dataclass(frozen=True, slots=True)
class Retention:
    """The settings ``lake.retention_seconds``, ``lake.retention_bytes`` and ``lake.min_retention_seconds``."""

    seconds: int = LakeConfig.retention_seconds
    bytes: int = LakeConfig.retention_bytes
    min_seconds: int = LakeConfig.min_retention_seconds

    @classmethod
    def of(cls, lake: LakeConfig) -> Retention:
        return cls(lake.retention_seconds, lake.retention_bytes, lake.min_retention_seconds)

    def seconds_for(self, past: Sequence[tuple[float, int]], stands: int | None, room: int = 0) -> int:
        """For how many seconds to keep a past of so many (age in seconds, bytes), which may take ``room`` bytes more.

        ``stands``: for how many it was kept so far, None if nobody knows. It is left for a longer time only by a step,
        and where that would fit as well: what is gone by now says nothing of how much a longer time will hold.
        """
        steps = self._steps()
        most = self.bytes + room
        if stands not in steps:
            return next((step for step in steps if _within(past, step) <= most), steps[-1])
        at = steps.index(stands)
        if at and _within(past, stands) <= most // 2:
            return steps[at - 1]
        return next((step for step in steps[at:] if _within(past, step) <= most), steps[-1])

    def _steps(self) -> list[int]:
        """The time as it is set, and halves of it as long as they are above the least, which is the last."""
        steps = [self.seconds]
        while steps[-1] // 2 > self.min_seconds:
            steps.append(steps[-1] // 2)
        return [*steps, self.min_seconds] if steps[-1] > self.min_seconds else steps


def _within(past: Sequence[tuple[float, int]], seconds: int) -> int:
    """Bytes on disk of what is no older."""
    return sum(max(size, _LEAST) for age, size in past if age <= seconds)


def interval(seconds: int) -> str:
    """As Delta's table properties have it, in the largest unit that needs no fraction."""
    unit = next(unit for unit, size in _UNITS.items() if seconds % size == 0 and (seconds or unit == "second"))
    return f"interval {seconds // _UNITS[unit]} {unit}s"


def interval_seconds(text: str) -> int | None:
    """Of a table property; None where delta-rs would take Delta's default in its place."""
    found = _INTERVAL.fullmatch(text)
    return None if found is None else int(found[1]) * _UNITS[found[2]]
