"""A consumer that never comes back is seen and can be forgotten; what somebody still needs stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.changelog.test_retention import fill
from wal2lake.changelog.consumers import forget_consumer, list_consumers
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.writer import LogWriter
from wal2lake.config import Config
from wal2lake.errors import ConfigError, SlotInUseError
from wal2lake.lsn import LSN
from wal2lake.tables.exclusive import exclusive
from wal2lake.tables.state import TableState
from wal2lake.tables.table_folder import TableFolder


@pytest.fixture
def log(open_writer: Callable[..., LogWriter]) -> ChangeLog:
    """Three transactions in two segments each. The pipeline "shop" has passed them all, others have not."""
    with open_writer() as writer:
        ends = fill(writer, 3)
        log = ChangeLog.open(writer.log.storage.root)
    for name, end in (("shop", ends[2]), ("old", ends[1]), ("older", ends[1])):
        log.release(name, end)
    TableFolder(log.storage, "old", "public", "t").write(TableState("catch_up", LSN(ends[0])))
    return log


def test_the_one_that_holds_back_most_comes_first(log: ChangeLog) -> None:
    found = list(list_consumers(log))
    assert [consumer["consumer"] for consumer in found] == ["old@public.t", "old", "older", "shop"]
    assert [consumer["behind_bytes"] for consumer in found] == [48, 24, 24, 0]
    assert found[3]["released_lsn"] == str(LSN(log.last_end_lsn))


def test_a_pipeline_is_forgotten_with_its_claims_and_the_log_is_trimmed(log: ChangeLog) -> None:
    assert log.trim(0) == 2
    assert forget_consumer(log, "old", "shop") == ["old", "old@public.t"]
    assert forget_consumer(log, "older", "shop") == ["older"]
    assert log.trim(0) == 3
    assert list(log.released()) == ["shop"]


def test_claims_may_be_left_of_a_pipeline_that_is_forgotten(log: ChangeLog) -> None:
    log.forget("old")
    assert forget_consumer(log, "old", "shop") == ["old@public.t"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ol", "has no consumer ol.*shop"),
        ("../log", "has no consumer"),
        ("shop", "is the pipeline that is configured"),
        ("old@public.t", "keeps what the table public.t needs"),
    ],
)
def test_what_is_not_there_or_still_needed_is_not_forgotten(log: ChangeLog, name: str, message: str) -> None:
    before = log.released()
    with pytest.raises(ConfigError, match=message) as refused:
        forget_consumer(log, name, "shop")
    assert refused.value.hint
    assert log.released() == before


def test_a_pipeline_that_runs_is_not_forgotten(log: ChangeLog) -> None:
    config = Config.from_dict({"log": {"path": str(log.storage.root)}, "pipeline": {"name": "old"}})
    with exclusive(config), pytest.raises(SlotInUseError, match="'old' runs"):
        forget_consumer(log, "old", "shop")
    assert forget_consumer(log, "old", "shop")


def test_a_log_without_consumers_says_so(open_writer: Callable[..., LogWriter]) -> None:
    with open_writer() as writer, pytest.raises(ConfigError, match="has no consumer shop"):
        forget_consumer(writer.log, "shop", "shop")
