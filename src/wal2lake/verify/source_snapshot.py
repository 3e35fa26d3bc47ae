"""The source at one exact LSN: a temporary logical slot exports a snapshot that sees just what commits before it.

A transaction is visible exactly when its commit record lies before the slot's consistent point, for that is the order
in which the slot reads them. No other snapshot has such a position (pg_export_snapshot knows xids only). The slot
lives for a moment: an ordinary session takes its snapshot over, so neither WAL nor a slot is held meanwhile.

That session never opens a table. A table is locked only by a short transaction that reads it and nothing else: TRUNCATE
and ALTER wait for whoever holds a lock, and everybody else waits behind them, the pipeline too. A verify that waited
for the pipeline with a lock in hand would wait for itself, which no deadlock detector sees.

Source: PostgreSQL documentation, "Logical Decoding Concepts" (Exported Snapshots), "SET TRANSACTION", "LOCK".
"""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import psycopg
from psycopg import sql

from wal2lake.errors import VerifyError, Wal2LakeError
from wal2lake.login import Dsn
from wal2lake.lsn import LSN
from wal2lake.postgres.catalog import PublishedTable, published_tables
from wal2lake.postgres.connection import Connection, connect, mapped_errors, replication_connection
from wal2lake.postgres.one_server import pinned
from wal2lake.postgres.slots import create_slot
from wal2lake.postgres.snapshot import SNAPSHOT_SETTINGS, SnapshotLostError

APPLICATION = "wal2lake verify"

LOCK_TIMEOUT_MS = 5000  # a queue behind DDL is left after this long
_CANCEL_TIMEOUT_S = 10.0

# TRUNCATE and rewrites of ALTER TABLE give a table a new file, and old snapshots then see it empty. The row of
# pg_class is the snapshot's; what pg_relation_filenode and to_regclass say is today's.
_MOVED = """
SELECT to_regclass(%(name)s)::oid IS DISTINCT FROM %(table)s::oid OR EXISTS (
SELECT FROM pg_class c
 WHERE c.relfilenode <> 0 AND c.relfilenode IS DISTINCT FROM pg_relation_filenode(c.oid)
   AND (c.oid = %(table)s OR c.oid IN (SELECT p.relid FROM pg_partition_tree(%(table)s) p)))
"""

_IN_THE_WAY = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.InvalidSchemaName,
)


# Who has an xid: sessions, and transactions that are prepared, whose locks are no process's.
_RUNNING = """
SELECT coalesce('the prepared transaction ' || quote_literal(p.gid), 'the transaction of process ' || l.pid),
       p.gid IS NOT NULL
  FROM pg_locks l LEFT JOIN pg_prepared_xacts p ON p.transaction = l.transactionid
 WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted ORDER BY 2 DESC, 1
"""
_NAMED = 3


class TableMovedError(VerifyError):
    """The snapshot's rows of a table cannot be read any more, or not now: DDL came between. A new snapshot can."""


