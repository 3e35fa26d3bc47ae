"""One consistent picture of the tables, read by as many sessions as like, while writes go on.

The order in SnapshotKeeper is the proof, so it must not change: the WAL position is read after the snapshot is taken,
so every transaction that the snapshot sees has its commit record below ``bound_lsn``. The reverse does not hold (a
commit record precedes its transaction's visibility): whether a change is in the snapshot is decided by its xid, never
by an LSN.

The keeper locks no table, so an ALTER or TRUNCATE may come between. A TRUNCATE or a rewrite shows in the table's heap
file, which the caller notes before the snapshot and compares under COPY's own lock (``check`` of copy_binary).

Source: PostgreSQL documentation, "Snapshot Synchronization Functions", "SET TRANSACTION", "COPY" (Binary Format).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import psycopg
from psycopg import sql

from wal2lake.columnar.framing import Framed
from wal2lake.columnar.types import column_type
from wal2lake.errors import ConnectError
from wal2lake.login import Dsn, Login
from wal2lake.lsn import LSN
from wal2lake.postgres.catalog import CatalogColumn, PublishedTable, output_text
from wal2lake.postgres.connection import WITHOUT_TIMEOUTS, Connection, connect, mapped_errors
from wal2lake.postgres.copy_frames import copied_rows
from wal2lake.postgres.one_server import instance, pinned
from wal2lake.wire.command_text import quote_identifier

# No timeout may end a snapshot half way, and row security must fail loudly rather than filter: replication knows none.
SNAPSHOT_SETTINGS = f"{WITHOUT_TIMEOUTS}; SET row_security = off".encode()


_WAL_END = """
SELECT l::text, ('x' || substr(pg_walfile_name(l), 1, 8))::bit(32)::int FROM pg_current_wal_insert_lsn() l
"""


class SnapshotLostError(ConnectError):
    """The exported snapshot is gone, because the session that kept it ended; a new one can be taken."""


@dataclass(frozen=True, slots=True)
class SnapshotIdentity:
    """An exported snapshot. ``xmin``, ``xmax``, ``xip`` are 64-bit xids as pg_current_snapshot() tells them: xids
    below xmin are visible unless aborted, xids in xip or from xmax on are not. ``bound_lsn``: every transaction
    that is visible has its commit record below it. ``settled_lsn``: the other way round, every transaction with its
    commit record below it is visible. ``timeline``: the server's. Both are 0 where nobody noted them. ``instance``: the
    server's (one_server.py); '' where nobody noted it."""

    name: str
    xmin: int
    xmax: int
    xip: tuple[int, ...]
    bound_lsn: LSN
    settled_lsn: LSN = LSN(0)  # noqa: RUF009 - immutable
    timeline: int = 0
    instance: str = ""

    def to_json(self) -> str:
        """One JSON object, LSN as text."""
        values = {"name": self.name, "xmin": self.xmin, "xmax": self.xmax, "xip": list(self.xip)}
        lsns = {"bound_lsn": str(self.bound_lsn), "settled_lsn": str(self.settled_lsn)}
        return json.dumps({**values, **lsns, "timeline": self.timeline, "instance": self.instance})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The reverse of to_json."""
        values = json.loads(text)
        return cls(
            values["name"],
            values["xmin"],
            values["xmax"],
            tuple(values["xip"]),
            LSN.parse(values["bound_lsn"]),
            LSN.parse(values.get("settled_lsn", "0/0")),
            values.get("timeline", 0),
            values.get("instance", ""),
        )


class SnapshotKeeper:
    """A context manager that holds a snapshot open; other sessions import ``identity.name`` meanwhile.

    ``login`` is for them: of several servers that the DSN names only one has the snapshot.

    It holds no lock on any table: who reads one asks, under COPY's own lock, whether it is still the one that the
    snapshot saw. Raises what map_error says; on a standby ServerConfigError, because pg_current_snapshot() lists no
    running transaction there.
    """

    identity: SnapshotIdentity
    login: Login

    def __init__(self, dsn: Dsn, settled_lsn: LSN = LSN(0)) -> None:  # noqa: B008 - immutable
        """``settled_lsn``: where the WAL ended before all who wrote then were waited for."""
        self._dsn = dsn
        self._settled_lsn = settled_lsn
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        self._connection = connect(self._dsn, application_name="wal2lake snapshot")
        try:
            self.login = pinned(self._dsn, self._connection.pgconn)
            server = instance(self._connection)
            with mapped_errors():
                self._connection.execute(SNAPSHOT_SETTINGS)
                self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                taken = self._connection.execute("SELECT pg_export_snapshot(), pg_current_snapshot()::text").fetchone()
                bound = self._connection.execute(_WAL_END).fetchone()
            assert taken is not None and bound is not None
            xmin, xmax, xip = taken[1].split(":")
            running = tuple(int(xid) for xid in xip.split(",") if xid)
            lsns = LSN.parse(bound[0]), self._settled_lsn
            self.identity = SnapshotIdentity(taken[0], int(xmin), int(xmax), running, *lsns, bound[1], server)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the snapshot go. Tasks that have imported it keep it; no other can any more."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def copy_binary(
    dsn: Dsn,
    snapshot_name: str,
    table: PublishedTable,
    columns: Sequence[CatalogColumn],
    block_from: int = 0,
    block_to: int | None = None,
    check: Callable[[Connection], None] | None = None,
    lock_timeout_s: int = 0,
    server: str = "",
) -> Iterator[Framed]:
    """Read the rows of heap blocks [block_from, block_to) as the snapshot sees them, COPY binary, one payload per row.

    Yields them as they come (copy_frames.py); file header and trailer are left out. ``block_to`` None means to the
    end: the last chunk must say so, since the table may have grown after its blocks were counted. The publication's
    row filter holds. A partitioned table has no blocks and is read whole. ``check`` is called in COPY's transaction
    after the last row, while its lock still keeps the table from being rewritten; it may raise. ``server``: the
    instance that has the snapshot; another may have one of the same name ('': that is not asked).
    Raises SnapshotLostError when the snapshot is gone, LockedError when somebody's lock is in the way for more than
    ``lock_timeout_s`` seconds (0: that is waited for), else what map_error says.
    """
    with contextlib.closing(connect(dsn, application_name="wal2lake copy")) as connection, mapped_errors():
        if server and instance(connection) != server:
            raise _another_server_error()
        _import_snapshot(connection, snapshot_name)
        if lock_timeout_s:
            connection.execute(f"SET lock_timeout = '{lock_timeout_s}s'".encode())
        yield from copied_rows(connection.pgconn, copy_command(table, columns, block_from, block_to), len(columns))
        if check is not None:
            check(connection)


def _another_server_error() -> SnapshotLostError:
    return SnapshotLostError(
        "The server is another one than that which has the snapshot, or was started again.",
        hint="Where something distributes the DSN's connections over several servers, name one of them.",
    )


def copy_command(table: PublishedTable, columns: Sequence[CatalogColumn], block_from: int, block_to: int | None) -> str:
    """The COPY that copy_binary sends. A type outside the type table is read as its output function's text."""
    conditions = [f"({table.row_filter})"] if table.row_filter else []
    if block_from and not table.partitioned:
        conditions.append(f"ctid >= '({block_from},0)'::tid")
    if block_to is not None and not table.partitioned:
        conditions.append(f"ctid < '({block_to},0)'::tid")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    only = "" if table.partitioned else "ONLY "
    selected = ", ".join(_select_item(column) for column in columns)
    return f"COPY (SELECT {selected} FROM {only}{table.quoted}{where}) TO STDOUT (FORMAT binary)"


def _select_item(column: CatalogColumn) -> str:
    name = quote_identifier(column.name)
    if not reads_text(column):
        return name
    value = f"{name}::{column.base_type_name}" if column.base_oid != column.type_oid else name
    return output_text(column.output_function, value)


def reads_text(column: CatalogColumn) -> bool:
    """Whether its output text is read, rather than its binary form."""
    if column.as_text is not None:
        return column.as_text
    return not column_type(column.type_oid, column.typmod, column.base_oid).binary


def _import_snapshot(connection: Connection, snapshot_name: str) -> None:
    """Begin a transaction that sees what the snapshot's keeper sees."""
    with mapped_errors():
        connection.execute(SNAPSHOT_SETTINGS)
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        try:
            connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot_name)))
        except (psycopg.errors.InvalidParameterValue, psycopg.errors.UndefinedObject) as error:
            raise SnapshotLostError(
                "The exported snapshot is gone: the session that kept it has ended.",
                hint="Take a new snapshot; what is already copied stays.",
            ) from error
