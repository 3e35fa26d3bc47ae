"""The snapshot's promises, kept under writes: every row once, the right rows, and a true bound."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from wal2lake.errors import ConnectError
from wal2lake.lsn import LSN
from wal2lake.pgoutput.codec import read_message
from wal2lake.pgoutput.messages import Begin
from wal2lake.postgres.catalog import PublishedTable, published_tables
from wal2lake.postgres.connection import connect, replication_connection
from wal2lake.postgres.slots import create_slot, drop_slot
from wal2lake.postgres.snapshot import SnapshotIdentity, SnapshotKeeper, SnapshotLostError, copy_binary, copy_command
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.server

ROWS = 1_000_000
CHUNKS = 7


@pytest.fixture(scope="module", autouse=True)
def schema(server: EmbeddedPostgres) -> Iterator[None]:
    server.psql(
        f"""
        CREATE SCHEMA snap;
        CREATE TABLE snap.big AS SELECT g AS id, 0 AS version FROM generate_series(1, {ROWS}) g;
        ALTER TABLE snap.big ADD PRIMARY KEY (id);
        CREATE TABLE snap.marks (xid bigint PRIMARY KEY);
        CREATE PUBLICATION snap FOR TABLE snap.big, snap.marks;
        """
    )
    yield
    server.psql("DROP PUBLICATION snap; DROP SCHEMA snap CASCADE")


@pytest.fixture
def tables(server: EmbeddedPostgres) -> dict[str, PublishedTable]:
    with connect(server.dsn) as connection:
        return {table.name: table for table in published_tables(connection, "snap")}


class Writers:
    """Sessions that run ``sql`` over and over until the block ends."""

    def __init__(self, dsn: str, sql: str, count: int) -> None:
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(dsn, sql)) for _ in range(count)]

    def _run(self, dsn: str, sql: str) -> None:
        with connect(dsn, writable=True) as connection:
            while not self._stop.is_set():
                connection.execute(sql.encode())

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *failure: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


CHURN = f"""
UPDATE snap.big SET version = version + 1 WHERE id % 5000 = (random() * 4999)::int;
DELETE FROM snap.big WHERE id = (random() * {ROWS})::int;
INSERT INTO snap.big SELECT max(id) + 1, 0 FROM snap.big ON CONFLICT DO NOTHING;
"""


def test_chunks_hold_every_row_once_while_writes_go_on(
    server: EmbeddedPostgres, tables: dict[str, PublishedTable]
) -> None:
    table = tables["big"]
    edges: list[int | None] = [table.blocks * i // CHUNKS for i in range(CHUNKS)]
    ranges = list(zip(edges, [*edges[1:], None], strict=True))
    with Writers(server.dsn, CHURN, 1), SnapshotKeeper(server.dsn) as keeper:
        with connect(server.dsn) as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            connection.execute(f"SET TRANSACTION SNAPSHOT '{keeper.identity.name}'".encode())
            expected = connection.execute("SELECT count(*), sum(id), sum(version) FROM snap.big").fetchone()
            connection.execute("ROLLBACK")

        def read(blocks: tuple[int | None, int | None]) -> list[bytes]:
            batches = copy_binary(server.dsn, keeper.identity.name, table, table.columns, blocks[0] or 0, blocks[1])
            return [row for batch in batches for row in batch.payloads]

        with ThreadPoolExecutor(4) as pool:
            rows = [row for chunk in pool.map(read, ranges) for row in chunk]
    record = np.dtype([("fields", ">i2"), ("l1", ">i4"), ("id", ">i4"), ("l2", ">i4"), ("version", ">i4")])
    values = np.frombuffer(b"".join(rows), record)
    ids = values["id"].astype(np.int64)
    assert np.unique(ids).size == ids.size
    assert expected == (ids.size, ids.sum(), values["version"].astype(np.int64).sum())


def test_identity_says_who_is_visible_and_the_bound_holds(
    server: EmbeddedPostgres, tables: dict[str, PublishedTable]
) -> None:
    table = tables["marks"]
    with replication_connection(server.dsn) as pgconn:
        create_slot(pgconn, "snap_bound")
    mark = "INSERT INTO snap.marks SELECT pg_current_xact_id()::text::bigint"
    seen: list[tuple[SnapshotIdentity, set[int]]] = []
    with Writers(server.dsn, mark, 4):
        for _ in range(20):
            with SnapshotKeeper(server.dsn) as keeper:
                seen.append((keeper.identity, _marks(server.dsn, keeper.identity, table)))
    commits = _commits(server.dsn, "snap_bound")
    with replication_connection(server.dsn) as pgconn:
        drop_slot(pgconn, "snap_bound")
    assert len(commits) > 20
    for identity, marks in seen:
        assert marks == {xid for xid in commits if _visible(identity, xid)}
        assert all(commits[xid] < identity.bound_lsn for xid in marks)


def _marks(dsn: str, identity: SnapshotIdentity, table: PublishedTable) -> set[int]:
    batches = copy_binary(dsn, identity.name, table, table.columns)
    return {int.from_bytes(row[6:14]) for batch in batches for row in batch.payloads}


def _visible(identity: SnapshotIdentity, xid: int) -> bool:
    return xid < identity.xmin or (xid < identity.xmax and xid not in identity.xip)


def _commits(dsn: str, slot: str) -> dict[int, int]:
    """xid → LSN of its commit record, for all that the slot has."""
    options = "'proto_version', '1', 'publication_names', 'snap'"
    sql = f"SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL, {options})"
    with connect(dsn, writable=True) as connection:
        connection.execute("SET synchronous_commit = on")  # decoding ends where the WAL is flushed
        connection.execute("SELECT pg_logical_emit_message(true, 'flush', '')")
        messages = [read_message(data) for (data,) in connection.execute(sql.encode(), [slot]) if data[:1] == b"B"]
    return {begin.xid: begin.final_lsn for begin in messages if isinstance(begin, Begin)}


def test_identity_survives_json() -> None:
    identity = SnapshotIdentity("00000003-1", 2**33, 2**33 + 5, (2**33 + 1,), LSN.parse("16/B374D848"))
    assert SnapshotIdentity.from_json(identity.to_json()) == identity


def test_a_lost_keeper_is_told_apart(server: EmbeddedPostgres, tables: dict[str, PublishedTable]) -> None:
    table = tables["marks"]
    with SnapshotKeeper(server.dsn) as keeper:
        server.psql(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'wal2lake snapshot'"
        )
        with pytest.raises(SnapshotLostError) as lost:
            list(copy_binary(server.dsn, keeper.identity.name, table, table.columns))
    assert isinstance(lost.value, ConnectError)


ODD = """
CREATE SCHEMA odd; SET search_path = odd;
CREATE TYPE mood AS ENUM ('good', 'bad'); CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN mood_domain AS mood; CREATE DOMAIN ints AS int[]; CREATE DOMAIN span AS int4range;
CREATE DOMAIN pair_domain AS pair; CREATE DOMAIN cursor_domain AS refcursor;
CREATE TABLE t (a mood, b mood_domain, c ints, d span, e pair, f pair_domain, g numeric, h interval, i int[][],
                j mood[], k "char", l money, m inet, n refcursor, o cursor_domain);
