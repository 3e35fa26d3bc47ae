"""Lakes of other formats, through the pipeline's own functions; and a format of one's own, as its page has it."""

from __future__ import annotations

import importlib
import json
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog

from tests.documents.shown import on_page, ran, run
from tests.pipeline.conftest import Site, SparkSite
from tests.sinks.test_delta import as_table
from tests.sinks.test_parquet import SCHEMA, history, land
from wal2lake.config import Config, LakeConfig
from wal2lake.errors import ConfigError
from wal2lake.sinks.factory import open_sink
from wal2lake.tables.asking import ask
from wal2lake.tables.listing import lake_tables
from wal2lake.tables.statements import Dialect, statements
from wal2lake.verify import verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.server

CHANGES = [("U", 1, None), ("D", 2, None), ("U", 20, None), ("D", 3, None), ("T", None, None), ("I", 4, 6)]


def settings(page: str) -> dict[str, Any]:
    """[lake] as the page shows it."""
    shown, *_ = [item for item in on_page(page, "toml") if "[lake]" in item.text]
    ran(shown)
    lake = tomllib.loads(shown.text)["lake"]
    del lake["path"]
    return dict(lake)


def change_much(site: Site, *others: str) -> None:
    """What CHANGES says, behind a snapshot of three rows; ``others`` are published as well."""
    site.sql("CREATE TABLE public.t (id int PRIMARY KEY, note text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    site.publish("t", *others)
    site.sql("INSERT INTO t VALUES (3, 'seen by the snapshot')")
    site.run()
    site.sql("UPDATE t SET note = 'c' WHERE id = 1", "UPDATE t SET id = 20 WHERE id = 2")
    site.capture()
    site.sql("ALTER TABLE t ADD COLUMN more int DEFAULT 5", "DELETE FROM t WHERE id = 3")
    Site.run(site)
    site.sql("TRUNCATE t", "INSERT INTO t VALUES (4, 'd', 6)")
    Site.run(site)


@pytest.mark.documents
def test_a_parquet_change_feed(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site.configure(tmp_path, lake={"path": str(tmp_path / "feed"), **settings("docs/parquet.md")})
    change_much(site)
    monkeypatch.chdir(tmp_path)
    [query] = on_page("docs/parquet.md", "sql")
    shown = query.text.replace("orders", "t")

    def rows() -> list[Any]:
        with duckdb.connect() as connection:
            return connection.sql(f"SELECT _op, id, more FROM ({shown}) ORDER BY _commit_lsn, _lsn").fetchall()

    assert sorted(rows()[:3]) == [("R", 1, None), ("R", 2, None), ("R", 3, None)]
    assert rows()[3:] == CHANGES
    ran(query)
    site.position = 0
    site.run()  # all batches once more
    assert rows()[3:] == CHANGES
    made = list(statements(lake_tables(site.config), Dialect.DUCKDB, "", "parquet"))
    with duckdb.connect() as connection:
        connection.execute("".join(made))
        assert connection.sql("SELECT count(*), max(after_lsn) > 0 FROM public.t").fetchall() == [(9, True)]
    for dialect in set(Dialect) - {Dialect.DUCKDB}:
        with pytest.raises(ConfigError, match=r"docs/parquet\.md"):
            list(statements(lake_tables(site.config), dialect, "", "parquet"))


@pytest.fixture
def iceberg(site: Site, tmp_path: Path) -> Catalog:
    """The catalog of the site's lake, when it is there."""
    site.configure(tmp_path, lake={"path": str(tmp_path / "lake"), **settings("docs/iceberg.md")})
    (tmp_path / "lake").mkdir()  # where SQLite makes the file
    return load_catalog("wal2lake", type="sql", uri=f"sqlite:///{tmp_path}/lake/_catalog.db")


KINDS = """
CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TYPE pair AS (a int2, b text[]);
CREATE TABLE public.kinds (id uuid, at timestamptz, small int2, PRIMARY KEY (id, at), price numeric(38, 9),
    huge numeric, day date, local timestamp, span interval, clock time, zoned timetz, amount money, raw bytea, oid oid,
    x xid8, f float4, d float8, flag bool, doc jsonb, inet inet, tags text[], grid int2[][], m mood, p pair,
    during tstzrange, many int4multirange)
"""
A_ROW = """
INSERT INTO kinds SELECT gen_random_uuid(), now() - i * interval '1 day', i, i + 0.000000001, 10 ^ 40 + i, '9999-12-31',
    '0001-01-01 00:00:00.000001', '-1 mon 2 days 3 us', '24:00', '12:00+05:30', i, '\\x00ff', 4294967295,
    '18446744073709551615', 'NaN', '-Infinity', true, '{"a": 1}', '10.0.0.0/8', '{a,NULL,""}', '{{1,2},{3,4}}', 'ok',
    '(7,"{x}")', '[2020-01-01,2021-01-01)', '{[1,3),[5,7)}' FROM generate_series(1, 3) i
"""


@pytest.mark.spark
def test_an_iceberg_mirror_equals_its_source(site: Site, iceberg: Catalog, spark: SparkSession) -> None:
    site.sql(*KINDS.split(";"), A_ROW)
    site.sql("CREATE TABLE public.t (id int PRIMARY KEY, note text)", "ALTER TABLE t ALTER note SET STORAGE EXTERNAL")
    site.sql("INSERT INTO t SELECT i, repeat(i::text, 5000) FROM generate_series(1, 9) i", "COMMENT ON TABLE t IS 'it'")
    site.publish("t", "kinds")
    site.run()
    site.sql(A_ROW, "DELETE FROM kinds WHERE small = 1", "UPDATE kinds SET small = small + 1, huge = NULL")
    site.sql("UPDATE t SET id = id + 100 WHERE id < 3", "DELETE FROM t WHERE id = 5", "INSERT INTO t VALUES (50, '')")
    site.run()
    site.sql(
        "ALTER TABLE t ADD COLUMN n int DEFAULT 7", "UPDATE t SET n = NULL WHERE id = 9", "ALTER TABLE t DROP note"
    )
    site.run()
    t = iceberg.load_table("public.t")
    assert (t.properties["comment"], t.schema().identifier_field_ids) == ("it", [1])
    rows = {row["id"]: (row["n"], row["note"] is None) for row in t.scan().to_arrow().to_pylist()}
    assert rows[102] == (7, False) and rows[9] == (None, False) and 5 not in rows
    report = verify(site.config, spark, timeout_s=5)
    assert report.ok, [(str(table), table.problem, table.bad_ranges) for table in report.tables]
    assert {table.name: table.rows_lake for table in report.tables} == {"t": 9, "kinds": 4}
    file = next(Path(task.file.file_path) for task in t.scan().plan_files())
    t.delete("id = 7")  # behind wal2lake's back
    report = verify(site.config, spark, ["public.t"], timeout_s=5)
    assert not report.ok and file.exists()


def test_an_iceberg_history(site: Site, iceberg: Catalog, tmp_path: Path) -> None:
    site.configure(tmp_path, lake={"format": "iceberg", "mode": "append"})
    change_much(site)
    site.position = 0
    site.run()  # all batches once more
    rows = (
        iceberg.load_table("public.t").scan().to_arrow().sort_by([("_commit_lsn", "ascending"), ("_lsn", "ascending")])
    )
    found = [tuple(row.values()) for row in rows.select(["_op", "id", "more"]).to_pylist()]
    assert sorted(found[:3]) == [("R", 1, None), ("R", 2, None), ("R", 3, None)] and found[3:] == CHANGES
    with pytest.raises(ConfigError, match=r"lake\.catalog"):
        list(statements(lake_tables(site.config), Dialect.SPARK, "", "iceberg"))
    with pytest.raises(ConfigError, match="history in append mode"):
        ask(site.config, ["public.t"], "resync")


@pytest.mark.documents
def test_an_iceberg_table_is_read_anew(
    site: Site, iceberg: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be followed is exchanged in one commit, and old snapshots keep what they had."""
    site.configure_pipeline(on_unfollowable="resync")
    site.sql("CREATE TABLE public.orders (id int PRIMARY KEY, v int)", "INSERT INTO orders VALUES (1, 1), (2, 2)")
    site.publish("orders")
    site.run()
    site.sql("ALTER TABLE orders ALTER v TYPE text USING 'v' || v", "INSERT INTO orders VALUES (3, 'new')")
    site.run()
    table = iceberg.load_table("public.orders")
    assert sorted(row["v"] for row in table.scan().to_arrow().to_pylist()) == ["new", "v1", "v2"]
    first = table.scan(snapshot_id=table.snapshots()[0].snapshot_id).to_arrow().to_pylist()
    assert sorted(row["v"] for row in first) == [1, 2]
    monkeypatch.chdir(tmp_path)
    [shown] = on_page("docs/iceberg.md", "python")
    names: dict[str, Any] = {}
    run(shown, names)
    assert sorted(names["orders"]["v"].to_pylist()) == ["new", "v2"]
    _, other = [item for item in on_page("docs/iceberg.md", "toml") if "[lake]" in item.text]
    (tmp_path / "wal2lake.toml").write_text(other.text)
    assert Config.load(tmp_path / "wal2lake.toml").lake.catalog == "prod"
    ran(other)


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Path]:
    """The package of docs/sinks.md, installed in a folder that Python looks into."""
    package, site = tmp_path / "package", tmp_path / "site"
    package.mkdir()
    [project] = [item for item in on_page("docs/sinks.md", "toml") if "[project]" in item.text]
    [module] = on_page("docs/sinks.md", "python")
    (package / "pyproject.toml").write_text(project.text)
    (package / "wal2lake_sqlite.py").write_text(module.text)
    uv = [Path(sys.executable).parent / "uv", "pip", "install", "--quiet", "--offline", "--no-deps"]
    options = ["--no-build-isolation", "--python", sys.executable, "--target", site, package]
    subprocess.run([*map(str, uv), *map(str, options)], check=True)
    sys.path.insert(0, str(site))
    importlib.invalidate_caches()
    yield site
    sys.path.remove(str(site))
    del sys.modules["wal2lake_sqlite"]
    ran(project)
    ran(module)


def in_sqlite(site: Site, folder: Path) -> None:
    """What docs/sinks.md's package has landed below ``folder``, after change_much and a row of public.u."""
    with closing(sqlite3.connect(folder / "history.sqlite")) as connection:
        rows = connection.execute('SELECT _op, id, more FROM "public.t" ORDER BY _commit_lsn, _lsn').fetchall()
        [(tags,)] = connection.execute('SELECT tags FROM "public.u"')
    assert sorted(rows[:3]) == [("R", 1, None), ("R", 2, None), ("R", 3, None)]
    assert rows[3:] == CHANGES
    assert json.loads(tags) == ["a", None]
    assert not list(folder.rglob("*.parquet"))


@pytest.mark.documents
@pytest.mark.usefixtures("installed")
def test_a_format_of_ones_own(site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "history"
    site.configure(tmp_path, lake={"path": str(folder), **settings("docs/sinks.md")})
    site.sql("CREATE TABLE public.u (id int PRIMARY KEY, tags text[])", "INSERT INTO u VALUES (1, '{a,NULL}')")
    change_much(site, "u")
    in_sqlite(site, folder)
    site.position = 0
    site.run()  # all batches once more
    in_sqlite(site, folder)
    site.configure(tmp_path, lake={"path": str(folder), "format": "sqlite"})
    with pytest.raises(ConfigError, match="sqlite can do append alone"):
        open_sink(site.config.lake, "p", "public", "t")


@pytest.mark.spark
@pytest.mark.formats
def test_a_format_of_ones_own_in_sparks_workers(
    spark_site: SparkSite, spark: SparkSession, installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, folder = spark_site, tmp_path / "history"
    monkeypatch.setitem(spark.sparkContext.environment, "PYTHONPATH", str(installed))
    site.configure(tmp_path, lake={"path": str(folder), **settings("docs/sinks.md")})
    site.sql("CREATE TABLE public.u (id int PRIMARY KEY, tags text[])", "INSERT INTO u VALUES (1, '{a,NULL}')")
    change_much(site, "u")
    in_sqlite(site, folder)


def test_a_format_that_nobody_has() -> None:
    with pytest.raises(ConfigError, match=r"lake\.format must be one of delta, iceberg, parquet\."):
        LakeConfig(format="hudi")


@pytest.mark.spark
@pytest.mark.documents
def test_spark_reads_a_parquet_change_feed(spark: SparkSession, tmp_path: Path) -> None:
    sink, more = history(tmp_path), SCHEMA.append(pa.field("more", pa.int32()))
    land(sink, [(1, "a")], 10, None)
    sink.write_files(as_table([(2, "staged")], SCHEMA).to_batches(), SCHEMA)
    sink.evolve(more)
    land(sink, [(3, "c", 4)], 20, 10, more)
    [shown] = on_page("docs/parquet.md", "python")
    names: dict[str, Any] = {"spark": spark}
    exec(shown.text.replace("feed/public/orders", sink.uri), names)
    ran(shown)
    assert sorted(tuple(row) for row in names["orders"].collect()) == [(1, "a", None, 0), (3, "c", 4, 10)]
