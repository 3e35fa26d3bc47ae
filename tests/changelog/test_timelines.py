"""Which timeline continues which, and a log that is cut back to where one was left: it ends there, without a gap."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.changelog.conftest import IDENTITY
from wal2lake.capture.frames import without_headers
from wal2lake.changelog.dump import verify_log
from wal2lake.changelog.local import LocalStorage
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.timelines import Timeline, newest_timeline, record_timeline
from wal2lake.changelog.writer import LogWriter
from wal2lake.errors import LogCorruptError, LogMismatchError
from wal2lake.lsn import LSN
from wal2lake.testing.stream import ScriptedStream, insert

A, B, C, D = (LSN(0x1000 * number) for number in range(1, 5))
SECOND, THIRD = Timeline(2, ((1, A),)), Timeline(3, ((1, A), (2, B)))
CASES = [
    (SECOND, SECOND, True),
    (THIRD, SECOND, True),
    (Timeline(7, ((1, A), (2, B), (5, C))), SECOND, True),
    (Timeline(7, ((1, A), (2, B), (5, C))), THIRD, False),  # 7 left 2 as well, but for 5
    (Timeline(2, ((1, B),)), SECOND, False),  # another server was promoted elsewhere, and calls itself 2 too
    (Timeline(3, ((1, B), (2, C))), SECOND, False),
    (Timeline(3, ((1, A),)), SECOND, False),  # a sister of 2
    (SECOND, THIRD, False),
    (Timeline(3, ((1, A), (2, C))), THIRD, False),
    (Timeline(4, ((1, A), (2, B), (3, D))), THIRD, True),
]


@pytest.mark.parametrize(("later", "earlier", "continues"), CASES)
def test_which_timeline_continues_which(later: Timeline, earlier: Timeline, continues: bool) -> None:
    assert later.continues(earlier) == continues


def test_a_log_is_of_the_timeline_that_it_followed_last(tmp_path: Path) -> None:
    log = ChangeLog.create(tmp_path, IDENTITY)
    assert newest_timeline(log.storage) is None
    for timeline in (SECOND, THIRD, Timeline(0x1F, (*THIRD.switches, (3, C)))):
        record_timeline(log.storage, timeline)
        assert newest_timeline(log.storage) == timeline
        assert ChangeLog.open(tmp_path).identity.timeline == timeline.number
    seen = [(1, A), (1, A + 1), (2, B), (2, B + 1), (3, C + 1), (0x1F, D), (0, A + 1), (9, D)]
    assert [timeline.left_behind(*at) for at in seen] == [False, True, False, True, True, False, True, False]
    (tmp_path / "timelines" / "0000001F.json").write_bytes(b"torn")
    with pytest.raises(LogCorruptError, match=r"timelines/0000001F\.json"):
        ChangeLog.open(tmp_path)
    assert [fault for fault in verify_log(log.storage) if "timelines/0000001F.json cannot be read" in fault]


def test_a_log_that_is_removed_leaves_its_timelines_to_none(tmp_path: Path) -> None:
    log = ChangeLog.create(tmp_path / "log", IDENTITY)
    record_timeline(log.storage, SECOND)
    assert LocalStorage(tmp_path / "log").clear()
    assert not (tmp_path / "log").exists()
    assert ChangeLog.create(tmp_path / "log", IDENTITY).identity == IDENTITY


class DiesAfter(LocalStorage):
    """So many objects can be removed."""

    def __init__(self, root: Path, removals: int) -> None:
        super().__init__(root)
        self._left = removals

    def remove(self, name: str) -> None:
        if not self._left:
            raise InterruptedError
        self._left -= 1
        super().remove(name)


@given(
    sizes=st.lists(st.integers(0, 3), min_size=2, max_size=6),
    cuts=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    idle=st.booleans(),
    forks=st.integers(0, 1000),
    dies=st.integers(0, 6),
)
@settings(max_examples=80, deadline=None)
def test_a_log_that_is_cut_ends_there_and_misses_nothing(
    sizes: list[int], cuts: list[int], idle: bool, forks: int, dies: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path, stream = tmp_path_factory.mktemp("log"), ScriptedStream()
    sent = [stream.transaction(*(insert(number, "x") for number in range(size))) for size in sizes]
    flat = [message for transaction in sent for message in transaction]
    with LogWriter(path, IDENTITY) as writer:
        while flat:
            cut = cuts[len(flat) % len(cuts)]
            writer.append(without_headers(flat[:cut]))
            flat = flat[cut:]
        if idle:
            writer.set_position(stream.lsn + 100)
    before = ChangeLog.open(path).transactions(0, 1 << 62)
    fork = IDENTITY.start_lsn + forks * (stream.lsn + 50 - IDENTITY.start_lsn) // 1000
    try:
        with LogWriter(DiesAfter(path, dies), IDENTITY) as writer:
            writer.cut(fork)
    except InterruptedError:
        with LogWriter(path, IDENTITY) as writer:
            writer.cut(fork)
    log = ChangeLog.open(path)
    after = log.transactions(0, 1 << 62)
    assert after.num_rows <= before.num_rows and after.equals(before.slice(0, after.num_rows))
    assert log.last_end_lsn <= fork or not after.num_rows
    missing = before["final_lsn"].to_pylist()[after.num_rows :]
    assert log.durable_lsn() <= min([fork, *missing])
    assert list(verify_log(log.storage)) == []
    again = ScriptedStream(stream.lsn + 0x1000)
    with LogWriter(path, IDENTITY) as writer:
        writer.append(without_headers(again.transaction(insert(1, "y"))))
    assert ChangeLog.open(path).transactions(0, 1 << 62).num_rows == after.num_rows + 1


def test_a_log_that_does_not_reach_back_is_not_cut(tmp_path: Path) -> None:
    stream = ScriptedStream()
    with LogWriter(tmp_path, IDENTITY) as writer:
        for number in range(3):
            writer.append(without_headers(stream.transaction(insert(number, "x"))))
        with pytest.raises(LogMismatchError, match=r"ends by 0/FFF\."):
            writer.cut(0xFFF)
    log = ChangeLog.open(tmp_path)
    log.release("reader", log.last_end_lsn)
    assert log.trim(0) == 2
    with LogWriter(tmp_path, IDENTITY) as writer, pytest.raises(LogMismatchError, match="Nothing that the change log"):
        writer.cut(log.last_end_lsn - 1)
