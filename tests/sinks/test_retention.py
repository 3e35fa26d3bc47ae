"""For how long a past is kept: in steps, by bytes, and said in Delta's words."""

from __future__ import annotations

import pytest

from wal2lake.sinks.retention import Retention, interval, interval_seconds

DAY = Retention(86_400, 10_000_000, 600)
EVERY_MINUTE = [(60.0 * i, 100_000) for i in range(1, 1440)]


@pytest.mark.parametrize(
    ("retention", "past", "stands", "room", "kept"),
    [
        (DAY, [], 86_400, 0, 86_400),
        (DAY, [], None, 0, 86_400),
        (DAY, EVERY_MINUTE, 86_400, 200_000_000, 86_400),
        (DAY, EVERY_MINUTE, 86_400, 0, 5400),  # 90 files of 100 kB; 180 are too much
        (DAY, EVERY_MINUTE, None, 0, 5400),
        (DAY, EVERY_MINUTE, 12_345, 0, 5400),  # of another setting
        (DAY, EVERY_MINUTE[:90], 5400, 0, 5400),  # more than half: twice the time would not do
        (DAY, EVERY_MINUTE[:45], 2700, 0, 5400),
        (DAY, EVERY_MINUTE[:10], 600, 0, 675),  # a step, whatever fits by now
        (DAY, [(1.0, 10**9)], 86_400, 0, 600),  # no less than the least
        (DAY, [(601.0, 10**9)], 600, 0, 675),
        (DAY, [(float(i), 1) for i in range(306)], 86_400, 0, 600),  # each counts for 32 KiB
        (Retention(60, 0, 600), [(1.0, 10**9)], 60, 0, 60),  # bytes alone are bounded by the least
        (Retention(0, 0, 0), [(1.0, 10**9)], 0, 0, 0),
    ],
)
def test_the_longest_step_that_fits(
    retention: Retention, past: list[tuple[float, int]], stands: int | None, room: int, kept: int
) -> None:
    assert retention.seconds_for(past, stands, room) == kept


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "interval 0 seconds"),
        (1, "interval 1 seconds"),
        (90, "interval 90 seconds"),
        (5400, "interval 90 minutes"),
        (86_400, "interval 1 days"),
        (1_209_600, "interval 2 weeks"),
    ],
)
def test_a_time_in_deltas_words(seconds: int, text: str) -> None:
    assert interval(seconds) == text
    assert interval_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "1 day", "INTERVAL 1 DAYS", "interval 1 month", "interval 1 day 2 hours"])
def test_what_delta_rs_would_misread_is_no_time(text: str) -> None:
    assert interval_seconds(text) is None
