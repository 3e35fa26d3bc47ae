"""What the catalog says of a table beside its rows comes into the lake with it, and stays."""

from __future__ import annotations

import json
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.pipeline.conftest import Site
from wal2lake.tables.asking import ask

pytestmark = pytest.mark.server


def said(site: Site) -> tuple[dict[str, dict[str, Any]], Any]:
    table = DeltaTable(str(site.folder_of_lake("t")))
    fields = json.loads(table.schema().to_json())["fields"]
    return {field["name"]: {**field["metadata"], "nullable": field["nullable"]} for field in fields}, table.metadata()


def test_types_labels_comments_and_the_key_travel(site: Site) -> None:
    site.sql(
        "CREATE TYPE mood AS ENUM ('sad', 'très \"ok\"')",
        "CREATE TABLE t (id int PRIMARY KEY, n numeric(10,2) NOT NULL, m mood[])",
        "COMMENT ON TABLE t IS 'Ünsere \"Zeilen\"'",
        "COMMENT ON COLUMN t.n IS 'net'",
        "INSERT INTO t VALUES (1, 1, '{sad}')",
    )
    site.publish("t")
    site.run()
    expected = {
        "id": {"postgres.type": "integer", "postgres.key": "1", "nullable": False},
        "n": {"postgres.type": "numeric(10,2)", "comment": "net", "nullable": True},
        "m": {"postgres.type": "public.mood[]", "postgres.labels": '["sad", "très \\"ok\\""]', "nullable": True},
    }
    fields, table = said(site)
    assert fields == expected
    assert table.description == 'Ünsere "Zeilen"'
    site.sql("ALTER TABLE t ADD COLUMN x int DEFAULT 7", "UPDATE t SET n = 2", "INSERT INTO t VALUES (2, 3, NULL)")
    site.run()
    fields, _ = said(site)
    assert {name: fields[name] for name in expected} == expected
    assert site.lake_table("public.t")["x"].to_pylist() == [7, 7]
    site.sql(
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (n)",
        "COMMENT ON TABLE t IS 'other'",
        "COMMENT ON COLUMN t.n IS NULL",
    )
    ask(site.config, ["public.t"], "resync")
    site.run()
    fields, table = said(site)
    assert fields["n"] == {
        "postgres.type": "numeric(10,2)",
        "postgres.key": "1",
        "nullable": True,
    }  # NaN may be NULL by policy
    assert fields["id"] == {"postgres.type": "integer", "nullable": True}
    assert (fields["x"]["postgres.type"], table.description) == ("integer", "other")
