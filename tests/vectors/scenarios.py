"""What is done to a server so that pgoutput says every one of its messages; WAIT lets the walsender catch up first.

A transaction is streamed because ``noise``, which is not published, fills logical_decoding_work_mem.
"""

from __future__ import annotations

from dataclasses import dataclass, field

WAIT = "-- wait until everything before was sent"
SETTINGS = {
    "logical_decoding_work_mem": "64kB",
    "max_prepared_transactions": "5",
    "wal_writer_delay": "10ms",
    "autovacuum": "off",
}
SETUP = [
    "CREATE TYPE mood AS ENUM ('sad', 'happy')",
    "CREATE TABLE parent (id int PRIMARY KEY, mood mood, body text, note text)",
    "ALTER TABLE parent ALTER body SET STORAGE EXTERNAL",
    "CREATE TABLE child (id serial PRIMARY KEY, parent int REFERENCES parent)",
    "CREATE TABLE whole (a int, body text, note varchar(20))",
    "ALTER TABLE whole ALTER body SET STORAGE EXTERNAL, REPLICA IDENTITY FULL",
    "CREATE TABLE indexed (a int NOT NULL UNIQUE, b numeric(10, 2))",
    "ALTER TABLE indexed REPLICA IDENTITY USING INDEX indexed_a_key",
    "CREATE TABLE nothing (a timestamptz)",
    "ALTER TABLE nothing REPLICA IDENTITY NOTHING",
    'CREATE TABLE "Straße ""7""" ("Ä" bool)',
    "CREATE TABLE noise (x text)",
    'CREATE PUBLICATION "vectors, ""all""" FOR TABLE parent, child, whole, indexed, nothing, "Straße ""7"""',
]
PUBLICATION = '"vectors, ""all"""'

_NOISE = "INSERT INTO noise SELECT repeat('x', 1000) FROM generate_series(1, 150)"
_CHANGES = [
    "INSERT INTO parent VALUES (1, 'sad', repeat('x', 2100), NULL), (2, NULL, '', 'ü')",
    "UPDATE parent SET note = 'n' WHERE id = 1",
    "UPDATE parent SET id = 3 WHERE id = 1",
    "DELETE FROM parent WHERE id = 2",
    "INSERT INTO whole VALUES (1, repeat('y', 2100), NULL)",
    "UPDATE whole SET note = ''",
    "DELETE FROM whole",
    "INSERT INTO whole VALUES (2, '', 'n')",
    "UPDATE whole SET note = NULL",
    "DELETE FROM whole",
    "BEGIN; INSERT INTO indexed VALUES (1, 12.5); UPDATE indexed SET a = 2; DELETE FROM indexed; COMMIT",
    "INSERT INTO nothing VALUES ('2024-02-29 12:00:00+00')",
    'INSERT INTO "Straße ""7""" VALUES (true)',
    "INSERT INTO child (parent) VALUES (3)",
    "TRUNCATE child",
    "TRUNCATE parent CASCADE",
    "TRUNCATE child, whole RESTART IDENTITY",
    "TRUNCATE parent, child RESTART IDENTITY CASCADE",
]
_STREAMED = [
    "BEGIN",
    "INSERT INTO parent VALUES (1, 'sad', repeat('x', 2100), NULL)",
    "UPDATE parent SET note = 'n'",
    "UPDATE parent SET id = 2",
    "INSERT INTO whole VALUES (1, '', NULL)",
    "UPDATE whole SET note = ''",
    "DELETE FROM whole",
    "DELETE FROM parent",
    "TRUNCATE child RESTART IDENTITY",
    "SELECT pg_logical_emit_message(true, 'streamed', 'within')",
    _NOISE,
    WAIT,
    "SAVEPOINT s",
    "INSERT INTO whole VALUES (2, '', NULL)",
    _NOISE,
    WAIT,
    "ROLLBACK TO s",
    "INSERT INTO whole VALUES (3, '', NULL)",
    "COMMIT",
    "BEGIN",
    "INSERT INTO whole VALUES (4, '', NULL)",
    _NOISE,
    WAIT,
    "ROLLBACK",
    "TRUNCATE whole",
]
_PREPARED = [
    "BEGIN",
    "INSERT INTO whole VALUES (1, '', NULL)",
    "PREPARE TRANSACTION 'first'",
    WAIT,
    "COMMIT PREPARED 'first'",
    "BEGIN",
    "INSERT INTO whole VALUES (2, '', NULL)",
    "PREPARE TRANSACTION 'second'",
    WAIT,
    "ROLLBACK PREPARED 'second'",
    "TRUNCATE whole",
]
_STREAM_PREPARED = [
    "BEGIN",
    "INSERT INTO whole VALUES (1, '', NULL)",
    _NOISE,
    WAIT,
    "PREPARE TRANSACTION 'streamed'",
    WAIT,
    "COMMIT PREPARED 'streamed'",
    "TRUNCATE whole",
]
_ORIGIN = [
    "SELECT pg_replication_origin_create('elsewhere')",
    "SELECT pg_replication_origin_session_setup('elsewhere')",
    "BEGIN",
    "SELECT pg_replication_origin_xact_setup('0/1234', '2024-02-29 12:00:00+00')",
    "INSERT INTO nothing VALUES (NULL)",
    "COMMIT",
    "SELECT pg_replication_origin_session_reset(), pg_replication_origin_drop('elsewhere')",
]
_MESSAGES = [
    "SELECT pg_logical_emit_message(false, 'now', 'at once')",
    "BEGIN",
    "SELECT pg_logical_emit_message(true, 'then', 'with the transaction')",
    "INSERT INTO nothing VALUES (NULL)",
    "COMMIT",
]


@dataclass(frozen=True)
class Scenario:
    """``since`` is the first major version; ``options`` go to pgoutput; ``two_phase`` to the slot."""

    name: str
    since: int
    sql: list[str]
    options: dict[str, str] = field(default_factory=dict)
    two_phase: bool = False


SCENARIOS = [
    Scenario("changes", 13, _CHANGES, {"proto_version": "1"}),
    Scenario("origin", 13, _ORIGIN, {"proto_version": "1"}),
    Scenario("binary", 14, _CHANGES, {"proto_version": "2", "binary": "true"}),
    Scenario("messages", 14, _MESSAGES, {"proto_version": "2", "messages": "true"}),
    Scenario("streamed", 14, _STREAMED, {"proto_version": "2", "streaming": "on", "messages": "true"}),
    Scenario("prepared", 15, _PREPARED, {"proto_version": "3", "two_phase": "true"}, two_phase=True),
    Scenario("stream prepared", 15, _STREAM_PREPARED,
             {"proto_version": "3", "streaming": "on", "two_phase": "true"}, two_phase=True),
    Scenario("parallel", 16, _STREAMED,
             {"proto_version": "4", "streaming": "parallel", "messages": "true", "origin": "none"}),
]  # fmt: skip
