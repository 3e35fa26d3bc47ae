"""A table that could not be followed is read anew when asked for, and nothing else changes meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.pipeline.conftest import Site
from wal2lake.changelog.log import ChangeLog
from wal2lake.errors import ConfigError, SchemaChangeError, SlotInUseError
from wal2lake.tables.exclusive import exclusive
from wal2lake.tables.resync import resync

pytestmark = pytest.mark.server


@pytest.fixture
def renamed(site: Site) -> Site:
    """t is quarantined for a renamed column, other goes on."""
    site.sql("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE TABLE other (id int PRIMARY KEY)")
    site.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    site.publish("t", "other")
    site.run()
    site.sql("ALTER TABLE t RENAME v TO w", "UPDATE t SET w = 'c' WHERE id = 1", "INSERT INTO other VALUES (1)")
    with pytest.raises(SchemaChangeError, match="wal2lake resync"):
        site.run()
    return site


def test_a_quarantined_table_is_read_anew(renamed: Site) -> None:
    site = renamed
    others_version = DeltaTable(f"{site.config.lake.path}/public/other").version()
    moved = resync(site.config, ["public.t"])
    aside = moved["public.t"]
    assert aside is not None
    assert DeltaTable(str(aside)).to_pyarrow_table().column_names == ["id", "v"]
    assert site.state("public.t").quarantine is None
    assert list(ChangeLog.open(site.config.log.path).released()) == []
    site.sql("DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (3, 'd')")
    site.run()
    site.same("public.t", "public.other")
    assert site.lake_table("public.t").column_names == ["id", "w"]
    assert DeltaTable(f"{site.config.lake.path}/public/other").version() == others_version
    site.sql("UPDATE t SET w = NULL WHERE id = 3")
    site.run()
    site.same("public.t")


def test_whoever_dies_in_the_middle_is_continued(renamed: Site) -> None:
    """The old table had moved, the log's folder still knew the table: resync goes on."""
    site = renamed
    lake = Path(site.config.lake.path) / "public" / "t"
    lake.rename(lake.with_name("t~replaced"))
    with pytest.raises(SchemaChangeError, match="wal2lake resync"):
        site.run()
    assert resync(site.config, ["public.t"]) == {"public.t": None}
    site.run()
    site.same("public.t", "public.other")


def test_nothing_moves_when_a_name_is_unknown_or_the_pipeline_runs(renamed: Site) -> None:
    site = renamed
    with pytest.raises(ConfigError, match=r"knows no table public\.x.*public\.other, public\.t"):
        resync(site.config, ["public.t", "public.x"])
    with exclusive(site.config), pytest.raises(SlotInUseError, match="Another process"):
        resync(site.config, ["public.t"])
    assert site.lake_table("public.t").column_names == ["id", "v"]
