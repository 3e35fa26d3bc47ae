"""Every check finds its fault on a real server, and the SQL that it gives mends it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from wal2lake.postgres.connection import Connection, connect, replication_connection
from wal2lake.postgres.findings import Finding, as_script
from wal2lake.postgres.preflight import preflight, published_bytes
from wal2lake.postgres.slots import create_physical_slot, create_slot
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.wire.command_text import quote_identifier

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
    for finding in found:
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


HOSTILE = 'a"\n\x1b[2J\\b; DROP'
MANY = """
CREATE ROLE "po""or" LOGIN; CREATE ROLE owning;
CREATE SCHEMA one AUTHORIZATION owning; CREATE SCHEMA {hostile};
DO $$BEGIN FOR i IN 1..20 LOOP EXECUTE format('CREATE TABLE one.t%s (a int PRIMARY KEY)', i); END LOOP; END$$;
ALTER TABLE one.t1 OWNER TO owning;
CREATE TABLE {hostile}.{hostile} (a int PRIMARY KEY);
CREATE PUBLICATION preflight FOR ALL TABLES; CREATE PUBLICATION listed FOR TABLE one.t1, one.t2, {hostile}.{hostile};
"""


@pytest.fixture
def many(server: EmbeddedPostgres) -> Iterator[str]:
    """A database of many tables, and a role that may do nothing in it: its DSN."""
    server.psql("CREATE DATABASE many")
    server.psql(MANY.format(hostile=quote_identifier(HOSTILE)), database="many")
    yield server.dsn.replace("user=postgres", 'user=po"or').replace("dbname=postgres", "dbname=many")
    server.psql("DROP DATABASE many")
    server.psql('DROP ROLE "po""or"; DROP ROLE owning')


@pytest.mark.parametrize(("publication", "grants"), [("preflight", 7), ("listed", 4)])
def test_the_script_of_all_findings_mends_them_at_once(
    server: EmbeddedPostgres, many: str, publication: str, grants: int
) -> None:
    """A schema's tables by one GRANT; those that will be made too, where they will be published."""
    script = as_script(faults(many, publication=publication))
    assert script.replace("\n", "").isprintable()
    assert script.count("GRANT ") == grants
    server.psql(script, database="many")
    assert not {finding.name for finding in faults(many, publication=publication)} & {"select", "default_privileges"}
    new = f"CREATE TABLE {quote_identifier(HOSTILE)}.new (a int); SET ROLE owning; CREATE TABLE one.new (a int)"
    server.psql(new, database="many")
    may_read = """has_table_privilege('po"or', oid, 'SELECT')::text"""
    readable = server.psql(f"SELECT string_agg({may_read}, ',') FROM pg_class WHERE relname = 'new'", database="many")
    assert readable == ("true,true" if publication == "preflight" else "false,false")


def test_what_has_to_be_decided_is_a_comment_in_the_script(server: EmbeddedPostgres, connection: Connection) -> None:
    decided = [line for line in as_script(faults(server.dsn, publication="absent")).splitlines() if line[:2] != "--"]
    assert decided == []


def test_partitions_that_are_published_one_by_one_are_told_of(server: EmbeddedPostgres, connection: Connection) -> None:
    connection.execute(
        """CREATE TABLE preflight.root (a int PRIMARY KEY) PARTITION BY RANGE (a);
        CREATE TABLE preflight.leaf PARTITION OF preflight.root FOR VALUES FROM (0) TO (9) PARTITION BY RANGE (a);
        CREATE TABLE preflight.leaf1 PARTITION OF preflight.leaf FOR VALUES FROM (0) TO (5);
        CREATE TABLE preflight.leaf2 PARTITION OF preflight.leaf FOR VALUES FROM (5) TO (9);
        CREATE PUBLICATION leaves FOR TABLE preflight.root"""
    )
    try:
        (finding,) = by_name(faults(server.dsn, publication="leaves"), "publish_via_partition_root")
        assert "those of preflight.root (2)" in finding.text
        connection.execute((finding.sql or "").encode())
        assert not by_name(faults(server.dsn, publication="leaves"), "publish_via_partition_root")
    finally:
        connection.execute(b"DROP PUBLICATION leaves; DROP TABLE preflight.root")


def test_names_that_differ_by_case_alone(server: EmbeddedPostgres, connection: Connection) -> None:
    connection.execute(
        """CREATE TABLE preflight."Twin" (a int PRIMARY KEY, b int, "B" int); CREATE TABLE preflight.twin (a int);
        CREATE PUBLICATION twins FOR TABLE preflight."Twin", preflight.twin"""
    )
    try:
        found = by_name(faults(server.dsn, publication="twins"), "case")
    finally:
        connection.execute(b'DROP PUBLICATION twins; DROP TABLE preflight."Twin", preflight.twin')
    assert [finding.text.partition(":")[0] for finding in found] == [
        "By case alone differ preflight.Twin and preflight.twin",
        "By case alone differ b and B in preflight.Twin",
    ]


@pytest.mark.parametrize(
    ("encoding", "level"), [("UTF8", "ok"), ("LATIN1", "ok"), ("SQL_ASCII", "warning"), ("WIN1252", "warning")]
)
def test_an_encoding_that_utf_8_does_not_cover_is_told_of(server: EmbeddedPostgres, encoding: str, level: str) -> None:
    server.psql(f"CREATE DATABASE encoded ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    try:
        found = preflight(server.dsn.replace("dbname=postgres", "dbname=encoded"), "absent", "absent")
    finally:
        server.psql("DROP DATABASE encoded")
    (finding,) = by_name(found, "server_encoding")
    assert (finding.level, encoding in finding.text) == (level, True)


def test_the_bytes_of_what_is_published(server: EmbeddedPostgres, connection: Connection) -> None:
    """Those of partitions count for their root, and TOAST counts; nothing is known of what is locked."""
    connection.execute(
        """CREATE TABLE preflight.sized (a int PRIMARY KEY, b text) PARTITION BY RANGE (a);
        CREATE TABLE preflight.part PARTITION OF preflight.sized FOR VALUES FROM (0) TO (9);
        ALTER TABLE preflight.part ALTER b SET STORAGE EXTERNAL;
        CREATE PUBLICATION sized FOR TABLE preflight.sized WITH (publish_via_partition_root);
        INSERT INTO preflight.sized VALUES (1, repeat('x', 1 << 20))"""
    )
    try:
        assert (published_bytes(server.dsn, "sized") or 0) >= 1 << 20
        assert published_bytes(server.dsn, "absent") == 0
    finally:
        connection.execute(b"DROP PUBLICATION sized; DROP TABLE preflight.sized")


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
        (physical,) = by_name(faults(server.dsn, slot="preflight_physical"), "slot")
        assert (physical.level, physical.sql) == ("error", None), "what is somebody else's is not dropped"


def test_transactions_that_hold_up_the_slot(server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wal2lake.postgres.preflight.LONG_TRANSACTION_S", 0)
    with connect(server.dsn, writable=True) as busy:
        busy.execute("BEGIN; SELECT pg_current_xact_id()")
        (finding,) = by_name(faults(server.dsn), "long_transactions")
        assert finding.sql == f"SELECT pg_terminate_backend({busy.info.backend_pid});"
        busy.execute("ROLLBACK")
