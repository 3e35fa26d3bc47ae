"""One process runs a pipeline; one that comes while another ends waits for it, and says in the end why not."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.waiting import eventually
from wal2lake.changelog.format import LogIdentity
from wal2lake.changelog.log import ChangeLog
from wal2lake.config import Config, LogConfig
from wal2lake.errors import SlotInUseError
from wal2lake.lsn import LSN
from wal2lake.spark.pipeline import run_pipeline
from wal2lake.tables import exclusive as module
from wal2lake.tables.exclusive import exclusive


@pytest.fixture
def config(tmp_path: Path) -> Config:
    ChangeLog.create(tmp_path / "log", LogIdentity("1", 1, "shop", "slot", "pub", LSN(8)))
    return Config(log=LogConfig(path=str(tmp_path / "log")))


@pytest.fixture
def held(config: Config) -> Iterator[ExitStack]:
    with ExitStack() as stack:
        stack.enter_context(exclusive(config))
        yield stack


@pytest.fixture
def waits(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], bool]]:
    """Whether one has found the pipeline taken, and waits."""
    with caplog.at_level(logging.INFO):
        yield lambda: "Waiting for it to end" in caplog.text


def test_one_that_is_ending_is_waited_for(config: Config, held: ExitStack, waits: Callable[[], bool]) -> None:
    def enter() -> float:
        with exclusive(config, threading.Event()):
            return time.monotonic()

    with ThreadPoolExecutor(1) as executor:
        entered = executor.submit(enter)
        eventually(waits)
        released = time.monotonic()
        held.close()
        assert entered.result(10) >= released


def test_one_that_stays_is_named(config: Config, held: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SlotInUseError, match="Another process runs the pipeline"), exclusive(config):
        pass
    monkeypatch.setattr(module, "PATIENCE_S", 0.3)
    began = time.monotonic()
    with pytest.raises(SlotInUseError, match="Stop it first"), exclusive(config, threading.Event()):
        pass
    assert time.monotonic() - began >= 0.3


def test_the_pipeline_waits_before_it_starts_spark_and_can_be_stopped(
    config: Config, held: ExitStack, waits: Callable[[], bool]
) -> None:
    stop = threading.Event()
    with ThreadPoolExecutor(1) as executor:
        running = executor.submit(run_pipeline, config, stop)
        eventually(waits)
        assert not running.done()
        stop.set()
        running.result(10)
