"""A figure over time as an inline SVG path: pure arithmetic, no script and no style of its own.

The window reaches from the first sample to now; where nothing was known the line has a gap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from wal2lake.monitor.watch import Sample

WIDTH, HEIGHT = 600, 120
_COLUMNS = 150  # as fine as a small screen shows
_SHORTEST_S = 120.0

Value = Callable[[Sample], float | None]
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Plot:
    """``line`` and ``area`` are path data within WIDTH × HEIGHT; ``top``: the value of the upper edge; ``peak`` and
    ``now``: the greatest and the last value, None where nothing is known; ``seconds``: how long ago the left edge is.
    """

    line: str
    area: str
    top: float
    peak: float | None
    now: float | None
    seconds: float


def plot(history: Sequence[Sample], value: Value) -> Plot:
    """``value`` of each sample; the upper edge is a round number."""
    seconds = max(_SHORTEST_S, history[-1].ts - history[0].ts) if history else _SHORTEST_S
    columns = list(_columns(history, value, seconds))
    known = [found for _, found in columns if found is not None]
    peak = max(known, default=None)
    top = _round_up(peak or 0.0)
    runs = [
        [(x, HEIGHT - found / top * HEIGHT) for x, found in run if found is not None]
        for there, run in groupby(columns, key=lambda column: column[1] is not None)
        if there
    ]
    last = value(history[-1]) if history else None
    return Plot("".join(map(_line, runs)), "".join(map(_area, runs)), top, peak, last, seconds)


def _columns(history: Sequence[Sample], value: Value, seconds: float) -> Iterator[tuple[float, float | None]]:
    """(x, the greatest value there); None where nothing is known."""
    if not history:
        return
    begin = history[-1].ts - seconds

    def column(sample: Sample) -> int:
        return round((sample.ts - begin) / seconds * _COLUMNS)

    for number, samples in groupby(history, key=column):
        found = [one for one in map(value, samples) if one is not None]
        yield number / _COLUMNS * WIDTH, max(found, default=None)


def _line(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _area(points: Sequence[Point]) -> str:
    return f"{_line([(points[0][0], HEIGHT), *points, (points[-1][0], HEIGHT)])}Z"


def _round_up(value: float) -> float:
    """1, 2 or 5 times a power of ten; never less than 1."""
    power = 10.0 ** max(0, math.floor(math.log10(max(value, 1.0))))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)
