"""The status is told again and again: one failure ends neither the telling nor what else the tick does."""

from __future__ import annotations

import threading

import pytest

from wal2lake.spark.status import Ticker


class Disk:
    """Full for the first ``failures`` calls."""

    def __init__(self, failures: int) -> None:
        self.left = failures
        self.written = threading.Event()

    def tick(self) -> None:
        self.left -= 1
        if self.left >= 0:
            raise OSError("full")
        self.written.set()


def test_a_failure_that_passes_is_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk(failures=3)
    with Ticker(disk.tick, 0.01):
        assert disk.written.wait(60)
    assert [record.getMessage() for record in caplog.records] == ["The status cannot be brought up to date: full"]


def test_a_failure_that_stays_is_raised_at_the_end() -> None:
    with pytest.raises(OSError, match="full"), Ticker(Disk(failures=1_000_000).tick, 0.01):
        pass
