"""A table that the lake has lost is noticed by the next look at any table, and a lake that is gone stops everything."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.pipeline.conftest import Site
from wal2lake.errors import SinkError
from wal2lake.sinks.base import TargetError
from wal2lake.tables.asking import ask
from wal2lake.tables.listing import list_tables

pytestmark = pytest.mark.server


@pytest.fixture
def three(site: Site) -> Site:
    """public.a, b and c are in the lake, each with a row; what cannot be followed is read anew."""
    site.configure_pipeline(on_unfollowable="resync")
    for table in "abc":
        site.sql(f"CREATE TABLE public.{table} (id int PRIMARY KEY)", f"INSERT INTO {table} VALUES (1)")
    site.publish("a", "b", "c")
    site.run()
    return site


def test_each_lost_table_is_read_anew_though_another_changes(three: Site) -> None:
    site = three
    for table in "ab":
        shutil.rmtree(site.folder_of_lake(table))
    batches = site.batches(site.log())
    batches.discover(site.position)
    stages = {row.table: (row.state, row.reason) for row in list_tables(site.config)}
    assert [stages[f"public.{table}"][0] for table in "abc"] == ["init", "init", "ready"]
    assert stages["public.a"][1].startswith(f"Read anew: The lake has lost the table at {site.folder_of_lake('a')}")
    site.sql("INSERT INTO c VALUES (2)")
    site.run()
    site.same("public.a", "public.b", "public.c")


def test_where_nothing_may_be_read_anew_it_is_left_out_at_once(three: Site) -> None:
    site = three
    site.configure_pipeline(on_unfollowable="quarantine")
    shutil.rmtree(site.folder_of_lake("a") / "_delta_log")
    with pytest.raises(TargetError, match=r"public\.a: The lake has lost the table"):
        site.run()
    assert [row.state for row in list_tables(site.config)] == ["quarantined", "ready", "ready"]


@pytest.mark.parametrize("how", ["put back", "told", "resynced"])
def test_a_lake_that_is_gone_is_not_made_again_somewhere_else(three: Site, tmp_path: Path, how: str) -> None:
    site, elsewhere = three, tmp_path / "elsewhere"
    lake = Path(site.config.lake.path)
    batches = site.batches(site.log())
    batches.discover(site.position)
    lake.rename(elsewhere)
    site.sql("INSERT INTO a VALUES (2)")
    with pytest.raises(SinkError, match=r"none of the 3 tables .* Mount its disk"):
        site.apply(batches)
    lake.mkdir()  # as where a disk is not mounted
    with pytest.raises(SinkError, match="none of the 3 tables"):
        site.run()
    lake.rmdir()
    assert [row.state for row in list_tables(site.config)] == ["ready"] * 3
    if how == "put back":
        elsewhere.rename(lake)
    elif how == "told":
        site.config = replace(site.config, lake=replace(site.config.lake, path=str(elsewhere)))
    else:
        ask(site.config, [], "resync")
    site.run()
    site.same("public.a", "public.b", "public.c")


def test_a_lake_of_one_table_has_lost_that_table(site: Site) -> None:
    site.configure_pipeline(on_unfollowable="resync")
    site.sql("CREATE TABLE public.a (id int PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    site.publish("a")
    site.run()
    shutil.rmtree(site.config.lake.path)
    site.run()
    site.same("public.a")
