"""The status is told again and again: one failure ends neither the telling nor what else the tick does."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from tests.spark_source.conftest import LogScript
from wal2lake.config import Config, LogConfig
from wal2lake.errors import InterruptedByUser, SinkError
from wal2lake.pipeline.interrupts import Interrupts
from wal2lake.pipeline.ticking import Ticker
from wal2lake.pipeline.tracking import ProgressTracker
from wal2lake.tables.failures import SparkLostError


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


@pytest.fixture
def progress(log: LogScript) -> ProgressTracker:
    log.transactions([])
    waiting = Interrupts(threading.Event())
    return ProgressTracker(Config(log=LogConfig(path=log.path)), log.start, waiting, waiting)


LOG = "its log (`run` keeps one in status/ of the change log)"


@pytest.mark.parametrize(
    ("error", "asked", "state", "reason"),
    [
        (SinkError("It is not ours."), False, "failed", "It is not ours."),
        (SinkError("It is not ours."), True, "stopped", "It is not ours."),
        (InterruptedByUser("Told to stop."), True, "stopped", None),
        (SparkLostError("Spark gave up."), True, "stopped", None),
        (SparkLostError("Spark gave up."), False, "failed", "Spark gave up."),
        (ValueError("a cell's value"), False, "failed", f"ValueError; {LOG} says more."),
    ],
)
def test_the_last_word_says_how_it_ended(
    progress: ProgressTracker, log: LogScript, error: Exception, asked: bool, state: str, reason: str | None
) -> None:
    stop = threading.Event()
    if asked:
        stop.set()
    with pytest.raises(type(error)), progress.recording_end(stop):
        raise error
    found = json.loads((Path(log.path) / "status/pipeline.json").read_bytes())
    assert (found["state"], found["reason"]) == (state, reason)
    assert found["lag_bytes"] > 0


def test_an_end_without_an_error_is_a_stop(progress: ProgressTracker, log: LogScript) -> None:
    with progress.recording_end(threading.Event()):
        pass
    assert json.loads((Path(log.path) / "status/pipeline.json").read_bytes())["state"] == "stopped"
