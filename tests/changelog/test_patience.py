"""A lock that another holds is asked for again until time is over, there is no hope, or somebody says stop."""

from __future__ import annotations

from threading import Event

import pytest

from wal2lake.changelog.patience import patiently
from wal2lake.errors import InterruptedByUser, SlotInUseError


class Lock:
    """Free after being asked for so many times."""

    def __init__(self, busy: int) -> None:
        self.busy, self.asked = busy, 0

    def ask(self) -> int:
        self.asked += 1
        if self.asked <= self.busy:
            raise SlotInUseError("Somebody has it.")
        return self.asked


def test_it_is_asked_for_again_while_there_is_time() -> None:
    assert patiently(Lock(2).ask, 60, Event()) == 3


@pytest.mark.parametrize(("patience_s", "hopeless"), [(0, False), (-1, False), (60, True)])
def test_without_time_or_hope_it_is_asked_for_once(patience_s: float, hopeless: bool) -> None:
    lock = Lock(1)
    with pytest.raises(SlotInUseError):
        patiently(lock.ask, patience_s, Event(), lambda: hopeless)
    assert lock.asked == 1


def test_whoever_waits_can_be_stopped() -> None:
    stop, lock = Event(), Lock(9)
    stop.set()
    with pytest.raises(InterruptedByUser):
        patiently(lock.ask, 60, stop)
    assert lock.asked == 1
