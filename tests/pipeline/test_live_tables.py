"""What the server says about a live table, asked of a real one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import psycopg
import pyarrow as pa
import pytest

from wal2lake.columnar.types import column_type
from wal2lake.errors import InterruptedByUser, LockedError
from wal2lake.postgres.catalog import PublishedTable, published_tables
from wal2lake.postgres.connection import Connection, connect
from wal2lake.postgres.live_tables import (
    Writer,
    await_running_transactions,
    copy_rows,
    current_names,
    fast_default_row,
    heap_files,
    live_columns,
    rows_by_key,
)
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.server


@pytest.fixture
def connection(server: EmbeddedPostgres) -> Iterator[Connection]:
    with connect(server.dsn, writable=True) as opened:
        opened.execute("CREATE SCHEMA live")
        opened.execute("CREATE TABLE live.item (id int, kind text, note text, PRIMARY KEY (id, kind))")
        opened.execute("INSERT INTO live.item VALUES (1, 'a''b', 'one'), (2, 'c\\d', 'two'), (3, 'e', NULL)")
        opened.execute("CREATE PUBLICATION live_pub FOR TABLE live.item")
        yield opened
        opened.execute("DROP PUBLICATION live_pub")
        opened.execute("DROP SCHEMA live CASCADE")


def item(connection: Connection) -> PublishedTable:
    (table,) = published_tables(connection, "live_pub")
    return table


def test_heap_files_change_exactly_when_rows_are_rewritten(connection: Connection) -> None:
    table = item(connection).relation_id
    before = heap_files(connection, [table])
    connection.execute("UPDATE live.item SET note = 'x'")
    connection.execute("ALTER TABLE live.item ADD COLUMN n int DEFAULT 7")
    assert heap_files(connection, [table]) == before
    connection.execute("VACUUM FULL live.item")
    assert heap_files(connection, [table]) != before


def test_a_partitioned_tables_heap_is_that_of_its_partitions(connection: Connection) -> None:
    connection.execute("CREATE TABLE live.part (id int) PARTITION BY RANGE (id)")
    connection.execute("CREATE TABLE live.part_1 PARTITION OF live.part FOR VALUES FROM (0) TO (10)")
    oid = connection.execute("SELECT 'live.part'::regclass::oid::bigint").fetchone()
    assert oid is not None
    before = heap_files(connection, [oid[0]])
    connection.execute("TRUNCATE live.part")
    assert before[oid[0]]
    assert heap_files(connection, [oid[0]]) != before


def test_rows_older_than_a_column_hold_its_fast_default(connection: Connection) -> None:
    connection.execute("CREATE TYPE live.mood AS ENUM ('glad', 'so, so')")
    connection.execute(
        "ALTER TABLE live.item ADD COLUMN price numeric(8, 2) DEFAULT 9.5, ADD COLUMN mood live.mood DEFAULT 'so, so',"
        " ADD COLUMN tags text[] DEFAULT '{a,\"b c\"}', ADD COLUMN plain int, ADD COLUMN late int"
    )
    connection.execute("ALTER TABLE live.item ALTER COLUMN late SET DEFAULT 5")
    live = live_columns(connection, item(connection).relation_id)
    assert live["plain"].fast_default is live["plain"].given is False
    assert (live["late"].fast_default, live["late"].given) == (False, True)
    assert live["price"].fast_default
    assert live["price"].attnum == 4
    columns = [c for c in item(connection).columns if c.name in ("price", "mood", "tags", "plain")]
    row = fast_default_row(connection, item(connection), columns)
    assert copy_row_fields(row)[1:] == [b"so, so", b'{a,"b c"}', None]
    assert column_type(columns[0].type_oid, columns[0].typmod).arrow == pa.decimal128(8, 2)


def copy_row_fields(row: bytes) -> list[bytes | None]:
    fields: list[bytes | None] = []
    at = 2
    for _ in range(int.from_bytes(row[:2])):
        size = int.from_bytes(row[at : at + 4], signed=True)
        fields.append(None if size < 0 else row[at + 4 : at + 4 + size])
        at += 4 + max(size, 0)
    return fields


def test_rows_are_found_by_key_whatever_the_key_holds(connection: Connection) -> None:
    keys = [{"id": "1", "kind": "a'b"}, {"id": "2", "kind": "c\\d"}, {"id": "3", "kind": "gone"}]
    rows, bound = rows_by_key(connection, item(connection), keys)
    assert sorted(copy_row_fields(row)[2] or b"" for row in rows) == [b"one", b"two"]
    assert bound > 0
    assert copy_rows(connection, "COPY (SELECT 1 WHERE false) TO STDOUT (FORMAT binary)") == []


def test_rows_of_another_table_that_has_the_name_are_not_taken(connection: Connection) -> None:
    known = item(connection)
    connection.execute("ALTER TABLE live.item RENAME TO away; CREATE TABLE live.item (LIKE live.away INCLUDING ALL)")
    connection.execute("INSERT INTO live.item VALUES (1, 'a''b', 'another')")
    with pytest.raises(LockedError, match="Another table was named"):
        rows_by_key(connection, known, [{"id": "1", "kind": "a'b"}])
    assert current_names(connection, known.relation_id, [3, 1]) == [("live", "away", "note"), ("live", "away", "id")]
    connection.execute("ALTER TABLE live.away DROP COLUMN note")
    ((*named, gone),) = filter(None, current_names(connection, known.relation_id, [3]))
    assert (named, "note" in gone) == (["live", "away"], False)
    assert current_names(connection, 1, [1]) == [None]


def test_waiting_ends_when_those_who_wrote_before_have_ended(connection: Connection, server: EmbeddedPostgres) -> None:
    waits: list[Sequence[Writer]] = []
    with psycopg.connect(server.dsn) as writer:
        writer.execute("INSERT INTO live.item VALUES (9, 'x')")

        def pause(running: Sequence[Writer]) -> None:
            waits.append(running)
            writer.commit()

        await_running_transactions(connection, pause)
        ((found,),) = waits
        assert re.fullmatch(rf"pid {writer.info.backend_pid} for \d+ s", str(found))


def test_a_prepared_transaction_is_waited_for_by_its_name() -> None:
    waits: list[str] = []
    with EmbeddedPostgres(settings={"max_prepared_transactions": "5"}) as server, connect(server.dsn) as connection:
        server.psql("CREATE TABLE t (id int); BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'it''s'")

        def pause(running: Sequence[Writer]) -> None:
            waits.extend(map(str, running))
            server.psql("ROLLBACK PREPARED 'it''s'")

        await_running_transactions(connection, pause)
    (found,) = waits
    assert re.fullmatch(r"prepared transaction 'it''s' for \d+ s", found)


def test_waiting_can_be_given_up(connection: Connection, server: EmbeddedPostgres) -> None:
    def give_up(running: Sequence[Writer]) -> None:
        raise InterruptedByUser("Stopped.")

    with psycopg.connect(server.dsn) as writer:
        writer.execute("INSERT INTO live.item VALUES (9, 'x')")
        with pytest.raises(InterruptedByUser):
            await_running_transactions(connection, give_up)
        writer.rollback()
