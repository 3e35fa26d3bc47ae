"""What a user who owns tables, or may create functions, cannot have the pipeline do in its role's name."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from deltalake import DeltaTable
from psycopg.conninfo import make_conninfo

from tests.pipeline.conftest import Site
from tests.pipeline.hostile import TRAPPED, set_traps
from tests.waiting import eventually
from wal2lake.capture import Capture
from wal2lake.config import LogConfig
from wal2lake.monitor.status import read_status
from wal2lake.postgres.catalog import identify
from wal2lake.postgres.connection import connect, execute, replication_connection
from wal2lake.postgres.preflight import preflight
from wal2lake.postgres.slot_sql import slot_changes
from wal2lake.postgres.slots import advance_slot, copy_slot, slot_states
from wal2lake.verify.comparison import compare_columns
from wal2lake.verify.source_snapshot import source_snapshot
from wal2lake.verify.source_table import source_table
from wal2lake.verify.table_comparison import digest_source

pytestmark = pytest.mark.server


@contextmanager
def trapped(site: Site) -> Iterator[None]:
    """The database as a hostile user, and a careless administrator, would have it: pg_catalog comes last."""
    mallory = f"mallory_{site.name}"
    site.sql(f"CREATE ROLE {mallory} LOGIN", f"GRANT CREATE ON SCHEMA public TO {mallory}")
    assert set_traps(site.connection, mallory, "postgres") > 200
    site.sql(
        f'ALTER DATABASE {site.name} SET search_path = "$user", public, pg_catalog',
        f"ALTER DATABASE {site.name} SET default_transaction_read_only = off",
    )
    try:
        yield
    finally:
        site.sql(f"DROP OWNED BY {mallory} CASCADE", f"DROP ROLE {mallory}")


def kinds(site: Site) -> None:
    site.sql(
        "CREATE TYPE public.mood AS ENUM ('glad', 'sad')",
        "CREATE DOMAIN public.cents AS numeric",
        "CREATE TABLE public.a (id int, m public.mood, t text, c public.cents, f float8, b char(3), r regclass,"
        " PRIMARY KEY (id, m))",
        "INSERT INTO a SELECT g, 'glad', 'x' || g, g, g / 3.0, 'b', 'public.a' FROM generate_series(1, 12) g",
        "CREATE TABLE public.b (a int, t text)",
        "ALTER TABLE b REPLICA IDENTITY FULL",
        "INSERT INTO b VALUES (1, 'one'), (1, 'one')",
    )


def test_no_overload_is_called_from_snapshot_to_verify(site: Site) -> None:
    kinds(site)
    site.publish("public.a", "public.b")
    with trapped(site):
        site.sql("SET search_path = pg_catalog")  # as capture has it: names are printed as it sees them
        with psycopg.connect(site.dsn) as plain, pytest.raises(psycopg.errors.RaiseException, match=TRAPPED):
            plain.execute("SELECT oid FROM pg_class WHERE relname = 'a'")  # the traps work
        site.run()
        site.sql("UPDATE public.a SET f = 1 WHERE id < 9", "ALTER TABLE public.a ADD late public.cents DEFAULT 5")
        site.sql("DELETE FROM public.b WHERE ctid = '(0,1)'", "INSERT INTO public.a VALUES (0, 'sad')")
        site.run()
        site.same("public.b")
        read_status(site.config)
        assert all(TRAPPED not in finding.text for finding in preflight(site.dsn, "pub", site.name))
        before = digests(site)
        site.sql("UPDATE public.a SET t = 'changed' WHERE id = 7")
        after = digests(site)
        assert (before["public.a"] != after["public.a"], before["public.b"] == after["public.b"]) == (True, True)


def digests(site: Site) -> dict[str, object]:
    """All that verify asks of the source: ranges by a sample, digests of rows, and of each column."""
    found: dict[str, object] = {}
    with source_snapshot(site.dsn) as snapshot:
        for table in snapshot.published("pub"):
            lake = DeltaTable(f"{site.config.lake.path}/{table.namespace}/{table.name}").schema().fields
            comparison = compare_columns(
                table,
                {field.name: str(field.type.type) for field in lake},
                finite=[column.name for column in table.columns],
            )
            digest = digest_source(snapshot, comparison, range_rows=4)
            with source_table(snapshot, comparison) as source:
                by_column = source.digests(digest.window, [[column] for column in comparison.columns])
            found[str(table)] = (digest.digests, by_column)
    return found


def test_no_overload_is_called_by_capture_and_commands(site: Site, tmp_path: Path) -> None:
    kinds(site)
    site.publish("public.a", "public.b")
    with trapped(site):
        stop, failures = threading.Event(), []
        config = replace(site.config, log=LogConfig(path=str(tmp_path / "other"), segment_seconds=0.05))

        def run() -> None:
            try:
                Capture(config).run(stop)
            except Exception as error:  # noqa: BLE001 - the test looks at it
                failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        while not (tmp_path / "other/status/capture.json").exists() and thread.is_alive():
            thread.join(0.1)
        stop.set()
        thread.join(30)
        assert failures == []
        with closing(connect(site.dsn)) as connection:
            assert identify(connection).dbname == site.name
            copy_slot(connection, site.name, f"{site.name}_twin")
            options = (("proto_version", "1"), ("publication_names", "pub"))
            list(slot_changes(connection, f"{site.name}_twin", peek=True, plugin_options=options))
            advance_slot(connection, f"{site.name}_twin", identify(connection).wal_lsn)
            assert {state.slot_name for state in slot_states(connection)} >= {site.name, f"{site.name}_twin"}


@pytest.mark.parametrize("replication", [False, True])
def test_no_setting_wins_over_the_pinned_search_path(site: Site, replication: bool) -> None:
    site.sql(f"ALTER DATABASE {site.name} SET search_path = public")
    dsn = make_conninfo(site.dsn, options="-c search_path=public,pg_catalog -c default_transaction_read_only=off")
    shown = []
    for name in ("search_path", "default_transaction_read_only"):
        if replication:
            with replication_connection(dsn) as pgconn:
                shown += execute(pgconn, f"SELECT current_setting('{name}')")
        else:
            with closing(connect(dsn)) as connection:
                shown += connection.execute("SELECT current_setting(%s)", [name]).fetchall()
    assert shown == [("pg_catalog, pg_temp",), ("on",)]


def test_no_temporary_relation_stands_for_one_of_the_catalog(site: Site) -> None:
    """A pooler may give out a session that has them; unnamed, pg_temp would be looked at first."""
    with closing(connect(site.dsn, writable=True)) as connection:
        connection.execute("CREATE TEMP TABLE pg_class (oid oid)")
        found = connection.execute("SELECT count(*) > 100 FROM pg_class").fetchone()
    assert found == (True,)


EVIL = """
CREATE FUNCTION public.evil() RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
  IF current_user <> 'MALLORY' THEN
    INSERT INTO public.loot SELECT * FROM secret.salaries;
    ALTER ROLE MALLORY SUPERUSER;
  END IF;
  RETURN true;
