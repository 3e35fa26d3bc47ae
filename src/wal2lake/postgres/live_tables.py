"""What the pipeline asks of a live table beside its whole content: heap files, fast defaults, single rows, writers.

No value is turned into a type that somebody made: a domain's CHECK would run under our role, and one stands in the
input of every array, composite or range that holds the domain. Values become built-in types, or are compared as text.

Source: PostgreSQL documentation, "pg_attribute" (attmissingval), "Database Object Size Functions"
(pg_relation_filenode), "Transaction ID and Snapshot Information Functions", "COPY" (Binary Format).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from psycopg import sql

from wal2lake.errors import LockedError
from wal2lake.lsn import LSN
from wal2lake.postgres.catalog import CatalogColumn, PublishedTable, output_text
from wal2lake.postgres.connection import Connection, mapped_errors
from wal2lake.postgres.snapshot import copy_command, reads_text
from wal2lake.user_types import FIRST_NORMAL_OID
from wal2lake.wire.command_text import quote_identifier

_HEADER_BYTES = 11 + 4 + 4  # signature, flags, length of an extension area that no server sends
_TRAILER = b"\xff\xff"


@dataclass(frozen=True, slots=True)
class LiveColumn:
    """A column as it is now. ``fast_default``: rows older than the column hold pg_attribute.attmissingval in it.

    ``given``: it has a default, identity or generation expression or takes no NULL, so a rewrite may have given older
    rows values. A partitioned table's fast defaults are its partitions'.
    """

    attnum: int
    fast_default: bool
    given: bool


def wal_end(connection: Connection) -> LSN:
    """Where the WAL ends now; every transaction that commits later has its commit record above."""
    with mapped_errors():
        row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return LSN.parse(row[0])


def heap_files(connection: Connection, relation_ids: Sequence[int]) -> dict[int, str]:
    """For each relation the file numbers of its heap, and of its partitions; they change when rows are rewritten."""
    with mapped_errors():
        return dict(connection.execute(_HEAP_FILES, [list(relation_ids)]).fetchall())


def table_sizes(connection: Connection, relation_ids: Sequence[int]) -> dict[int, int]:
    """OID → bytes on disk without indexes, TOASTed values included; of a partitioned table all its partitions'.

    Source: PostgreSQL documentation, "System Administration Functions", pg_table_size, pg_partition_tree.
    """
    with mapped_errors():
        return dict(connection.execute(_SIZES, [list(relation_ids)]).fetchall())


def live_columns(connection: Connection, relation_id: int) -> Mapping[str, LiveColumn]:
    """By name, the columns that the table has now; empty when there is no such table any more."""
    with mapped_errors():
        rows = connection.execute(_LIVE_COLUMNS, [relation_id]).fetchall()
    return {name: LiveColumn(*values) for name, *values in rows}


def current_names(connection: Connection, relation_id: int, attnums: Sequence[int]) -> list[tuple[str, ...] | None]:
    """The schema, table and name that these columns have now, whatever the transaction's snapshot would show; of a
    dropped one PostgreSQL's word for it. None, or a ServerError before 14, where there is no such table any more.

    Source: PostgreSQL documentation, "Object Information and Addressing Functions".
    """
    with mapped_errors():
        rows = connection.execute(_CURRENT_NAMES, [relation_id, list(attnums)]).fetchall()
    return [None if names is None else tuple(names) for (names,) in rows]


def unique_keys(connection: Connection, relation_id: int) -> frozenset[frozenset[int]]:
    """The sets of attnums that name one row at any time: NOT NULL, unique in the whole table, not DEFERRABLE."""
    with mapped_errors():
        return frozenset(frozenset(attnums) for (attnums,) in connection.execute(_UNIQUE_KEYS, [relation_id]))


def fast_default_row(connection: Connection, table: PublishedTable, columns: Sequence[CatalogColumn]) -> bytes:
    """attmissingval of ``columns`` (NULL where there is none) as one row of COPY binary, each in its base type."""
    values = ", ".join(
        f"(SELECT (a.attmissingval::text::text[])[1]{_cast(column)} FROM pg_catalog.pg_attribute a"
        f" WHERE (a.attrelid = {table.relation_id:d} OR a.attrelid IN"
        f" (SELECT t.relid FROM pg_catalog.pg_partition_tree({table.relation_id:d}) t))"
        f" AND a.attname = {_literal(column.name)} AND a.atthasmissing LIMIT 1)"
        for column in columns
    )
    return copy_rows(connection, f"COPY (SELECT {values}) TO STDOUT (FORMAT binary)")[0]


def _literal(value: str) -> str:
    """Quoted, with its type left to the server."""
    return sql.Literal(value).as_string()


def _cast(column: CatalogColumn) -> str:
    """A type outside the type table stays what attmissingval::text holds: its output text."""
    if reads_text(column):
        return ""
    return f"::{column.type_name if column.base_oid == column.type_oid else column.base_type_name}"


def _has_value(column: CatalogColumn, value: str) -> str:
    """The condition that the column holds ``value``, which is the text of one. By text no index can be used."""
    name = quote_identifier(column.name)
    if column.base_oid < FIRST_NORMAL_OID:
        return f"{name} = {_literal(value)}::{column.base_type_name}"
    whole = f"{name}::{column.base_type_name}" if column.base_oid != column.type_oid else name
    return f"{output_text(column.output_function, whole)} = {_literal(value)}"


def rows_by_key(
    connection: Connection, table: PublishedTable, keys: Sequence[Mapping[str, str]]
) -> tuple[list[bytes], LSN]:
    """The rows that have one of ``keys`` (column → the value as text), COPY binary, as they are now.

    With them the LSN below which every transaction that they show has its commit record. Raises LockedError where
    another table had its name at that moment.
    """
    columns = {column.name: column for column in table.columns}
    one_of = " OR ".join(
        "(" + " AND ".join(_has_value(columns[name], value) for name, value in key.items()) + ")" for key in keys
    )
    condition = f"({table.row_filter}) AND ({one_of})" if table.row_filter else one_of
    with connection.transaction():
        rows = copy_rows(connection, copy_command(replace(table, row_filter=condition), table.columns, 0, None))
        if not has_opened(connection, table.relation_id):
            raise LockedError(f"Another table was named {table} for a moment; its rows are not this one's.")
    with mapped_errors():
        bound = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    assert bound is not None
    return rows, LSN.parse(bound[0])


def has_opened(connection: Connection, relation_id: int) -> bool:
    """Whether this transaction has read the relation: COPY finds a table by its name, which may be another's by then,
    and what it found stays locked. Source: PostgreSQL documentation, "pg_locks"."""
    with mapped_errors():
        row = connection.execute(_OPENED, [relation_id]).fetchone()
    return row is not None


def copy_rows(connection: Connection, command: str) -> list[bytes]:
    """All rows of a small COPY … TO STDOUT (FORMAT binary), one bytes per row, in a transaction that cannot write."""
    with mapped_errors(), connection.transaction(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION READ ONLY")
        with cursor.copy(command.encode()) as copy:
            messages = [bytes(message) for message in copy]
    rows = [messages[0][_HEADER_BYTES:], *messages[1:]]
    return [row for row in rows if row not in (b"", _TRAILER)]


@dataclass(frozen=True, slots=True)
class Writer:
    """A transaction that writes: its session's ``pid``, or the name under which it was ``prepared``; ``age_s`` is None
    where the role may not see it (pg_read_all_stats)."""

    pid: int | None
    prepared: str | None
    age_s: int | None

    def __str__(self) -> str:
        who = f"prepared transaction {_literal(self.prepared)}" if self.prepared is not None else f"pid {self.pid}"
        return who if self.age_s is None else f"{who} for {self.age_s} s"


def await_running_transactions(connection: Connection, pause: Callable[[Sequence[Writer]], None]) -> None:
    """Return when every transaction that has written so far has ended; ``pause(those that have not)`` while some run.

    What such a transaction wrote before its table was published is not in the log; once it has ended, a snapshot
    taken afterwards decides about all of it. ``pause`` sleeps, and may raise to give up. The oldest come first.
    """
    with mapped_errors():
        awaited = _writers(connection)
        while running := {xid: writer for xid, writer in _writers(connection).items() if xid in awaited}:
            pause(list(running.values()))


def _writers(connection: Connection) -> dict[str, Writer]:
    """By the xids in use, prepared transactions' too: each is locked by its owner until its end is visible to all."""
    return {xid: Writer(*values) for xid, *values in connection.execute(_WRITERS)}


