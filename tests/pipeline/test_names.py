"""Names that only quoting keeps apart are two tables everywhere: in memory, in the log's folder, in the lake."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable

from tests.pipeline.conftest import Site
from wal2lake.sinks.folder import table_uri

pytestmark = pytest.mark.server

TABLES = {("a.b", "c"): '"a.b".c', ("a", "b.c"): 'a."b.c"'}


def test_a_dot_in_a_name_makes_no_two_tables_one(site: Site) -> None:
    site.sql('CREATE SCHEMA "a.b"', "CREATE SCHEMA a")
    for name in TABLES.values():
        site.sql(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)", f"INSERT INTO {name} VALUES (1, '{name}')")
    site.publish(*TABLES.values())
    site.run()
    for name in TABLES.values():
        site.sql(f"INSERT INTO {name} VALUES (2, 'to {name}')")
    site.run()
    for (namespace, name), sql in TABLES.items():
        lake = DeltaTable(table_uri(site.config.lake.path, namespace, name)).to_pyarrow_table()
        assert sorted(map(tuple, (row.values() for row in lake.to_pylist()))) == site.source(sql)
