"""What the server refuses about one table, or the disk lost of it, leaves that table out; the others go on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from tests.pipeline.conftest import Site
from wal2lake.changelog.log import ChangeLog
from wal2lake.errors import ConnectError, RightsError, ServerError, Wal2LakeError
from wal2lake.sinks.base import TargetError

pytestmark = pytest.mark.server


@pytest.fixture
def reader(site: Site) -> Site:
    """All tables are published; the pipeline's role may read none but those granted to it, and public.b is."""
    role = f"reader_{site.name}"
    site.sql(
        f"CREATE ROLE {role} LOGIN",
        "CREATE TABLE public.b (id int PRIMARY KEY)",
        f"GRANT SELECT ON b TO {role}",
    )
    site.publish("b")
    site.sql("DROP PUBLICATION pub", "CREATE PUBLICATION pub FOR ALL TABLES")
    site.config = replace(site.config, source=replace(site.config.source, dsn=make_conninfo(site.dsn, user=role)))
    site.run()
    return site


def stops(site: Site, kind: type[Wal2LakeError], reason: str) -> None:
    site.sql("INSERT INTO b SELECT count(*) FROM b")
    with pytest.raises(kind, match=rf"1 table.*{reason}"):
        site.run()
    site.same("public.b")


def test_a_new_table_that_the_role_may_not_read(reader: Site) -> None:
    site = reader
    site.sql("CREATE TABLE public.a (id int PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    stops(site, RightsError, 'permission denied for table a.*GRANT SELECT ON "public"."a"')
    site.sql(f"GRANT SELECT ON a TO reader_{site.name}", "INSERT INTO a VALUES (2)")
    site.run()
    site.same("public.a", "public.b")


def test_a_new_table_that_the_periodic_look_finds(reader: Site) -> None:
    site = reader
    log = ChangeLog.open(site.config.log.path)
    batches = site.batches(log)
    batches.discover(log.last_end_lsn)
    site.sql("CREATE TABLE public.a (id int PRIMARY KEY)")
    batches.discover(log.last_end_lsn)
    site.synchronize(batches)
    with pytest.raises(RightsError, match="GRANT SELECT"):
        batches.require_none_quarantined()


def test_a_new_table_of_a_schema_that_the_role_may_not_use(reader: Site) -> None:
    reader.sql("CREATE SCHEMA shut", "CREATE TABLE shut.a (id int PRIMARY KEY)")
    stops(reader, RightsError, 'permission denied for schema shut.*GRANT USAGE ON SCHEMA "shut"')


def test_a_new_table_with_row_security(reader: Site) -> None:
    site = reader
    site.sql("CREATE TABLE public.a (id int PRIMARY KEY)", f"GRANT SELECT ON a TO reader_{site.name}")
    site.sql("ALTER TABLE a ENABLE ROW LEVEL SECURITY", "CREATE POLICY own ON a USING (id > 1)")
    stops(site, RightsError, "row-level security.*BYPASSRLS")


def test_a_row_filter_that_fails(site: Site) -> None:
    site.sql("CREATE TABLE public.a (id int PRIMARY KEY)", "INSERT INTO a VALUES (0)")
    site.sql("CREATE TABLE public.b (id int PRIMARY KEY)")
    site.publish("a WHERE (10 / id > 1)", "b")
    stops(site, ServerError, "public.a.*22012")


def test_a_server_that_goes_away_leaves_no_table_out(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session that reads a table is ended by an administrator: that is no trouble of the table's."""
    site.sql("CREATE TABLE public.a (id int PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    site.publish("a")
    site.sql(
        "CREATE FUNCTION public.die() RETURNS bool LANGUAGE sql AS 'SELECT pg_terminate_backend(pg_backend_pid())'",
    )
    command = "COPY (SELECT 1 AS id WHERE public.die()) TO STDOUT (FORMAT binary)"
    with monkeypatch.context() as patch, pytest.raises(ConnectError):
        patch.setattr("wal2lake.postgres.snapshot.copy_command", lambda *_: command)
        site.run()
    assert site.state("public.a").quarantine is None
    site.run()
    site.same("public.a")


@pytest.mark.parametrize("what", ["lost", "cut short", "garbage", "log"])
def test_a_data_file_that_is_lost_or_corrupt(site: Site, what: str) -> None:
    site.sql("CREATE TABLE public.a (id int PRIMARY KEY, x int)", "INSERT INTO a VALUES (1, 1)")
    site.sql("CREATE TABLE public.b (id int PRIMARY KEY)")
    site.publish("a", "b")
    site.run()
    folder = Path(site.config.lake.path) / "public/a"
    (file,) = folder.glob("_delta_log/*.json" if what == "log" else "*.parquet")
    whole = file.read_bytes()
    file.unlink() if what == "lost" else file.write_bytes(
        {"cut short": whole[: len(whole) // 2], "garbage": b"\xff" * len(whole), "log": whole[:60]}[what]
    )
    site.sql("UPDATE a SET x = 2")
    stops(site, TargetError, "public.a.*resync")
    file.write_bytes(whole)
    site.run()
    site.same("public.a", "public.b")