INSERT INTO t VALUES ('good', 'bad', '{1,2}', '[1,2)', '(1,x)', '(2,"y z")', 1.50, '1 day', '{{1},{2}}', '{bad}', 'x',
                      12.3, '1.2.3.4', 'c1', 'c 2');
INSERT INTO t DEFAULT VALUES;
CREATE TABLE columnless (); INSERT INTO columnless DEFAULT VALUES;
CREATE TABLE void (a int);
CREATE PUBLICATION odd FOR TABLE t, columnless, void;
"""


def test_types_outside_the_table_come_as_output_text(server: EmbeddedPostgres) -> None:
    server.psql(ODD)
    with connect(server.dsn) as connection:
        tables = {table.name: table for table in published_tables(connection, "odd")}
    with SnapshotKeeper(server.dsn) as keeper:
        read = {
            name: [rows.payloads for rows in copy_binary(server.dsn, keeper.identity.name, table, table.columns)]
            for name, table in tables.items()
        }
    ((values, nulls),) = read["t"]
    assert (read["void"], read["columnless"]) == ([], [[b"\0\0"]])
    assert _fields(values) == [
        "good", "bad", "{1,2}", "[1,2)", "(1,x)", '(2,"y z")', "1.50", "1 day", "{{1},{2}}", "{bad}", "x", "$12.30",
        "1.2.3.4", "c1", "c 2",
    ]  # fmt: skip
    assert _fields(nulls) == [None] * 15
    server.psql("DROP PUBLICATION odd; DROP SCHEMA odd CASCADE")


def _fields(row: bytes) -> list[str | None]:
    values: list[str | None] = []
    offset = 2
    for _ in range(int.from_bytes(row[:2])):
        length = int.from_bytes(row[offset : offset + 4], signed=True)
        values.append(None if length < 0 else row[offset + 4 : offset + 4 + length].decode())
        offset += 4 + max(length, 0)
    return values


def test_the_copy_command(tables: dict[str, PublishedTable]) -> None:
    filtered = replace(tables["big"], row_filter="(id > 5)")
    assert copy_command(filtered, filtered.columns[:1], 3, 9) == (
        'COPY (SELECT "id" FROM ONLY "snap"."big" WHERE ((id > 5))'
        " AND ctid >= '(3,0)'::tid AND ctid < '(9,0)'::tid) TO STDOUT (FORMAT binary)"
    )
    partitioned = replace(tables["big"], partitioned=True)
    assert "ctid" not in copy_command(partitioned, partitioned.columns, 3, 9)
