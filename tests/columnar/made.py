"""Tables of one column each, filled while a slot looked on: what their values decode to, on each way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

import psycopg
import pyarrow as pa

from tests.columnar.stream import SESSION, LogRow, batch, peek, schemas
from wal2lake.columnar.changes import decode_changes
from wal2lake.columnar.copy_rows import decode_copy_rows
from wal2lake.columnar.types import TypeRules
from wal2lake.postgres.catalog import PublishedTable, published_tables
from wal2lake.postgres.connection import connect
from wal2lake.postgres.live_tables import copy_rows
from wal2lake.postgres.snapshot import copy_command
from wal2lake.tables.chunks import columns_as_read, table_schema
from wal2lake.tables.column_types import newest_types
from wal2lake.testing.embedded import EmbeddedPostgres


@dataclass(frozen=True)
class Source:
    """``binary``: what was sent in that form; nothing by a server that has none."""

    dsn: str
    tables: dict[str, PublishedTable]
    text: list[LogRow]
    binary: list[LogRow]

    def rules(self, table: str) -> TypeRules:
        return newest_types(self.tables[table].columns, "text")

    def streamed(self, table: str, *, binary: bool = False) -> pa.Array:
        rows = self.binary if binary else self.text
        schema = schemas(rows, self.rules(table))[table]
        own = [row for row in rows if row[2][:5] == b"I" + schema.relation_id.to_bytes(4, "big")]
        return checked(decode_changes(batch(own), schema).new[1])

    def copied(self, table: str) -> pa.Array:
        rules, published = self.rules(table), self.tables[table]
        read = replace(published, columns=columns_as_read(published, (), rules))
        with closing(connect(self.dsn)) as connection:
            rows = copy_rows(connection, copy_command(read, read.columns, 0, None))
        return checked(decode_copy_rows(rows, table_schema(read, rules).columns, table)[1])


def checked(array: pa.Array) -> pa.Array:
    array.validate(full=True)
    return array


@contextmanager
def streamed_from(server: EmbeddedPostgres, prepare: str, cases: Mapping[str, Sequence[str]]) -> Iterator[Source]:
    """A database of its own with a table t0, t1 … for each type of ``cases``: a NULL and its values, both twice."""
    server.psql("CREATE DATABASE made")
    dsn = server.dsn.replace("dbname=postgres", "dbname=made")
    with psycopg.connect(dsn, autocommit=True, options=f"{SESSION} -c synchronous_commit=on") as connection:
        connection.execute(prepare.encode())
        for place, kind in enumerate(cases):
            connection.execute(f"CREATE TABLE t{place} (id serial PRIMARY KEY, c {kind})".encode())
        connection.execute("CREATE PUBLICATION pub FOR ALL TABLES")
        connection.execute("SELECT pg_create_logical_replication_slot('made', 'pgoutput')")
        for place, (kind, some) in enumerate(cases.items()):
            values = [[value] for value in (None, *some, None, *some)]
            with connection.cursor() as cursor:
                cursor.executemany(f"INSERT INTO t{place} (c) VALUES (%s::text::{kind})".encode(), values)
        try:
            with closing(connect(dsn)) as session:
                tables = {table.name: table for table in published_tables(session, "pub")}
            binary = peek(dsn, "made", "pub", binary=True) if connection.info.server_version >= 140000 else []
            yield Source(dsn, tables, peek(dsn, "made", "pub"), binary)
        finally:
            connection.execute("SELECT pg_drop_replication_slot('made')")
    server.psql("DROP DATABASE made WITH (FORCE)")