END$$
"""


@contextmanager
def thief(site: Site) -> Iterator[str]:
    """A role with a table of its own, a domain whose CHECK does what it can, and a table that it may not read."""
    mallory = f"mallory_{site.name}"
    site.sql(
        f"CREATE ROLE {mallory} LOGIN",
        f"GRANT CREATE ON SCHEMA public TO {mallory}",
        "CREATE SCHEMA secret",
        "CREATE TABLE secret.salaries (amount int)",
        "INSERT INTO secret.salaries VALUES (100)",
        f"SET ROLE {mallory}",
        "CREATE TABLE public.loot (amount int)",
        EVIL.replace("MALLORY", mallory),
    )
    site.sql(
        "RESET ROLE", f"ALTER DATABASE {site.name} SET track_functions = 'all'", f"SET ROLE {mallory}"
    )  # for sessions to come
    try:
        yield mallory
        others = f"pg_stat_activity WHERE datname = '{site.name}' AND pid <> pg_backend_pid()"
        eventually(lambda: not site.source(others))  # what a session called is counted when it ends
        assert site.source("pg_stat_user_functions WHERE funcname = 'evil'") == []
        assert site.source("public.loot") == []
        assert site.source(f"pg_roles WHERE rolname = '{mallory}' AND rolsuper") == []
    finally:
        site.sql("RESET ROLE", f"DROP OWNED BY {mallory} CASCADE", f"DROP ROLE {mallory}")


def test_the_check_of_a_domain_is_not_run_when_a_fast_default_is_read(site: Site) -> None:
    with thief(site) as mallory:
        site.sql("CREATE TABLE public.own (id int PRIMARY KEY)", "INSERT INTO own VALUES (1)")
        site.sql("CREATE DOMAIN public.d AS int", "CREATE DOMAIN public.e AS int[]", "RESET ROLE")
        site.publish("own")
        site.run()
        with site.connection.transaction():
            site.sql(
                f"SET ROLE {mallory}",
                "ALTER TABLE own ADD c public.d DEFAULT 5, ADD e public.e DEFAULT '{1,2}'",
                "ALTER DOMAIN public.d ADD CHECK (public.evil())",
                "ALTER DOMAIN public.e ADD CHECK (public.evil())",
                "INSERT INTO own VALUES (2, 7, '{3}')",
            )
        site.sql("RESET ROLE")
        site.run()
        rows = [(row["id"], row["c"], row["e"]) for row in site.lake_table("public.own").to_pylist()]
        assert sorted(rows) == [(1, 5, [1, 2]), (2, 7, [3])]


_KEYS = {
    "domain": ("CREATE DOMAIN public.k AS text CHECK (public.evil())", "x", "public.k"),
    "array of a domain": ("CREATE DOMAIN public.k AS text CHECK (public.evil())", "{x}", "public.k[]"),
    "composite with a domain": (
        "CREATE DOMAIN public.k AS text CHECK (public.evil()); CREATE TYPE public.pair AS (a public.k)",
        "(x)",
        "public.pair",
    ),
    "range over a domain": (
        "CREATE DOMAIN public.k AS int CHECK (public.evil()); CREATE TYPE public.span AS RANGE (SUBTYPE = public.k)",
        "[1,3)",
        "public.span",
    ),
    "domain over an array of a domain": (
        "CREATE DOMAIN public.k AS int CHECK (public.evil()); CREATE DOMAIN public.ks AS public.k[]",
        "{1}",
        "public.ks",
    ),
    "enumeration": (
        "CREATE DOMAIN public.k AS int CHECK (public.evil()); CREATE TYPE public.e AS ENUM ('x', 'y')",
        "x",
        "public.e",
    ),
}


@pytest.mark.parametrize("kind", _KEYS)
def test_the_check_of_a_domain_is_not_run_when_a_row_is_looked_for(site: Site, kind: str) -> None:
    from wal2lake.postgres.catalog import published_tables
    from wal2lake.postgres.live_tables import rows_by_key

    making, value, declared = _KEYS[kind]
    with thief(site):
        site.sql(making, f"CREATE TABLE public.own (k {declared} PRIMARY KEY, v int)")
        site.sql(f"INSERT INTO own VALUES ('{value}', 4)", "RESET ROLE")
        site.publish("own")
        with closing(connect(site.dsn)) as connection:
            (table,) = published_tables(connection, "pub")
            rows, _ = rows_by_key(connection, table, [{"k": value}, {"k": "{}" if value[0] == "{" else value}])
        assert len(rows) == 1
        site.run()  # snapshot and stream read the values without turning them into anything
        assert site.lake_table("public.own").num_rows == 1


@pytest.mark.parametrize("statement", ["CREATE TABLE t ()", "ALTER ROLE postgres NOSUPERUSER"])
def test_a_session_that_is_not_to_write_cannot(site: Site, statement: str) -> None:
    with closing(connect(site.dsn)) as connection, pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        connection.execute(statement.encode())


def test_a_view_in_place_of_a_table_is_not_read(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its functions would run as our role: the table is swapped between the plan and the copy."""
    from wal2lake.tables import chunk_copy as copying

    with thief(site) as mallory:
        site.sql("CREATE TABLE public.own (id int PRIMARY KEY)", "RESET ROLE", "CREATE TABLE public.b (id int)")
        site.publish("own", "b")
        copy = copying.copy_binary

        def swapped(*arguments: object, **named: object) -> object:
            if site.source("pg_class WHERE relname = 'own' AND relkind = 'r'"):
                site.sql("DROP TABLE public.own", f"SET ROLE {mallory}")
                site.sql("CREATE VIEW public.own AS SELECT 1 AS id WHERE public.evil()", "RESET ROLE")
            return copy(*arguments, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(copying, "copy_binary", swapped)
        site.run()
        assert site.lake_table("public.b").num_rows == 0


def test_check_advises_against_a_superuser(site: Site) -> None:
    site.sql("CREATE PUBLICATION pub")
    (found,) = [finding for finding in preflight(site.dsn, "pub", site.name) if finding.name == "superuser"]
    assert (found.level, found.sql and "REPLICATION" in found.sql) == ("warning", True)
    site.sql(f"CREATE ROLE plain_{site.name} LOGIN REPLICATION")
    plain = make_conninfo(site.dsn, user=f"plain_{site.name}")
    (found,) = [finding for finding in preflight(plain, "pub", site.name) if finding.name == "superuser"]
    assert found.ok
