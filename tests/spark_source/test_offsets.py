"""Where batches end, against a real log, without a JVM."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.spark_source.conftest import LogScript
from wal2lake.changelog.local import LocalStorage
from wal2lake.changelog.log import ChangeLog
from wal2lake.errors import LogMismatchError
from wal2lake.lsn import LSN
from wal2lake.spark import offsets
from wal2lake.spark.offsets import Offsets
from wal2lake.spark.options import SourceOptions
from wal2lake.testing.stream import insert, relation


@pytest.fixture(autouse=True)
def refresh_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nobody is told of a segment: only a sleep moves the clock."""
    monkeypatch.setattr(offsets, "REFRESH_SECONDS", 0)
    monkeypatch.setattr(LocalStorage, "watchable", lambda *_: None)


@pytest.fixture
def three(log: LogScript) -> LogScript:
    """Three transactions of 4, 3 and 4 messages, in two segments."""
    log.transactions([relation(), insert(1, "a")], [insert(2, "b")])
    log.transactions([insert(3, "c"), insert(4, "d")])
    return log


def open_offsets(log: LogScript, **options: object) -> Offsets:
    return Offsets(ChangeLog.open(log.path), SourceOptions(log.path, **options))  # type: ignore[arg-type]


def at(lsn: int) -> dict[str, int]:
    return {"lsn": lsn}


def test_the_initial_offset_is_where_the_log_begins(three: LogScript) -> None:
    found = open_offsets(three)
    assert found.initial() == found.initial() == at(three.start)
    assert open_offsets(three, starting_lsn=LSN(three.ends[0])).initial() == at(three.ends[0])


def test_an_empty_log_has_nothing_new(log: LogScript) -> None:
    found = open_offsets(log)
    assert found.latest(found.initial(), None, None) == at(log.start)


def test_without_a_limit_all_is_one_batch(three: LogScript) -> None:
    assert open_offsets(three).latest(at(three.start), None, None) == at(three.ends[2])


def test_a_batch_is_whole_transactions_within_the_limit(three: LogScript) -> None:
    found = open_offsets(three)
    assert found.latest(at(three.start), None, 6) == at(three.ends[0])
    assert found.latest(at(three.start), None, 7) == at(three.ends[1])
    assert found.latest(at(three.ends[0]), 1, None) == at(three.ends[1])


def test_one_transaction_goes_in_however_large(three: LogScript) -> None:
    assert open_offsets(three).latest(at(three.start), None, 1) == at(three.ends[0])


T = ("public", "t")


@pytest.fixture
def busy(log: LogScript) -> LogScript:
    """Public.t has 1, 2, 9 and 1 changes in transactions 4, 7, 9 and 11, all others are of a table that is busier."""
    log.transactions([relation(), relation(2, "busy"), insert(0, "x", oid=2)])
    for transactions in ([0, 0, 0, 1], [0, 0, 2, 0, 9], [0, 1, 0]):
        changes = [
            [*(insert(0, "x", oid=2) for _ in range(50)), *(insert(n, "a") for n in range(own))] for own in transactions
        ]
        log.transactions(*changes)  # type: ignore[arg-type]
    return log


@pytest.mark.parametrize(
    ("rows", "ends"),
    [
        (500, [12]),
        (13, [12]),
        (12, [10, 12]),
        (9, [8, 10, 12]),
        (3, [8, 9, 12]),
        (2, [6, 8, 9, 12]),
        (1, [6, 7, 9, 12]),
    ],
)
def test_rows_are_the_tables_own(busy: LogScript, rows: int, ends: list[int]) -> None:
    """Not one batch is empty, though all others of the log's rows are another table's."""
    found, at_lsn, batches = open_offsets(busy, table=T), at(busy.start), []
    while (end := found.latest(at_lsn, None, rows)) != at_lsn:
        batches.append(busy.ends.index(end["lsn"]))
        at_lsn = end
    assert batches == ends


def test_without_a_row_of_the_table_all_is_one_batch(busy: LogScript) -> None:
    found = open_offsets(busy, table=("public", "nobody"))
    assert found.latest(at(busy.start), None, 1) == at(busy.ends[-1])
    found.stop_at_newest()
    busy.transactions([insert(5, "e")])
    assert found.latest(at(busy.start), None, 1) == at(busy.ends[-2])


def test_new_segments_are_seen(three: LogScript) -> None:
    found = open_offsets(three)
    assert found.latest(at(three.ends[2]), None, None) == at(three.ends[2])
    three.transactions([insert(5, "e")])
    assert found.latest(at(three.ends[2]), None, None) == at(three.ends[3])
    assert found.newest() == at(three.ends[3])


def test_available_now_ends_at_what_there_was(three: LogScript) -> None:
    found = open_offsets(three)
    found.stop_at_newest()
    three.transactions([insert(5, "e")])
    assert found.latest(at(three.start), None, 3) == at(three.ends[0])
    assert found.latest(at(three.ends[0]), None, None) == at(three.ends[2])
    assert found.latest(at(three.ends[2]), None, None) == at(three.ends[2])


def test_no_batch_crosses_a_barrier(three: LogScript) -> None:
    found = open_offsets(three)
    log = ChangeLog.open(three.path)
    log.request_barrier("verify", three.ends[1])  # the third transaction commits above it
    assert found.latest(at(three.start), None, None) == at(three.ends[1])
    assert found.latest(at(three.ends[1]), None, None) == at(three.ends[2])
    log.remove_barrier("verify")
    assert found.latest(at(three.start), None, None) == at(three.ends[2])