class SourceSnapshot:
    """Transactions whose commit record lies before ``lsn`` are visible in each of its transactions, and no others.

    It lasts until source_snapshot ends. Any number of threads may read at once, each in a session of its own.
    """

    def __init__(self, dsn: Dsn, name: str, lsn: LSN) -> None:
        self.lsn = lsn
        self._dsn = dsn
        self._name = name
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._cancelled = False

    def published(self, publication: str) -> tuple[PublishedTable, ...]:
        """The tables of ``publication``. Raises TableMovedError when one stays locked, PublicationError."""
        with self._transaction("A published table") as connection:
            return tuple(published_tables(connection, publication))

    @contextmanager
    def reading(self, table: PublishedTable) -> Iterator[Connection]:
        """A transaction that holds TRUNCATE and ALTER of ``table`` off; nothing but reading it belongs in the block.

        Raises TableMovedError when one of them has already taken rows from it, or keeps it locked.
        """
        with self._transaction("The table", str(table)) as connection:
            connection.execute(f"LOCK TABLE {table.quoted} IN ACCESS SHARE MODE".encode())
            row = connection.execute(_MOVED, {"table": table.relation_id, "name": table.quoted}).fetchone()
            if row is None or row[0]:
                raise _moved_error("The table", str(table))
            yield connection

    def cancel(self) -> None:
        """End what other threads are reading, which then raises; for when the snapshot is of no use any more."""
        with self._lock:
            self._cancelled = True
            busy = tuple(self._busy)
        for connection in busy:
            with suppress(psycopg.Error):  # it came to its end by itself, or the server did
                connection.cancel_safe(timeout=_CANCEL_TIMEOUT_S)

    def close(self) -> None:
        """Close the sessions; every transaction has ended."""
        for connection in self._idle:
            connection.close()

    @contextmanager
    def _transaction(self, what: str, relation: str | None = None) -> Iterator[Connection]:
        with mapped_errors(), self._session() as connection:
            try:
                _begin(connection, self._name)
                connection.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}".encode())
                yield connection
                connection.execute("COMMIT")
            except (psycopg.Error, Wal2LakeError) as error:
                if isinstance(error, _IN_THE_WAY) or isinstance(error.__cause__, _IN_THE_WAY):
                    raise _moved_error(what, relation) from error
                raise

    @contextmanager
    def _session(self) -> Iterator[Connection]:
        """An idle session or a new one; after a failure it is closed, so no transaction stays open."""
        with self._lock:
            idle = self._idle.pop() if self._idle else None
        connection = idle or _connect(self._dsn)
        with self._lock:
            self._busy.add(connection)
            cancelled = self._cancelled
        try:
            if cancelled:
                raise VerifyError("The snapshot has been given up.")
            yield connection
        except BaseException:
            connection.close()
            raise
        finally:
            with self._lock:
                self._busy.discard(connection)
                if not connection.closed:
                    self._idle.append(connection)


def _moved_error(what: str, relation: str | None) -> TableMovedError:
    return TableMovedError(f"{what} was truncated, rewritten, altered or locked meanwhile.", relation=relation)


def _connect(dsn: Dsn) -> Connection:
    connection = connect(dsn, application_name=APPLICATION)
    with mapped_errors():
        connection.execute(SNAPSHOT_SETTINGS)
    return connection


def _report_running(connection: Connection, deadline: float, say: Callable[[str], None]) -> None:
    """Say which transactions keep the slot from being made. Raises VerifyError past ``deadline`` for a prepared one."""
    with mapped_errors():
        running = connection.execute(_RUNNING).fetchall()
    named = ", ".join(name for name, _ in running[:_NAMED]) + (" and others" if len(running) > _NAMED else "")
    if not named:
        return
    if time.monotonic() > deadline and running[0][1]:
        raise VerifyError(
            f"A snapshot must wait for {named}.",
            hint="Run COMMIT PREPARED or ROLLBACK PREPARED, each in its own database; then verify again.",
        )
    say(f"Waiting for {named} to end, as a snapshot must.")


def _begin(connection: Connection, name: str) -> None:
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    try:
        connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(name)))
    except (psycopg.errors.InvalidParameterValue, psycopg.errors.UndefinedObject) as error:
        raise SnapshotLostError(
            "The source's snapshot is gone: the session that kept it has ended.", hint="Verify again."
        ) from error


@contextmanager
def source_snapshot(
    dsn: Dsn, timeout_s: float = math.inf, say: Callable[[str], None] = lambda _: None
) -> Iterator[SourceSnapshot]:
    """Take a snapshot and hold it until the block ends, without any lock on a table.

    Making the slot waits for every running transaction; ``say`` is told about once a second meanwhile which they are.
    Raises VerifyError for one that is prepared and does not end within ``timeout_s``, as it may never; and what
    map_error says (RightsError, ServerConfigError for wal_level or no free slot).
    """
    with _connect(dsn) as keeper:
        login = pinned(dsn, keeper.pgconn)
        waiting = partial(_report_running, keeper, time.monotonic() + timeout_s, say)
        with replication_connection(login, application_name=APPLICATION) as walsender:
            name = f"wal2lake_verify_{uuid.uuid4().hex[:12]}"
            slot = create_slot(walsender, name, temporary=True, snapshot="export", while_waiting=waiting)
            assert slot.snapshot_name is not None
            with mapped_errors():
                _begin(keeper, slot.snapshot_name)
                row = keeper.execute("SELECT pg_export_snapshot()").fetchone()
        assert row is not None
        snapshot = SourceSnapshot(login, row[0], slot.consistent_point)
        try:
            yield snapshot
        finally:
            snapshot.close()
