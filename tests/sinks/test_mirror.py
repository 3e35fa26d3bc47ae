"""What a real server streams, TOASTed keys and all, folded and merged, is what the server holds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.apply.test_fold import rows_of
from tests.columnar.stream import SESSION, LogRow, batch, peek
from wal2lake.apply.fold import fold, fold_rows, key_columns
from wal2lake.columnar.changes import Changes, decode_changes
from wal2lake.columnar.types import TableSchema
from wal2lake.pgoutput.codec import read_message
from wal2lake.pgoutput.messages import Relation
from wal2lake.sinks import delta, rewrite
from wal2lake.sinks.delta import DeltaSink
from wal2lake.testing.embedded import EmbeddedPostgres

COLUMNS = "a int, b text, n numeric(10,2), doc text, raw bytea, x float8"
TABLES = {"byk": ["b", "a"], "whole": ["b", "a"], "bag": [], "log": []}
OPTIONS = "WITH (toast_tuple_target = 128)"
SETUP = f"""
    SET synchronous_commit = on; -- the slot shows what is flushed
    CREATE SCHEMA mirror; SET search_path = mirror;
    CREATE TABLE byk ({COLUMNS}, PRIMARY KEY (b, a)) {OPTIONS};
    CREATE TABLE whole ({COLUMNS}, PRIMARY KEY (b, a)) {OPTIONS}; ALTER TABLE whole REPLICA IDENTITY FULL;
    CREATE TABLE bag ({COLUMNS}) {OPTIONS}; ALTER TABLE bag REPLICA IDENTITY FULL;
    CREATE TABLE log ({COLUMNS}) {OPTIONS};
    DO $$ DECLARE t text; c text; BEGIN
        FOREACH t IN ARRAY '{{byk,whole,bag,log}}'::text[] LOOP FOREACH c IN ARRAY '{{b,doc,raw}}'::text[] LOOP
            EXECUTE format('ALTER TABLE %I ALTER %I SET STORAGE EXTERNAL', t, c);
    END LOOP; END LOOP; END $$;
    CREATE PUBLICATION mirror FOR TABLES IN SCHEMA mirror;
"""
LARGE = "repeat(md5(random()::text), 80)"
CELLS = {
    "n": ["NULL", "round((random() * 1e6)::numeric, 2)"],
    "doc": ["NULL", "''", LARGE],
    "raw": ["NULL", f"{LARGE}::bytea"],
    "x": ["NULL", "random()", "'NaN'", "'-0'", "0", "'Infinity'"],
}


def statement(rng: random.Random, table: str) -> str:
    """One random statement; keys are few, so that they are freed and taken again; half of them are TOASTed."""
    new_key = rng.randrange(12)
    key = f"{new_key % 3}, repeat('{'k' if new_key % 2 else 'long'}{new_key}', {300 if new_key % 2 else 1})"
    values = ", ".join(rng.choice(choices) for choices in CELLS.values())
    insert = f"INSERT INTO {table} (a, b, n, doc, raw, x) VALUES ({key}, {values})"
    insert += " ON CONFLICT DO NOTHING" if TABLES[table] else ""
    some = f"(SELECT ctid FROM {table} ORDER BY random() LIMIT {rng.randint(1, 2)})"
    column = rng.choice(list(CELLS))
    update = f"UPDATE {table} SET {column} = {rng.choice(CELLS[column])} WHERE ctid IN {some}"
    free = f"NOT EXISTS (SELECT FROM {table} WHERE (a, b) = ({key}))"
    one = f"(SELECT ctid FROM {table} ORDER BY random() LIMIT 1)"
    move = f"UPDATE {table} SET (a, b) = ({key}) WHERE ctid = {one} AND {free}"
    delete = f"DELETE FROM {table} WHERE ctid IN {some}"
    if table == "log":
        return insert
    return (
        f"TRUNCATE {table}"
        if rng.random() < 0.005
        else rng.choice([insert, insert, update, update, move, move, delete])
    )


def work(connection: psycopg.Connection[tuple[object, ...]], rng: random.Random) -> None:
    for _ in range(rng.randint(1, 6)):
        with connection.transaction(force_rollback=rng.random() < 0.1):
            for _ in range(rng.randint(1, 12)):
                connection.execute(statement(rng, rng.choice(list(TABLES))))


def versions(rows: list[LogRow], start: int, table: str) -> Iterator[Changes]:
    """The table's changes from ``start`` on, cut where its Relation comes again."""
    relations = [
        (i, relation)
        for i, (_, _, payload) in enumerate(rows)
        if payload[:1] == b"R" and isinstance(relation := read_message(payload), Relation) and relation.name == table
    ]
    log = batch(rows)
    for place, (first, relation) in enumerate(relations):
        after = relations[place + 1][0] if place + 1 < len(relations) else len(rows)
        if after > start:
            yield decode_changes(log, TableSchema.from_relation(relation), (max(first, start), after))


@pytest.mark.server
@pytest.mark.parametrize("binary", [False, True])
def test_the_lake_mirrors_the_server(
    server: EmbeddedPostgres, tmp_path: Path, binary: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As text into files that are rewritten, in binary into files in which rows are marked."""
    monkeypatch.setattr(delta, "MARK_BYTES", 1)
    monkeypatch.setattr(rewrite, "MOSTLY", 1.0)  # these files have few rows, and half of them are soon gone
    rng = random.Random(5 + binary)
    with psycopg.connect(server.dsn, autocommit=True, options=SESSION) as connection:
        connection.execute(SETUP)
        connection.execute("SELECT pg_create_logical_replication_slot('mirror', 'pgoutput')")
        try:
            mirror(connection, server.dsn, tmp_path, rng, binary)
        finally:
            connection.execute("SELECT pg_drop_replication_slot('mirror')")
            connection.execute("DROP PUBLICATION mirror; DROP SCHEMA mirror CASCADE")


def mirror(
    connection: psycopg.Connection[tuple[object, ...]], dsn: str, lake: Path, rng: random.Random, binary: bool
) -> None:
    done, lsn = 0, dict.fromkeys(TABLES, 1)
    for turn in range(12):
        work(connection, rng)
        if turn in (4, 8):
            for table in TABLES:
                default = "" if turn == 4 else " DEFAULT 'said nowhere'"
                connection.execute(f"ALTER TABLE {table} ADD COLUMN added{turn} text{default}")
            work(connection, rng)
        rows = peek(dsn, "mirror", "mirror", binary=binary)
        for table, primary_key in TABLES.items():
            sink = DeltaSink(str(lake / table), "p", deletion_vectors=binary)
            changes = [c for c in versions(rows, done, table) if len(c)]
            if changes:
                schema = changes[-1].schema
                fill = {"added8": pa.scalar("said nowhere")}
                if sink.state() is None:
                    sink.commit_files([], 1, changes[0].schema.arrow_schema, None)
                sink.evolve(schema.arrow_schema, fill)
                key = key_columns(schema, primary_key)
                folded = fold(changes, key, fill) if key else fold_rows(changes, fill)
                sink.merge(folded, lsn[table] + 1, lsn[table])
                lsn[table] += 1
                names = schema.arrow_schema.names
                held = connection.execute(f"SELECT {', '.join(names)} FROM {table}").fetchall()
                found = rows_of(pa.table(DeltaTable(sink.uri).scan()).select(names))
                assert sorted(map(repr, found)) == sorted(map(repr, held)), f"{table} in turn {turn}"
        done = len(rows)
    marked = {path.parent.name for path in lake.glob("*/*.bin")}
    assert bool(marked) == binary
