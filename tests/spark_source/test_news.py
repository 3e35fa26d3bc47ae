"""Who waits for a segment hears of it at once where the system tells, and sees it soon where it does not."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.spark_source.conftest import LogScript
from wal2lake.changelog import news
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.news import News, Watch
from wal2lake.testing.stream import insert, relation

PATIENCE = 30.0


@contextmanager
def coming(log: LogScript) -> Iterator[None]:
    """A segment comes amid the block."""
    thread = threading.Timer(0.05, lambda: log.transactions([relation(), insert(1, "a")]))
    thread.start()
    yield
    thread.join()


class Waiting:
    """Notes how often somebody looked."""

    def __init__(self, log: LogScript) -> None:
        self.looks = 0
        self.log = ChangeLog.open(log.path)
        self.news = News(self.log, self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.looks += 1
        time.sleep(seconds)

    def wait(self, log: LogScript) -> int:
        """How often it was looked until a segment came."""
        self.looks = 0
        with coming(log):
            self.news.wait(PATIENCE)
        assert self.log.has_more()
        self.log.refresh()
        return self.looks


def test_what_is_told_is_not_looked_for(log: LogScript) -> None:
    waiting = Waiting(log)
    assert waiting.wait(log) == waiting.wait(log) == 0


def test_what_is_not_told_is_looked_for(log: LogScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where another machine writes into a folder that both have: the watch is of one in which nothing happens."""
    monkeypatch.setattr(news, "Watch", lambda _: Watch(str(tmp_path)))
    waiting = Waiting(log)
    assert waiting.wait(log) == 0
    assert waiting.wait(log) > 0


def test_who_was_told_nothing_believes_again_what_is_told_rightly(
    log: LogScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = Waiting(log)

    def nothing(_: Watch, seconds: float) -> bool:
        time.sleep(seconds)
        return False

    with monkeypatch.context() as patch:
        patch.setattr(Watch, "wait", nothing)
        waiting.wait(log)
        assert waiting.wait(log) > 0
    assert waiting.wait(log) > 0
    assert waiting.wait(log) == 0


def test_who_is_told_in_vain_waits_on(log: LogScript) -> None:
    waiting = Waiting(log)
    aside = Path(log.path, "segments", ".aside.tmp")
    thread = threading.Timer(0.05, aside.touch)
    thread.start()
    began = time.monotonic()
    waiting.news.wait(0.2)
    thread.join()
    assert time.monotonic() - began >= 0.2
    assert waiting.looks == 0


def test_a_folder_that_cannot_be_watched_is_looked_into(log: LogScript, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the system has no more watches to give: looked at every now and then, not all the time."""
    assert not Watch("/nowhere at all").works
    monkeypatch.setattr(news, "Watch", lambda _: Watch("/nowhere at all"))
    waiting = Waiting(log)
    assert waiting.wait(log) > 0
