"""What a quarantined table has missed is applied in steps of a batch's size; whoever dies between two goes on there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.pipeline.conftest import Site, run_here
from wal2lake.changelog.log import ChangeLog
from wal2lake.errors import SchemaChangeError, UnrepresentableError

pytestmark = pytest.mark.server


@pytest.fixture
def behind(left_out: Site) -> Site:
    """public.a is left out at its first change, and ten more have followed; public.b has gone on."""
    site = left_out
    for number in range(1, 11):
        site.sql(f"INSERT INTO a VALUES ({number}, NULL)", f"INSERT INTO b VALUES ({number})")
    with pytest.raises(UnrepresentableError):
        site.run()
    site.same("public.b")
    site.configure_pipeline(unrepresentable="null", max_bytes_per_trigger=100)  # about two of these inserts
    return site


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The (start, end] of every task of a batch, in order."""
    done: list[tuple[int, int]] = []

    def spy(spark: Any, task: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        done.extend((item.batch.start, item.batch.end) for item in items)
        if items and len(done) == 3:
            raise KeyboardInterrupt
        return run_here(spark, task, items)

    monkeypatch.setattr("tests.pipeline.conftest.LocalJobs.apply", spy)
    return done


def quarantine_lsn(site: Site) -> int:
    state = site.state("public.a")
    assert state.quarantine is not None
    assert state.needs_lsn is not None
    return state.needs_lsn


def test_a_backlog_is_applied_step_by_step(behind: Site, steps: list[tuple[int, int]]) -> None:
    site = behind
    before = quarantine_lsn(site)
    with pytest.raises(KeyboardInterrupt):
        site.run()
    assert before < (site.state("public.a").needs_lsn or 0) == steps[2][0], "the two steps that were done are durable"
    assert ChangeLog.open(site.config.log.path).released()["wal2lake@public.a"] == steps[2][0]
    site.run()
    assert steps[3] == steps[2], "it goes on with the step that was not done"
    assert len(steps) > 5
    assert sorted(site.lake("public.a")) == [(number, None) for number in range(11)]
    assert site.state("public.a").quarantine is None


def test_a_step_that_fails_leaves_the_table_out_from_there(behind: Site) -> None:
    site = behind
    site.sql("INSERT INTO b VALUES (11)")
    site.configure_pipeline(max_bytes_per_trigger=1)
    before = quarantine_lsn(site)
    site.run()
    site.same("public.b")
    site.sql("INSERT INTO a VALUES (12, NULL)", "ALTER TABLE a RENAME day TO days", "INSERT INTO a VALUES (13, NULL)")
    with pytest.raises(SchemaChangeError, match="renamed"):
        site.run()
    assert quarantine_lsn(site) > before
    left = site.lake("public.a")
    with pytest.raises(SchemaChangeError, match="renamed"):
        site.run()
    assert site.lake("public.a") == left and (10, None) in left, "the next start finds it as it was left"
