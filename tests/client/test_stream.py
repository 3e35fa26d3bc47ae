"""A program's stream is whole, once and in order, whatever happens beneath it: blocking and in an event loop alike."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.adapt import AdaptersMap, Loader

import wal2lake
from tests.client.reading import BOTH, NAME, Read, blocking, rows, to
from tests.waiting import eventually
from wal2lake import (
    LSN,
    UNCHANGED,
    Begin,
    Change,
    Commit,
    Event,
    Insert,
    Message,
    Truncate,
    Update,
    connect,
    connect_physical,
)
from wal2lake.client import AsyncStream
from wal2lake.errors import (
    ConfigError,
    ConnectError,
    LogMismatchError,
    SlotMissingError,
    UnrepresentableError,
)
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = [pytest.mark.server, pytest.mark.timeout(30)]


@BOTH
def test_four_nothings_are_four(table: EmbeddedPostgres, read: Read) -> None:
    table.psql(f"INSERT INTO {NAME} VALUES (1, NULL, repeat('x', 9000), 'secret'), (2, '', 'y', 'secret')")
    table.psql(f"UPDATE {NAME} SET v = '' WHERE id = 1")
    table.psql(f"UPDATE {NAME} SET id = 3 WHERE id = 1; DELETE FROM {NAME} WHERE id = 2")
    events = read(to(table), commits=4)
    assert rows(events) == [
        ("Insert", None, {"id": 1, "v": None, "big": "x" * 9000}),
        ("Insert", None, {"id": 2, "v": "", "big": "y"}),
        ("Update", None, {"id": 1, "v": "", "big": UNCHANGED}),
        ("Update", {"id": 1}, {"id": 3, "v": "", "big": UNCHANGED}),
        ("Delete", {"id": 2}, None),
    ]
    keys = [event.key for event in events if isinstance(event, Change)]
    assert keys == [{"id": 1}, {"id": 2}, {"id": 1}, {"id": 1}, {"id": 2}]


@pytest.mark.parametrize("wait_s", [20, 0])
def test_the_first_receive_waits_for_an_event(table: EmbeddedPostgres, wait_s: float) -> None:
    """A keepalive and a Relation message come before it, and are none."""
    table.psql(f"INSERT INTO {NAME} VALUES (1)")

    async def first() -> list[Event]:
        async with to(table) as stream:
            return await stream.receive(wait_s)

    if not wait_s:
        with to(table) as stream:
            while not (events := stream.receive(wait_s)):
                pass
        assert isinstance(events[0], Begin)
        return
    with to(table) as stream:
        assert isinstance(stream.receive(wait_s)[0], Begin)
    assert isinstance(asyncio.run(first())[0], Begin)


def test_a_closed_stream_says_so(table: EmbeddedPostgres) -> None:
    async def closed() -> AsyncStream[Event]:
        async with to(table) as stream:
            return stream

    with to(table) as stream:
        pass
    gone = asyncio.run(closed())
    for use in (stream.receive, lambda: next(iter(stream)), lambda: stream.acknowledge(LSN(1)), lambda: list(stream)):
        with pytest.raises(ConfigError, match="The stream is closed"):
            use()
    for use in (lambda: asyncio.run(gone.receive()), lambda: gone.acknowledge(LSN(1))):
        with pytest.raises(ConfigError, match="The stream is closed"):
            use()


def test_a_stop_from_outside_ends_it_also_before_it_begins(table: EmbeddedPostgres) -> None:
    for before in (True, False):
        stopped = to(table)
        if before:
            stopped.stop()
        else:
            threading.Timer(0.2, stopped.stop).start()
        with stopped as stream:
            assert list(stream) == [] == stream.receive(20)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"start_lsn": "0/1"}, "start_lsn is an LSN, an integer, not a str. LSN.parse reads"),
    ({"start_lsn": 1.5}, "start_lsn is an LSN, an integer, not a float"),
    ({"start_lsn": None}, "start_lsn is an LSN, an integer, not None"),
    ({"start_lsn": True}, "start_lsn is an LSN, an integer, not a bool"),
    ({"start_lsn": -1}, "An LSN lies between 0 and"),
    ({"start_lsn": 1 << 64}, "An LSN lies between 0 and"),
    ({"slot": None}, "slot is a str, not None"),
    ({"slot": ""}, "slot must not be empty"),
    ({"publication": 7}, "publication is a str or several, not an int"),
    ({"publication": ["a", None]}, "publication is a str, not None"),
    ({"publication": []}, "at least one publication"),
    ({"buffer_bytes": 0}, "buffer_bytes is 1 or more, not 0"),
    ({"buffer_bytes": "1MB"}, "buffer_bytes is an integer, not a str"),
    ({"origin": "x"}, "origin is any or none, not 'x'"),
    ({"streaming": "x"}, "streaming is off, on or parallel, not 'x'"),
    ({"adapters": {}}, "adapters is psycopg's AdaptersMap"),
]


@pytest.mark.parametrize("given, why", WRONG)
def test_a_wrong_argument_is_refused_at_once(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        connect(**{"slot": "s", "publication": "p", **given}).__enter__()
    assert why in str(refused.value)


@pytest.mark.parametrize("lsn", ["0/1", -1, 1.5, None, True])
def test_only_an_lsn_is_acknowledged(table: EmbeddedPostgres, lsn: Any) -> None:
    with to(table) as stream:
        with pytest.raises(ConfigError, match="LSN"):
            stream.acknowledge(lsn)
        with pytest.raises(ConfigError, match="timeout_s"):
            stream.receive(-1)


KINDS = [
    *('"S s"."M ood"', '"S s"."M ood"[]', '"S s".low', '"S s".low[]', '"S s".pair', '"S s".pair[]', '"S s".floats'),
    *('"S s".floats[]', "pg_snapshot", "pg_snapshot[]", "xid8", "macaddr8", "int4multirange", "regrole", '"char"'),
    *("varchar(7)", "bpchar", "char(3)[]", "bit varying", "time with time zone", "timestamptz[]", "jsonpath", "money"),
    *("interval", "aclitem", "pg_lsn", "tsquery", "oidvector", "cidr", "name", "txid_snapshot", "public.outer"),
]
DOMAINS = {'"S s".domain': "integer", '"S s".domain_of_mood': '"S s"."M ood"', '"S s".domains': "integer[]"}


def test_type_names_are_the_server_s(table: EmbeddedPostgres) -> None:
    columns = ", ".join(f"c{place} {kind}" for place, kind in enumerate([*KINDS, *DOMAINS]))
    table.psql(
        'CREATE SCHEMA "S s"; CREATE TYPE "S s"."M ood" AS ENUM (\'a\'); CREATE TYPE "S s".low AS ENUM (\'a\');'
        'CREATE TYPE "S s".pair AS (a int); CREATE TYPE "S s".floats AS RANGE (subtype = float8);'
        'CREATE TYPE public.outer AS (a int); CREATE DOMAIN "S s".domain AS int;'
        'CREATE DOMAIN "S s".domain_of_mood AS "S s"."M ood"; CREATE DOMAIN "S s".domains AS int[];'
        f'CREATE TABLE "S s".t ({columns}); ALTER PUBLICATION {NAME} ADD TABLE "S s".t;'
        'INSERT INTO "S s".t VALUES (NULL)'
    )
    try:
        (row,) = [event for event in blocking(to(table)) if isinstance(event, Insert)]
        said = table.psql(
            "SET search_path = ''; SELECT string_agg(pg_catalog.format_type(atttypid, NULL), '|' ORDER BY attnum)"
            " FROM pg_attribute WHERE attnum > 0 AND attrelid = '\"S s\".t'::regclass"
        )
        names = [column.type_name for column in row.relation.columns]
        assert names[: len(KINDS)] == said.split("|")[: len(KINDS)]
        assert names[len(KINDS) :] == list(DOMAINS.values())
    finally:
        table.psql('DROP SCHEMA "S s" CASCADE; DROP TYPE public.outer')


def test_unchanged_is_no_value(table: EmbeddedPostgres) -> None:
    with pytest.raises(TypeError):
        bool(UNCHANGED)
    with psycopg.connect(table.dsn) as connection, pytest.raises(psycopg.ProgrammingError):
        connection.execute("SELECT %s", [UNCHANGED])


def test_the_whole_old_row_fills_what_did_not_change(table: EmbeddedPostgres) -> None:
    table.psql(f"ALTER PUBLICATION {NAME} SET TABLE {NAME}; ALTER TABLE {NAME} REPLICA IDENTITY FULL")
    table.psql(f"INSERT INTO {NAME} VALUES (1, 'a', repeat('x', 9000)); UPDATE {NAME} SET v = 'b'")
    update = blocking(to(table), commits=2)[-2]
    assert isinstance(update, Update) and update.old is not None
    assert (update.old["v"], update.new["v"], update.new["big"]) == ("a", "b", "x" * 9000)
    assert update.relation.key == ("id", "v", "big", "hidden")


def test_types_have_names_and_values_are_python_s(table: EmbeddedPostgres) -> None:
    table.psql(
        f"CREATE TYPE {NAME}_mood AS ENUM ('fine'); CREATE TABLE {NAME}_typed (id bigint PRIMARY KEY,"
        f" n numeric(9,2), at timestamptz, u uuid, j jsonb, a int[], m {NAME}_mood);"
        f"ALTER PUBLICATION {NAME} ADD TABLE {NAME}_typed; INSERT INTO {NAME}_typed VALUES"
        " (1, 1.50, '2026-01-02 03:04:05+00', '827ccb0e-ea8a-706c-4c34-a16891f84e7b', '{\"k\": [1]}',"
        " '{1,NULL}', 'fine')"
    )
    expected = {
        "id": 1,
        "n": Decimal("1.50"),
        "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "u": UUID("827ccb0e-ea8a-706c-4c34-a16891f84e7b"),
        "j": {"k": [1]},
        "a": [1, None],
        "m": "fine",
    }
    try:
        read = blocking(to(table, values="text"), acknowledge=False)
        begin, change, commit = read
        assert isinstance(begin, Begin) and isinstance(change, Insert) and isinstance(commit, Commit)
        assert begin.xid == commit.xid and begin.commit_lsn == commit.commit_lsn < commit.end_lsn
        assert abs(datetime.now(UTC) - commit.commit_time).total_seconds() < 60
        assert change.new["a"] == "{1,NULL}" and change.new["n"] == "1.50"
        assert str(change.relation) == f"public.{NAME}_typed"
        names = [column.type_name for column in change.relation.columns]
        assert names == [
            "bigint", "numeric", "timestamp with time zone", "uuid", "jsonb", "integer[]", f"public.{NAME}_mood",
        ]  # fmt: skip
        for binary in (False, True):
            (typed,) = [e for e in blocking(to(table, binary=binary), acknowledge=binary) if isinstance(e, Insert)]
            assert typed.new == expected | ({"m": b"fine"} if binary else {})  # nobody told of the enum's labels
    finally:
        table.psql(f"DROP TABLE {NAME}_typed; DROP TYPE {NAME}_mood")


class AsText(Loader):
    def load(self, data: Any) -> str:
        return bytes(data).decode()


def test_a_value_that_python_cannot_hold_is_named_and_an_own_loader_takes_it(table: EmbeddedPostgres) -> None:
    table.psql(
        f"ALTER TABLE {NAME} ADD day date; ALTER PUBLICATION {NAME} SET TABLE {NAME};"
        f"INSERT INTO {NAME} (id, day) VALUES (1, '2026-01-01'); INSERT INTO {NAME} (id, day) VALUES (2, 'infinity')"
    )
    with to(table) as stream:
        with pytest.raises(UnrepresentableError) as refused:
            for event in stream:
                if isinstance(event, Insert):
                    assert event.new["day"] == date(2026, 1, 1)
                if isinstance(event, Commit):
                    stream.acknowledge(event.end_lsn)
        with pytest.raises(UnrepresentableError):  # a stream that failed passes over nothing
            next(iter(stream))
    assert refused.value.relation == f"public.{NAME}" and refused.value.column == "day"
    assert "infinity" not in str(refused.value) and refused.value.__cause__ is None
    adapters = AdaptersMap(psycopg.adapters)
    adapters.register_loader("date", AsText)
    (change,) = [event for event in blocking(to(table, adapters=adapters)) if isinstance(event, Insert)]
    assert change.new["day"] == "infinity"


def test_truncate_and_messages(table: EmbeddedPostgres) -> None:
    table.psql(f"TRUNCATE {NAME} RESTART IDENTITY CASCADE")
    table.psql(
        "SELECT pg_logical_emit_message(false, 'hello', 'outside'), pg_logical_emit_message(true, 'hello', 'in')"
    )
    events = blocking(to(table, messages=True), commits=2)
    (truncate,) = [event for event in events if isinstance(event, Truncate)]
    assert [str(r) for r in truncate.relations] == [f"public.{NAME}"] and truncate.cascade and truncate.restart_identity
    messages = [(e.transactional, e.content) for e in events if isinstance(e, Message)]
    assert sorted(messages) == [(False, b"outside"), (True, b"in")]


@BOTH
def test_what_was_not_acknowledged_comes_again(table: EmbeddedPostgres, read: Read) -> None:
    table.psql(f"INSERT INTO {NAME} VALUES (1)")
    table.psql(f"INSERT INTO {NAME} VALUES (2)")
    assert len(read(to(table), commits=1, acknowledge=True)) == 3
    for _ in range(2):
        assert rows(read(to(table), commits=1, acknowledge=False))[0][2]["id"] == 2


@BOTH
def test_the_server_is_answered_while_the_consumer_computes(table: EmbeddedPostgres, read: Read) -> None:
    table.psql(f"INSERT INTO {NAME} VALUES (1)")
    waits: list[object] = []
    impatient = connect(
        f"{table.dsn} options='-c wal_sender_timeout=1s'", slot=NAME, publication=NAME,
        on_wait=lambda error, seconds: waits.append(error),
    )  # fmt: skip
    threading.Timer(1.0, table.psql, [f"INSERT INTO {NAME} VALUES (2)"]).start()
    assert len(read(impatient, commits=2, busy_s=1.5)) == 6
    assert waits == []


@BOTH
def test_a_lost_connection_loses_nothing_and_repeats_nothing(table: EmbeddedPostgres, read: Read) -> None:
    waits: list[object] = []
    connecting = to(table, on_wait=lambda error, seconds: waits.append(error))
    table.psql(f"INSERT INTO {NAME} VALUES (0)")

    def disturb() -> None:
        for i in range(1, 6):
            eventually(lambda: table.psql("SELECT pid FROM pg_stat_replication WHERE state = 'streaming'"))
            table.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
            table.psql(f"INSERT INTO {NAME} SELECT g FROM generate_series({i * 10}, {i * 10 + 2}) g")

    thread = threading.Thread(target=disturb)
    thread.start()
    seen = rows(read(connecting, commits=6, acknowledge=False))
    thread.join()
    assert [row["id"] for _, _, row in seen] == [0, *(i * 10 + j for i in range(1, 6) for j in range(3))]
    assert waits and all(isinstance(error, ConnectError) for error in waits)


def test_an_idle_publication_lets_the_slot_advance_only_behind_what_is_acknowledged(table: EmbeddedPostgres) -> None:
    def confirmed() -> LSN:
        query = f"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{NAME}'"
        return LSN.parse(table.psql(query))

    table.psql(f"INSERT INTO {NAME} VALUES (1)")
    with to(table) as stream:
        commit = next(event for event in stream if isinstance(event, Commit))
        table.psql("SELECT pg_logical_emit_message(true, 'else', 'where')")
        end = LSN.parse(table.psql("SELECT pg_current_wal_flush_lsn()"))
        for _ in range(10):
            assert stream.receive(0.1) == []
        assert confirmed() < commit.end_lsn
        stream.acknowledge(commit.end_lsn)
        deadline = time.monotonic() + 10
        while confirmed() < end and time.monotonic() < deadline:
            assert stream.receive(0.1) == []
        assert confirmed() >= end
        with pytest.raises(ConfigError, match="cannot be acknowledged"):
            stream.acknowledge(end + 100_000)


@pytest.mark.parametrize("by", ["thread", "signal"])
def test_stop_ends_the_iteration(table: EmbeddedPostgres, by: str) -> None:
    with to(table) as stream:
        if by == "signal":
            before = signal.signal(signal.SIGUSR1, lambda *_: stream.stop())
            threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGUSR1]).start()
        else:
            threading.Timer(0.3, stream.stop).start()
        began = time.monotonic()
        assert list(stream) == []
        if by == "signal":
            signal.signal(signal.SIGUSR1, before)
        assert time.monotonic() - began < 2


def test_stop_ends_an_async_iteration_and_a_cancelled_read_loses_nothing(table: EmbeddedPostgres) -> None:
    async def read() -> list[Any]:
        async with to(table) as stream:
            with suppress(TimeoutError):
                await asyncio.wait_for(stream.receive(30), 0.2)
            table.psql(f"INSERT INTO {NAME} VALUES (1)")
            events = await stream.receive(10)
            asyncio.get_running_loop().call_later(0.2, stream.stop)
            return [*events, *[event async for event in stream]]

    assert [type(event) for event in asyncio.run(read())] == [Begin, Insert, Commit]


def test_a_slot_is_made_when_asked_for(table: EmbeddedPostgres) -> None:
    missing = f"{NAME}_other"
    with pytest.raises(SlotMissingError), connect(table.dsn, slot=missing, publication=NAME):
        pass
    for _ in range(2):
        with connect(table.dsn, slot=missing, publication=NAME, create_slot=True):
            pass
    table.psql(f"SELECT pg_drop_replication_slot('{missing}')")


@BOTH
def test_that_a_slot_waits_for_transactions_is_said(
    table: EmbeddedPostgres, read: Read, caplog: pytest.LogCaptureFixture
) -> None:
    with psycopg.connect(table.dsn) as writer:
        writer.execute("SELECT pg_current_xact_id()")
        threading.Timer(1.5, writer.rollback).start()
        threading.Timer(2.0, table.psql, [f"INSERT INTO {NAME} VALUES (1)"]).start()
        assert len(read(connect(table.dsn, slot=f"{NAME}_made", publication=NAME, create_slot=True))) == 3
    assert [record.getMessage() for record in caplog.records if "is being made" in record.getMessage()]
    table.psql(f"SELECT pg_drop_replication_slot('{NAME}_made')")


def test_a_slot_that_somebody_else_moved_is_refused(table: EmbeddedPostgres) -> None:
    start = LSN.parse(table.psql("SELECT pg_current_wal_lsn()"))
    table.psql(f"INSERT INTO {NAME} VALUES (1)")
    blocking(to(table))
    with pytest.raises(LogMismatchError, match="acknowledged by somebody else"), to(table, start_lsn=start):
        pass


@pytest.mark.parametrize(
    "options", [{"streaming": "on"}, {"streaming": "parallel"}, {"two_phase": True}, {"values": "json"}]
)
def test_what_is_not_supported_is_said(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        connect("", slot="s", publication="p", **options)


def test_physical_wal_is_the_server_s_own(server: EmbeddedPostgres) -> None:
    async def read() -> tuple[LSN, bytes]:
        async with connect_physical(server.dsn) as stream:
            begin, wal = stream.delivered_lsn, b""
            server.psql("SELECT pg_logical_emit_message(false, 'wal', repeat('x', 5000)), pg_switch_wal()")
            while len(wal) < 5000:
                for piece in await stream.receive(1):
                    wal += piece.payload
            return begin, wal

    begin, wal = asyncio.run(read())
    name, offset = server.psql(f"SELECT file_name, file_offset FROM pg_walfile_name_offset('{begin}')").split("|")
    segment = (server.data_dir / "pg_wal" / name).read_bytes()
    assert wal == segment[int(offset) : int(offset) + len(wal)]


def test_importing_is_cheap_and_needs_the_core_alone() -> None:
    heavy = "{'numpy', 'pyarrow', 'pyspark', 'deltalake', 'pandas', 'typer'}"
    program = (
        "import sys, wal2lake; assert not {'psycopg', 'asyncio', 'wal2lake.client'} & set(sys.modules);"
        f"wal2lake.connect; assert not {heavy} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert {name for name in wal2lake.__all__ if not hasattr(wal2lake, name)} == set()
