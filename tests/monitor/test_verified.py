"""What verify found is left for others to show, as it goes on and however it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from wal2lake.changelog.format import LogIdentity
from wal2lake.changelog.log import ChangeLog
from wal2lake.errors import VerifyError
from wal2lake.lsn import LSN
from wal2lake.monitor.verified import Verified, VerifyRecord, read_verified
from wal2lake.verify.report import KeyRange, TableResult, VerifyReport

LSN_ = LSN(0x10)
RANGE = KeyRange("id", 1, 9, 5, 4, ("price",))


@pytest.fixture
def log(tmp_path: Path) -> str:
    ChangeLog.create(tmp_path / "log", LogIdentity("1", 1, "postgres", "s", "p", LSN_))
    return str(tmp_path / "log")


def result(name: str, *ranges: KeyRange) -> TableResult:
    return TableResult("shop", name, LSN_, 1, 5, 5 - len(ranges), 2, ranges, 1.0)


def read(log: str) -> Verified:
    found = read_verified(log)
    assert found is not None
    return found


def test_a_run_is_told_from_its_beginning_to_its_end(log: str) -> None:
    assert read_verified(log) is None
    record = VerifyRecord(log)
    with record.recording():
        assert read(log).state == "running"
        record.said("Waiting for the lake.")
        assert read(log).said == "Waiting for the lake."
        record.found(VerifyReport(LSN_, (result("a"), result("b", RANGE))), whole=True)
    found = read(log)
    assert (found.state, found.ok, found.lsn, list(found.tables)) == ("done", False, "0/10", ["shop.a", "shop.b"])
    assert found.tables["shop.b"]["outcome"] == "different"
    assert found.tables["shop.b"]["bad_ranges"][0]["columns"] == ["price"]


def test_some_tables_take_only_their_places(log: str) -> None:
    for names, whole in ((("a", "b"), True), (("b",), False), (("c",), True)):
        record = VerifyRecord(log)
        with record.recording():
            record.found(VerifyReport(LSN_, tuple(result(name) for name in names)), whole=whole)
        assert list(read(log).tables) == (["shop.c"] if names == ("c",) else ["shop.a", "shop.b"])


def test_how_a_run_without_a_result_ended(log: str) -> None:
    record = VerifyRecord(log)
    with pytest.raises(VerifyError), record.recording():
        raise VerifyError("No snapshot fits.")
    assert (read(log).state, read(log).said) == ("failed", "No snapshot fits.")


def test_of_two_at_once_the_first_is_recorded_and_one_that_is_killed_died(log: str) -> None:
    first, second = VerifyRecord(log), VerifyRecord(log)
    with first.recording(), second.recording():
        second.said("Never mind.")
        assert read(log).said == ""
    assert read(log).state == "died", "it ended, and did not say how"


def test_without_a_log_verify_says_so_itself(tmp_path: Path) -> None:
    record = VerifyRecord(str(tmp_path / "none"))
    with record.recording():
        record.said("Nothing.")
    assert read_verified(str(tmp_path / "none")) is None and not (tmp_path / "none").exists()
