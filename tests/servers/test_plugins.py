"""test_decoding in Python beside the server's own, over two slots of the same WAL: the same pieces at the same LSNs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from wal2lake.decoding import Decoded, decode
from wal2lake.decoding.context import PluginOptions
from wal2lake.decoding.decoder import Decoder
from wal2lake.lsn import LSN
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.postgres.connection import connect
from wal2lake.postgres.live_catalog import LiveCatalog
from wal2lake.postgres.plugin_output import PluginOutput
from wal2lake.postgres.recvlogical import RecvOptions, recv
from wal2lake.postgres.slot_sql import slot_changes
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.servers

TABLES = """
CREATE SCHEMA "Plugins"; CREATE DOMAIN "Plugins".positive AS int CHECK (VALUE > 0); CREATE TYPE mood AS ENUM ('a', 'b');
CREATE TABLE "Plugins"."Values"
    (id int PRIMARY KEY, "a b" text, mood mood, moods mood[], p "Plugins".positive, "select" bit(3));
CREATE TABLE whole (id int, long text);
ALTER TABLE whole REPLICA IDENTITY FULL; ALTER TABLE whole ALTER long SET STORAGE EXTERNAL;
CREATE TABLE many (id int PRIMARY KEY, note text);
CREATE PUBLICATION plugins FOR ALL TABLES;
"""
CHANGES = [
    """INSERT INTO "Plugins"."Values" VALUES (1, 'it''s', 'a', '{a,b}', 3, '101'), (2, NULL, NULL, NULL, NULL, NULL)""",
    """UPDATE "Plugins"."Values" SET id = 3, "a b" = '' WHERE id = 2; DELETE FROM "Plugins"."Values" WHERE id = 1""",
    "INSERT INTO whole VALUES (1, repeat('x', 5000)); UPDATE whole SET id = 2; DELETE FROM whole",
    "BEGIN; INSERT INTO many VALUES (1); SAVEPOINT a; INSERT INTO many VALUES (2); ROLLBACK TO a;"
    " INSERT INTO many VALUES (3); TRUNCATE many, whole RESTART IDENTITY CASCADE; COMMIT",
    "BEGIN; INSERT INTO many VALUES (4); PREPARE TRANSACTION 'it''s'; COMMIT PREPARED 'it''s'",
    "BEGIN; INSERT INTO many VALUES (5); PREPARE TRANSACTION 'back'; ROLLBACK PREPARED 'back'",
    "BEGIN; INSERT INTO many VALUES (6); PREPARE TRANSACTION 'a_nodecode'; COMMIT PREPARED 'a_nodecode'",
    "BEGIN; INSERT INTO many SELECT g, repeat('y', 300) FROM generate_series(1000, 1400) g; SAVEPOINT a;"
    " INSERT INTO many SELECT g, repeat('y', 300) FROM generate_series(2000, 2400) g; ROLLBACK TO a;"
    " INSERT INTO many SELECT g, repeat('y', 300) FROM generate_series(3000, 3400) g; COMMIT",
    "BEGIN; INSERT INTO many SELECT g, repeat('y', 300) FROM generate_series(4000, 4600) g; ROLLBACK",
    "BEGIN; INSERT INTO many SELECT g, repeat('y', 300) FROM generate_series(5000, 5600) g;"
    " PREPARE TRANSACTION 'large'; COMMIT PREPARED 'large'",
    "SELECT pg_replication_origin_create('elsewhere'); SELECT pg_replication_origin_session_setup('elsewhere');"
    " INSERT INTO many VALUES (7); SELECT pg_replication_origin_session_reset()",
]
MESSAGES = [
    "SELECT pg_logical_emit_message(false, 'p', 'outside')",
    "BEGIN; INSERT INTO many VALUES (8); SELECT pg_logical_emit_message(true, 'p', 'inside'); COMMIT",
]
OPTIONS: list[PluginOptions] = [
    [("skip-empty-xacts", "1")],
    [("skip-empty-xacts", None), ("include-xids", "0"), ("include-timestamp", "1")],
    [("skip-empty-xacts", "1"), ("only-local", "1")],
    [("skip-empty-xacts", "1"), ("stream-changes", "1")],
    [("stream-changes", "1"), ("skip-empty-xacts", "1"), ("include-xids", "off"), ("only-local", "yes")],
]


@pytest.fixture
def told(versioned: EmbeddedPostgres) -> Iterator[tuple[EmbeddedPostgres, int, list[bool]]]:
    """The server, its version and the two-phase values that a slot may have; with slots and everything behind them."""
    server = versioned
    major = int(server.psql("SHOW server_version_num")) // 10000
    phases = [False, True] if major >= 15 else [False]
    server.psql(TABLES)
    for plugin in ("test_decoding", "pgoutput"):
        for two_phase in phases:
            further = f", {two_phase}" if major >= 14 else ""
            slot = f"'{plugin}_{two_phase:d}'"
            server.psql(f"SELECT pg_create_logical_replication_slot({slot}, '{plugin}', false{further})")
    for sql in [*CHANGES, *(MESSAGES if major >= 14 else [])]:
        server.psql(sql)
    yield server, major, phases
    for plugin in ("test_decoding", "pgoutput"):
        for two_phase in phases:
            server.psql(f"SELECT pg_drop_replication_slot('{plugin}_{two_phase:d}')")
    server.psql("""DROP PUBLICATION plugins; DROP TABLE many, whole; DROP SCHEMA "Plugins" CASCADE; DROP TYPE mood;
                   SELECT pg_replication_origin_drop('elsewhere')""")


def theirs(server: EmbeddedPostgres, slot: str, options: PluginOptions) -> list[Decoded]:
    words = [word for name, value in options for word in (name, "1" if value is None else value)]
    query = "SELECT lsn::text, xid::text::bigint, data FROM pg_logical_slot_peek_changes(%s, NULL, NULL, VARIADIC %s)"
    with psycopg.connect(f"{server.dsn} options='-c timezone=UTC'", autocommit=True) as connection:
        rows = connection.execute(query, [slot, words]).fetchall()
    return [Decoded(LSN.parse(lsn), xid, data) for lsn, xid, data in rows]


def ours(server: EmbeddedPostgres, slot: str, options: PluginOptions, stream: PgoutputOptions) -> list[Decoded]:
    with connect(server.dsn) as connection, closing(LiveCatalog(server.dsn)) as catalog:
        changes = slot_changes(connection, slot, peek=True, plugin_options=stream)
        pairs = [(LSN(change.start_lsn), change.payload) for change in changes]
        return list(decode(pairs, "test_decoding", options, stream=stream, catalog=catalog))


def test_both_write_the_same(told: tuple[EmbeddedPostgres, int, list[bool]]) -> None:
    server, major, phases = told
    compared = 0
    for options in OPTIONS:
        for two_phase in phases:
            for streaming in ("off", "on") if major >= 14 else ("off",):
                if ("stream-changes", "1") in options and streaming == "off":
                    continue
                version = 3 if two_phase else 2 if streaming == "on" else 1
                stream = PgoutputOptions(
                    ("plugins",), version, messages=major >= 14, streaming=streaming, two_phase=two_phase
                )
                expected = theirs(server, f"test_decoding_{two_phase:d}", options)
                written = ours(server, f"pgoutput_{two_phase:d}", options, stream)
                assert [piece[1:] for piece in written] == [piece[1:] for piece in expected], (options, stream)
                compared += 1
    assert compared >= 3


@pytest.mark.parametrize("versioned", [15, 18], indirect=True)
def test_a_prepared_transaction_that_is_held_holds_the_slot(versioned: EmbeddedPostgres, folder: Path) -> None:
    """Its changes come once only: what is acknowledged stays before its PREPARE until it is out."""
    versioned.psql("CREATE TABLE held (id int PRIMARY KEY); CREATE PUBLICATION held FOR TABLE held")
    versioned.psql("SELECT pg_create_logical_replication_slot('held', 'pgoutput', false, true)")
    before = LSN.parse(versioned.psql("SELECT pg_current_wal_lsn()"))
    versioned.psql("BEGIN; INSERT INTO held VALUES (1); PREPARE TRANSACTION 'h_nodecode'")
    prepared = LSN.parse(versioned.psql("SELECT pg_current_wal_lsn()"))
    versioned.psql("INSERT INTO held VALUES (2)")
    assert _held(versioned, folder / "first") == ["BEGIN", "table public.held: INSERT: id[integer]:2", "COMMIT"]
    assert before <= _confirmed(versioned) < prepared
    versioned.psql("COMMIT PREPARED 'h_nodecode'")
    lines = _held(versioned, folder / "second")  # a new process: what came behind the PREPARE comes again
    assert lines[3:] == ["BEGIN", "table public.held: INSERT: id[integer]:1", "COMMIT"]
    assert _confirmed(versioned) > prepared
    versioned.psql("SELECT pg_drop_replication_slot('held'); DROP PUBLICATION held; DROP TABLE held")


def _held(server: EmbeddedPostgres, path: Path) -> list[str]:
    end = LSN.parse(server.psql("SELECT pg_current_wal_lsn()"))
    wished = PgoutputOptions(("held",), 3, two_phase=True)
    options: PluginOptions = [("include-xids", "0")]
    with closing(PluginOutput(path, lambda write: Decoder("test_decoding", options, wished, write))) as output:
        recv(server.dsn, "held", output, RecvOptions(until_lsn=end, plugin_options=output.decoder.stream))
    return path.read_text().splitlines()


def _confirmed(server: EmbeddedPostgres) -> LSN:
    query = "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 'held'"
    return LSN.parse(server.psql(query))
