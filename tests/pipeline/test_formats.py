"""Lakes of other formats, through the pipeline's own functions; and a format of one's own, as its page has it."""

from __future__ import annotations

import importlib
import json
import os
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

from tests.documents.shown import on_page, ran
from tests.pipeline.conftest import Site, SparkSite
from tests.sinks.test_delta import as_table
from tests.sinks.test_parquet import SCHEMA, history, land
from wal2lake.config import LakeConfig
from wal2lake.errors import ConfigError
from wal2lake.sinks.factory import open_sink
from wal2lake.tables.listing import lake_tables
from wal2lake.tables.statements import Dialect, statements

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.server

CHANGES = [("U", 1, None), ("D", 2, None), ("U", 20, None), ("D", 3, None), ("T", None, None), ("I", 4, 6)]


def settings(page: str) -> dict[str, Any]:
    """[lake] as the page shows it."""
    [shown] = [item for item in on_page(page, "toml") if "[lake]" in item.text]
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
def installed(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """The package of docs/sinks.md, installed in a folder that Python looks into, here and in Spark's workers."""
    package, site = tmp_path / "package", tmp_path / "site"
    package.mkdir()
    [project] = [item for item in on_page("docs/sinks.md", "toml") if "[project]" in item.text]
    [module] = on_page("docs/sinks.md", "python")
    (package / "pyproject.toml").write_text(project.text)
    (package / "wal2lake_sqlite.py").write_text(module.text)
    uv = [Path(sys.executable).parent / "uv", "pip", "install", "--quiet", "--offline", "--no-deps"]
    options = ["--no-build-isolation", "--python", sys.executable, "--target", site, package]
    subprocess.run([*map(str, uv), *map(str, options)], check=True)
    environment = spark.sparkContext.environment
    before = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join([str(site), *filter(None, [before])])
    sys.path.insert(0, str(site))
    importlib.invalidate_caches()
    yield site
    sys.path.remove(str(site))
    del sys.modules["wal2lake_sqlite"]
    environment.pop("PYTHONPATH") if before is None else environment.update(PYTHONPATH=before)
    ran(project)
    ran(module)


@pytest.mark.spark
@pytest.mark.documents
def test_a_format_of_ones_own(spark_site: SparkSite, installed: Path, tmp_path: Path) -> None:
    site, database = spark_site, tmp_path / "history" / "history.sqlite"
    site.configure(tmp_path, lake={"path": str(tmp_path / "history"), **settings("docs/sinks.md")})
    site.sql("CREATE TABLE public.u (id int PRIMARY KEY, tags text[])", "INSERT INTO u VALUES (1, '{a,NULL}')")
    change_much(site, "u")  # a first time with all of Spark, whose workers read the snapshot

    def rows() -> list[Any]:
        with closing(sqlite3.connect(database)) as connection:
            return connection.execute('SELECT _op, id, more FROM "public.t" ORDER BY _commit_lsn, _lsn').fetchall()

    assert sorted(rows()[:3]) == [("R", 1, None), ("R", 2, None), ("R", 3, None)]
    assert rows()[3:] == CHANGES
    with closing(sqlite3.connect(database)) as connection:
        [(tags,)] = connection.execute('SELECT tags FROM "public.u"')
    assert json.loads(tags) == ["a", None]
    assert not list(Path(tmp_path, "history").rglob("*.parquet"))
    site.configure(tmp_path, lake={"path": str(tmp_path / "history"), "format": "sqlite"})
    with pytest.raises(ConfigError, match="sqlite can do append alone"):
        open_sink(site.config.lake, "p", "public", "t")


def test_a_format_that_nobody_has() -> None:
    with pytest.raises(ConfigError, match=r"lake\.format must be one of delta, parquet\."):
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
