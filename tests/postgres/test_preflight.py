"""Every check finds its fault on a real server, and the SQL that it gives mends it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from wal2lake.postgres.connection import Connection, connect, replication_connection
from wal2lake.postgres.findings import Finding
from wal2lake.postgres.preflight import preflight
from wal2lake.postgres.slots import create_physical_slot, create_slot
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.server

SCHEMA = """
CREATE SCHEMA preflight;
CREATE TABLE preflight.keyless (a int);
CREATE TABLE preflight.silent (a int PRIMARY KEY); ALTER TABLE preflight.silent REPLICA IDENTITY NOTHING;
CREATE TABLE preflight.sound (a int PRIMARY KEY);
ALTER TABLE preflight.sound ENABLE ROW LEVEL SECURITY;
CREATE PUBLICATION preflight FOR TABLE preflight.keyless, preflight.silent, preflight.sound WITH (publish = 'insert');
CREATE ROLE preflight LOGIN;
"""


@pytest.fixture(scope="module")
def connection(server: EmbeddedPostgres) -> Iterator[Connection]:
    with connect(server.dsn, writable=True) as opened:
        opened.execute(SCHEMA)
        yield opened
        opened.execute("DROP PUBLICATION preflight; DROP SCHEMA preflight CASCADE; DROP ROLE preflight")


def faults(dsn: str, slot: str = "preflight", publication: str = "preflight") -> list[Finding]:
    return [finding for finding in preflight(dsn, publication, slot) if not finding.ok]


def by_name(findings: list[Finding], name: str) -> list[Finding]:
    return [finding for finding in findings if finding.name == name]


def test_the_sql_mends_what_was_found(server: EmbeddedPostgres, connection: Connection) -> None:
    dsn = server.dsn.replace("user=postgres", "user=preflight")
    found = faults(dsn)
    assert {finding.name for finding in found if finding.level == "error"} == {"replication", "select"}
    assert len(by_name(found, "replica_identity")) == 2
    assert "update, delete, truncate" in by_name(found, "publication")[0].text
    assert any("row security" in finding.text for finding in by_name(found, "select"))
    for _ in range(2):  # USAGE on the schema first, then SELECT
        for finding in faults(dsn):
            if finding.name in ("replication", "select", "replica_identity", "publication"):
                connection.execute((finding.sql or "").encode())
    assert {finding.name for finding in faults(dsn)} <= {"max_slot_wal_keep_size", "wal_sender_timeout"}


def test_an_index_that_calls_somebodys_function_is_told_of(server: EmbeddedPostgres, connection: Connection) -> None:
    plain = ("CREATE INDEX ON preflight.sound ((abs(a)))",)
    evil = (
        "CREATE FUNCTION preflight.f() RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 1'",
        "CREATE INDEX ON preflight.keyless (a) WHERE preflight.f() = 1",
        "CREATE STATISTICS preflight.s ON (a + preflight.f()), (abs(a)) FROM preflight.silent",
    )
    for statement in plain:
        connection.execute(statement.encode())
    assert not by_name(faults(server.dsn), "planned_code")
    for statement in evil:
        connection.execute(statement.encode())
    try:
        found = by_name(faults(server.dsn), "planned_code")
    finally:
        connection.execute(b"DROP FUNCTION preflight.f() CASCADE")
    assert [finding.text.split()[4] for finding in found] == ["preflight.keyless", "preflight.silent"]


def test_a_missing_publication(server: EmbeddedPostgres) -> None:
    (finding,) = by_name(faults(server.dsn, publication="absent"), "publication")
    assert finding.level == "error"
    assert finding.sql is not None and finding.sql.startswith('CREATE PUBLICATION "absent"')


def test_a_locked_table_does_not_hold_it_up(
    server: EmbeddedPostgres, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wal2lake.postgres.preflight.LOCK_TIMEOUT", "200ms")
    with connect(server.dsn, writable=True) as locking:
        locking.execute("BEGIN; LOCK TABLE preflight.sound IN ACCESS EXCLUSIVE MODE")
        found = faults(server.dsn)
        locking.execute("ROLLBACK")
    (finding,) = by_name(found, "publication")
    assert finding.level == "error"
    assert "cannot be looked at now" in finding.text
    assert by_name(found, "max_slot_wal_keep_size")


def test_a_slot_in_use_or_of_another_kind(server: EmbeddedPostgres, connection: Connection) -> None:
    with replication_connection(server.dsn) as pgconn:
        create_slot(pgconn, "preflight_busy", temporary=True)
        create_physical_slot(pgconn, "preflight_physical", temporary=True)
        assert by_name(faults(server.dsn, slot="preflight_busy"), "slot")[0].level == "warning"
        assert by_name(faults(server.dsn, slot="preflight_physical"), "slot")[0].level == "error"


def test_transactions_that_hold_up_the_slot(server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wal2lake.postgres.preflight.LONG_TRANSACTION_S", 0)
    with connect(server.dsn, writable=True) as busy:
        busy.execute("BEGIN; SELECT pg_current_xact_id()")
        (finding,) = by_name(faults(server.dsn), "long_transactions")
        assert finding.sql == f"SELECT pg_terminate_backend({busy.info.backend_pid});"
        busy.execute("ROLLBACK")
