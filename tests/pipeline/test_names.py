"""Names that only quoting keeps apart are two tables everywhere: in memory, in the log's folder, in the lake."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable

from tests.pipeline.conftest import Site
from wal2lake.lakes import table_uri
from wal2lake.names import qualified
from wal2lake.tables.asking import ask
from wal2lake.tables.listing import list_tables

pytestmark = pytest.mark.server

LONG = "%" * 63, "/ö" * 21
TABLES = {("a.b", "c"): '"a.b".c', ("a", "b.c"): 'a."b.c"'}


def test_names_that_take_more_than_a_file_name_can_hold(site: Site) -> None:
    """Escaped they do, in the log's folder; and what somebody asks for has its place there too."""
    quoted = '"{}"."{}"'.format(*LONG)
    site.sql(f'CREATE SCHEMA "{LONG[0]}"', f"CREATE TABLE {quoted} (id int PRIMARY KEY)")
    site.sql(f"INSERT INTO {quoted} VALUES (1)")
    site.publish(quoted)
    site.run()
    ask(site.config, [qualified(*LONG)], "resync")
    site.sql(f"INSERT INTO {quoted} VALUES (2)")
    site.run()
    lake = DeltaTable(table_uri(site.config.lake.path, *LONG)).to_pyarrow_table()
    assert sorted(lake["id"].to_pylist()) == [1, 2]
    assert [table.table for table in list_tables(site.config)] == [qualified(*LONG)]


def test_a_column_whose_name_has_a_dot_lands_as_text_from_copy_and_stream(site: Site) -> None:
    site.sql('CREATE TABLE public."a.b" (id int PRIMARY KEY, "x.y" date)')
    site.sql("""INSERT INTO public."a.b" VALUES (1, 'infinity')""")
    site.publish('"a.b"')
    site.configure_pipeline(text_columns=('"public"."a.b"."x.y"',))
    site.run()
    site.sql("""INSERT INTO public."a.b" VALUES (2, '-infinity')""")
    site.run()
    lake = DeltaTable(table_uri(site.config.lake.path, "public", "a.b")).to_pyarrow_table()
    assert sorted(lake["x.y"].to_pylist()) == ["-infinity", "infinity"]


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
