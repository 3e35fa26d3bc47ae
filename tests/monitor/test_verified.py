"""What verify found is left for others to show, as it goes on and however it ends."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from wal2lake.changelog.format import LogIdentity
from wal2lake.changelog.log import ChangeLog
from wal2lake.config import Config, LogConfig
from wal2lake.errors import ConfigError, VerifyError
from wal2lake.lsn import LSN
from wal2lake.monitor.verified import Verified, VerifyRecord, differences, read_verified
from wal2lake.postgres.snapshot import SnapshotIdentity
from wal2lake.tables.state import Landed, Quarantine, Stage, TableState
from wal2lake.tables.table_folder import TableFolder
from wal2lake.verify.report import KeyRange, TableResult, VerifyReport, uncompared

LSN_ = LSN(0x10)
RANGE = KeyRange("id", 1, 9, 5, 4, ("price",))


@pytest.fixture
def log(tmp_path: Path) -> str:
    ChangeLog.create(tmp_path / "log", LogIdentity("1", 1, "postgres", "s", "p", LSN_))
    return str(tmp_path / "log")


def of(log: str) -> Config:
    return Config(log=LogConfig(path=log))


def result(name: str, *ranges: KeyRange) -> TableResult:
    return TableResult("shop", name, LSN_, 1, 5, 5 - len(ranges), 2, ranges, 1.0)


def read(log: str) -> Verified:
    found = read_verified(log)
    assert found is not None
    return found


def test_a_run_is_told_from_its_beginning_to_its_end(log: str) -> None:
    assert read_verified(log) is None
    record = VerifyRecord(of(log))
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
        record = VerifyRecord(of(log))
        with record.recording():
            record.found(VerifyReport(LSN_, tuple(result(name) for name in names)), whole=whole)
        assert list(read(log).tables) == (["shop.c"] if names == ("c",) else ["shop.a", "shop.b"])


def test_how_a_run_without_a_result_ended(log: str) -> None:
    record = VerifyRecord(of(log))
    with pytest.raises(VerifyError), record.recording():
        raise VerifyError("No snapshot fits.")
    assert (read(log).state, read(log).said) == ("failed", "No snapshot fits.")


def test_a_slip_takes_nothing_from_what_was_found(log: str) -> None:
    with (record := VerifyRecord(of(log))).recording():
        record.found(VerifyReport(LSN_, (result("a"),)), whole=True)
    found = read(log)
    with pytest.raises(ConfigError), VerifyRecord(of(log)).recording():
        raise ConfigError("shop.x is not published.")
    assert read(log) == found


def test_of_two_at_once_the_first_is_recorded_and_one_that_is_killed_died(log: str) -> None:
    first, second = VerifyRecord(of(log)), VerifyRecord(of(log))
    with first.recording(), second.recording():
        second.said("Never mind.")
        assert read(log).said == ""
    assert read(log).state == "died", "it ended, and did not say how"


def test_without_a_log_verify_says_so_itself(tmp_path: Path) -> None:
    record = VerifyRecord(of(str(tmp_path / "none")))
    with record.recording():
        record.said("Nothing.")
    assert read_verified(str(tmp_path / "none")) is None and not (tmp_path / "none").exists()


# -- a difference is a finding until something proves that it is over


def landed(plan_id: str, stage: Stage = "ready", **values: Any) -> TableState:
    snapshot = SnapshotIdentity("s", 5, 5, (), LSN_)
    return TableState(stage, landed=Landed(plan_id, LSN_, (snapshot,)), **values)


def compared(log: str, *results: TableResult, whole: bool = True) -> None:
    record = VerifyRecord(of(log))
    with record.recording():
        record.found(VerifyReport(LSN_, results), whole=whole)


def found(log: str) -> list[tuple[str, str]]:
    return [problem.key for problem in differences(of(log))]


DIFFERENT = [("table_different", "shop.b")]
UNCOMPARED = [
    (uncompared("shop", "b", LSN_, "It is not in the lake."), True),
    (uncompared("shop", "b", LSN_, "Left out.", "quarantined"), True),
    (uncompared("shop", "b", LSN_, "Left out.", "skipped"), False),
    (uncompared("shop", "b", LSN_, "It left.", "not published"), False),
]


@pytest.fixture
def differs(log: str) -> TableFolder:
    """The table b, which is in the lake and was found to be different."""
    folder = TableFolder(log, "wal2lake", "shop", "b")
    folder.write(landed("first"))
    assert found(log) == []
    compared(log, result("a"), result("b", RANGE))
    assert found(log) == DIFFERENT
    return folder


def test_what_is_said_of_a_difference_names_counts_and_cure_and_no_key(log: str, differs: TableFolder) -> None:
    (problem,) = differences(of(log))
    assert problem.startswith("shop.b differs from its source: verify found so at 0/10, 0 s ago (5 rows in the source,")
    assert "wal2lake resync" in problem and "price" not in problem and " id " not in problem


def test_a_difference_is_over_when_the_table_is_found_equal(log: str, differs: TableFolder) -> None:
    compared(log, result("a"), whole=False)
    assert found(log) == DIFFERENT, "another table is no proof"
    compared(log, result("b"), whole=False)
    assert found(log) == []


@pytest.mark.parametrize(("result_", "stays"), UNCOMPARED, ids=lambda value: getattr(value, "outcome", value))
def test_a_table_that_was_not_compared_is_not_found_equal(
    log: str, differs: TableFolder, result_: TableResult, stays: bool
) -> None:
    compared(log, result_)
    assert found(log) == (DIFFERENT if stays else [])


def test_of_two_at_once_each_leaves_its_differences(log: str) -> None:
    """One may be the page's, of all tables, and one somebody's of a single table."""
    first, second = VerifyRecord(of(log)), VerifyRecord(of(log))
    with first.recording(), second.recording():
        second.found(VerifyReport(LSN_, (result("b", RANGE),)), whole=False)
        assert (found(log), read(log).state) == (DIFFERENT, "running")
        first.said("Waiting for the lake.")
        first.found(VerifyReport(LSN_, (result("a"),)), whole=False)
    assert (found(log), read(log).state, list(read(log).tables)) == (DIFFERENT, "done", ["shop.a"])


def test_of_many_that_end_at_the_same_moment_each_leaves_its_differences(log: str) -> None:
    begin = threading.Barrier(8)

    def run(number: int) -> None:
        record = VerifyRecord(of(log))
        begin.wait()
        record.found(VerifyReport(LSN_, (result(f"t{number}", RANGE),)), whole=False)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(8)))
    assert sorted(read(log).differences) == [f"shop.t{number}" for number in range(8)]


def test_a_verify_that_ends_without_a_result_proves_nothing(log: str, differs: TableFolder) -> None:
    with pytest.raises(VerifyError), VerifyRecord(of(log)).recording():
        raise VerifyError("No snapshot fits.")
    assert found(log) == DIFFERENT


def test_a_difference_is_over_when_all_rows_were_read_anew(log: str, differs: TableFolder) -> None:
    """Not when somebody asks for that, nor while it goes on: until then the lake has the rows that differ."""
    for state in (TableState("init", LSN_), TableState("data_copy", LSN_), landed("first", "catch_up", needs_lsn=LSN_)):
        differs.write(state)
        assert found(log) == DIFFERENT, state.stage
    differs.write(landed("second", "catch_up", needs_lsn=LSN_))
    assert found(log) == []
    compared(log, result("b", RANGE), whole=False)
    assert found(log) == DIFFERENT, "the new rows were compared"


def test_a_table_that_somebody_wants_left_out_is_no_finding_and_one_that_is_gone_none(
    log: str, differs: TableFolder
) -> None:
    differs.write(landed("first", "quarantined", quarantine=Quarantine("", "", 0.0, skipped=True)))
    assert found(log) == []
    differs.write(landed("first"))
    assert found(log) == DIFFERENT
    compared(log, result("a"))
    assert found(log) == [], "a verify of all does not know it any more"


def test_what_cannot_be_read_does_not_end_a_difference(log: str, differs: TableFolder) -> None:
    (state,) = Path(log).rglob("state.json")
    state.write_bytes(b"torn")
    assert found(log) == DIFFERENT
