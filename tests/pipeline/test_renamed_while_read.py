"""COPY finds a table by its name at that moment, whatever the snapshot sees: only this very table's rows count."""

from __future__ import annotations

import pytest

import wal2lake.pipeline.snapshots
from tests.pipeline.conftest import Site
from wal2lake.pipeline.snapshots import copy_chunk
from wal2lake.tables.chunk_copy import CopyTask

pytestmark = pytest.mark.server

SWAPPED = ("ALTER TABLE t RENAME TO away", "ALTER TABLE other RENAME TO t")
BACK = ("ALTER TABLE t RENAME TO other", "ALTER TABLE away RENAME TO t")
WAYS = {  # what is done after the plan and before the COPY, and after it
    "another table's rows": (SWAPPED, BACK),
    "another schema's": (
        ("ALTER SCHEMA shop RENAME TO away", "ALTER SCHEMA spare RENAME TO shop"),
        ("ALTER SCHEMA shop RENAME TO spare", "ALTER SCHEMA away RENAME TO shop"),
    ),
    "a table of another shape": ((*SWAPPED, "ALTER TABLE t DROP COLUMN v"), BACK),
    "no table": (("ALTER TABLE t RENAME TO away",), ("ALTER TABLE away RENAME TO t",)),
    "a column renamed": (("ALTER TABLE t RENAME v TO w",), ()),
    "a column renamed and back": (("ALTER TABLE t RENAME v TO w",), ("ALTER TABLE t RENAME w TO v",)),
    "two columns swapped": (
        ("ALTER TABLE t RENAME v TO x", "ALTER TABLE t RENAME u TO v", "ALTER TABLE t RENAME x TO u"),
        (),
    ),
    "a column dropped": (("ALTER TABLE t DROP COLUMN v",), ()),
    "a column in its place": (("ALTER TABLE t DROP COLUMN v", "ALTER TABLE t ADD v text DEFAULT 'new'"), ()),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_read_is_this_table(site: Site, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    before, after = (list(statements) for statements in WAYS[way])
    site.sql("CREATE SCHEMA shop", "CREATE SCHEMA spare", "SET search_path = shop, spare")
    for table, row in (("shop.t", "(1, 'u', 'v')"), ("spare.t", "(2, '-', 'spare')"), ("shop.other", "(3, '-', '-')")):
        site.sql(f"CREATE TABLE {table} (id int PRIMARY KEY, u text, v text)", f"INSERT INTO {table} VALUES {row}")
    site.publish("shop.t")

    def disturbed(task: CopyTask) -> int:
        site.sql(*before)
        before.clear()
        try:
            return copy_chunk(task)
        finally:
            site.sql(*after)
            after.clear()

    monkeypatch.setattr(wal2lake.pipeline.snapshots, "copy_chunk", disturbed)
    site.run()
    site.sql("INSERT INTO shop.t (id) VALUES (4)")
    site.run()
    assert site.state("shop.t").quarantine is None
    site.same("shop.t")