def test_the_nearest_of_several_barriers_counts(three: LogScript) -> None:
    log = ChangeLog.open(three.path)
    log.request_barrier("far", three.ends[1])
    log.request_barrier("near", three.ends[0])
    found = open_offsets(three)
    ends = [three.start]
    for _ in range(3):
        ends.append(found.latest(at(ends[-1]), None, None)["lsn"])
    assert ends[1:] == three.ends


def test_what_is_durable_in_the_checkpoint_is_released(three: LogScript) -> None:
    log = ChangeLog.open(three.path)
    found = open_offsets(three, consumer="bi")
    found.initial()
    assert log.released() == {"bi": three.start}
    found.latest(at(three.ends[0]), None, None)
    assert log.released() == {"bi": three.ends[0]}
    found.committed(at(three.ends[1]))
    assert log.released() == {"bi": three.ends[1]}
    found.latest(at(three.ends[0]), None, None)
    assert log.released() == {"bi": three.ends[1]}


def test_spark_4_0_says_no_start_and_batches_go_on_from_the_last_end(three: LogScript) -> None:
    found = open_offsets(three)
    found.initial()
    assert found.latest(None, None, 3) == at(three.ends[0])
    assert found.latest(None, None, 3) == at(three.ends[1])


def test_spark_4_0_after_a_restart_is_not_limited_before_it_plans(three: LogScript) -> None:
    assert open_offsets(three).latest(None, None, 1) == at(three.ends[2])
    planned = open_offsets(three)
    planned.planned(at(three.ends[0]))
    assert planned.latest(None, None, 1) == at(three.ends[1])


def test_a_trimmed_log_begins_later_and_refuses_what_is_gone(three: LogScript) -> None:
    log = ChangeLog.open(three.path)
    log.release("bi", three.ends[1])
    assert log.trim(retention_s=0) == 1
    found = open_offsets(three)
    assert found.initial() == at(three.ends[1])
    with pytest.raises(LogMismatchError, match="no longer holds"):
        found.latest(at(three.start), None, 1)


class Time:
    """A clock that only a sleep moves, and what happens then."""

    def __init__(self, happens: dict[float, Callable[[], object]] | None = None) -> None:
        self.now = 0.0
        self._happens = happens or {}

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds
        for at in [at for at in self._happens if at <= self.now]:
            self._happens.pop(at)()


def waiting(log: LogScript, time: Time) -> Offsets:
    return Offsets(ChangeLog.open(log.path), SourceOptions(log.path, trigger_s=0.2), lambda: time.now, time.sleep)


def test_spark_is_kept_waiting_until_there_is_something_new(log: LogScript) -> None:
    time = Time({0.3: lambda: log.transactions([relation(), insert(1, "a")])})
    assert waiting(log, time).latest(at(log.start), None, None) == at(log.ends[0])
    assert 0.3 <= time.now < 0.4


def test_it_is_not_kept_waiting_longer_than_a_stop_may_take(log: LogScript) -> None:
    time = Time()
    assert waiting(log, time).latest(at(log.start), None, None) == at(log.start)
    assert time.now == pytest.approx(offsets.WAIT_SECONDS)


def test_the_longer_it_was_quiet_the_longer_spark_is_kept_waiting(log: LogScript) -> None:
    time = Time()
    found, waits = waiting(log, time), list[float]()
    while time.now < 60:
        before = time.now
        found.latest(at(log.start), None, None)
        waits.append(time.now - before)
    assert waits[0] == pytest.approx(offsets.WAIT_SECONDS)
    assert waits[-1] == pytest.approx(offsets.IDLE_WAIT_SECONDS)
    assert all(later >= earlier - 0.001 for earlier, later in pairwise(waits))


def test_a_batch_begins_so_long_after_the_one_before_it_at_the_earliest(three: LogScript) -> None:
    time = Time()
    found = waiting(three, time)
    assert found.latest(at(three.start), None, 4) == at(three.ends[0])
    assert time.now == 0
    assert found.latest(at(three.ends[0]), None, 4) == at(three.ends[1])
    assert 0.2 <= time.now < 0.23
    assert found.latest(at(three.ends[1]), None, None) == at(three.ends[2])
    assert 0.4 <= time.now < 0.45


def test_a_batch_may_begin_later_than_spark_is_kept_waiting(three: LogScript) -> None:
    time = Time()
    found = Offsets(ChangeLog.open(three.path), SourceOptions(three.path, trigger_s=2.0), lambda: time.now, time.sleep)
    assert found.latest(at(three.start), None, 4) == at(three.ends[0])
    answers = []
    while time.now < 2.0:
        answers.append(found.latest(at(three.ends[0]), None, None))
    assert answers[:-1] == [at(three.ends[0])] * 3
    assert answers[-1] == at(three.ends[2])


def test_what_is_there_at_the_start_is_not_waited_for(three: LogScript) -> None:
    time = Time()
    found = waiting(three, time)
    found.stop_at_newest()
    assert found.latest(at(three.start), None, None) == found.latest(at(three.ends[2]), None, None) == at(three.ends[2])
    assert time.now == 0