_HEAP_FILES = """
SELECT o.oid::bigint,
       coalesce((SELECT string_agg(pg_relation_filenode(t.relid)::text, ',' ORDER BY t.relid)
                   FROM pg_partition_tree(o.oid) t), pg_relation_filenode(o.oid)::text, '')
  FROM unnest(%s::oid[]) o (oid)
"""

_OPENED = """
SELECT FROM pg_locks
 WHERE pid = pg_backend_pid() AND locktype = 'relation' AND relation = %s AND mode = 'AccessShareLock' AND granted
"""

_SIZES = """
SELECT o.oid::bigint,
       coalesce((SELECT sum(pg_table_size(t.relid))::bigint FROM pg_partition_tree(o.oid) t), pg_table_size(o.oid), 0)
  FROM unnest(%s::oid[]) o (oid)
"""

_CURRENT_NAMES = """
SELECT (pg_identify_object_as_address('pg_class'::regclass, %s, a.attnum)).object_names
  FROM unnest(%s::int[]) WITH ORDINALITY a (attnum, place) ORDER BY a.place
"""

_LIVE_COLUMNS = """
SELECT a.attname::text, a.attnum::int,
       a.atthasmissing OR EXISTS (SELECT FROM pg_partition_tree(a.attrelid) t
                                    JOIN pg_attribute p ON p.attrelid = t.relid
                                   WHERE p.attname = a.attname AND p.atthasmissing),
       a.atthasdef OR a.attidentity <> '' OR a.attgenerated <> '' OR a.attnotnull
  FROM pg_attribute a
 WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
"""

_UNIQUE_KEYS = """
SELECT k.attnums
  FROM pg_index i, LATERAL (SELECT (i.indkey::int2[])[0:i.indnkeyatts - 1]) k (attnums)
 WHERE i.indrelid = %s AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL
   AND i.indexprs IS NULL
   AND NOT EXISTS (SELECT FROM pg_attribute a
                    WHERE a.attrelid = i.indrelid AND a.attnum = ANY (k.attnums) AND NOT a.attnotnull)
"""

_WRITERS = """
SELECT l.transactionid::text, l.pid, p.gid, extract(epoch FROM now() - coalesce(p.prepared, a.xact_start))::bigint
  FROM pg_locks l
  LEFT JOIN pg_prepared_xacts p ON p.transaction = l.transactionid
  LEFT JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted
 ORDER BY coalesce(p.prepared, a.xact_start)
"""
