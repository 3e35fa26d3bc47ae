"""Pauses grow until something works; what another holds is asked for until time or hope is over, or a stop comes."""

from __future__ import annotations

from threading import Event

import pytest

from wal2lake.errors import InterruptedByUser, SlotInUseError
from wal2lake.retry import Backoff, retry_while_in_use


class Lock:
    """Free after being asked for so many times."""

    def __init__(self, busy: int) -> None:
        self.busy, self.asked = busy, 0

    def ask(self) -> int:
        self.asked += 1
        if self.asked <= self.busy:
            raise SlotInUseError("Somebody has it.")
        return self.asked


def test_pauses_double_up_to_the_longest_and_begin_anew() -> None:
    backoff = Backoff(0.5, 3)
    assert [backoff.pause_s() for _ in range(5)] == [0.5, 1, 2, 3, 3]
    backoff.reset()
    assert (backoff.next_s, backoff.pause_s(), backoff.next_s) == (0.5, 0.5, 1)


def test_without_a_longest_they_stay_and_none_is_longer() -> None:
    always = Backoff(5)
    assert [always.pause_s() for _ in range(3)] == [5, 5, 5]
    assert Backoff(5, 2).pause_s() == 2


def test_it_is_asked_for_again_while_there_is_time() -> None:
    assert retry_while_in_use(Lock(2).ask, 60, Event()) == 3


@pytest.mark.parametrize(("patience_s", "hopeless"), [(0, False), (-1, False), (60, True)])
def test_without_time_or_hope_it_is_asked_for_once(patience_s: float, hopeless: bool) -> None:
    lock = Lock(1)
    with pytest.raises(SlotInUseError):
        retry_while_in_use(lock.ask, patience_s, Event(), lambda: hopeless)
    assert lock.asked == 1


def test_whoever_waits_can_be_stopped() -> None:
    stop, lock = Event(), Lock(9)
    stop.set()
    with pytest.raises(InterruptedByUser):
        retry_while_in_use(lock.ask, 60, stop)
    assert lock.asked == 1
