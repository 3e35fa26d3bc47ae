"""What a server does with requests that follow a COPY at once, and that CopyMachine, told the same, says so too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.vectors.client import RawClient
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.wire.copy import Action, CopyMachine, CopyState, Side
from wal2lake.wire.messages import (
    BackendMessage,
    Bind,
    BindComplete,
    CommandComplete,
    CopyBothResponse,
    CopyData,
    CopyDone,
    CopyFail,
    CopyInResponse,
    CopyOutResponse,
    DataRow,
    ErrorResponse,
    Execute,
    Flush,
    FrontendMessage,
    Parse,
    ParseComplete,
    Query,
    ReadyForQuery,
    RowDescription,
    Sync,
)

NAME = "copy_pipelines"
Kinds = Sequence[type[BackendMessage]]


def by_execute(sql: str) -> list[FrontendMessage]:
    return [Parse("", sql, ()), Bind("", "", (), (), ()), Execute("", 0)]


ROW, BAD, DONE, FAIL, SYNC = CopyData(b"1\n"), CopyData(b"x\n"), CopyDone(), CopyFail("enough"), Sync()
SELECT, LOST = Query("SELECT 1"), Query("SELECT 'discarded'")
IN, OUT_FAILS = f"COPY {NAME} FROM STDIN", "COPY (SELECT 1 / (2 - i) FROM generate_series(1, 2) i) TO STDOUT"
STREAM = f"START_REPLICATION SLOT {NAME} LOGICAL 0/0 (proto_version '1', publication_names '{NAME}')"
QUERIED: list[FrontendMessage] = [Query(IN)]
EXECUTED: list[FrontendMessage] = [*by_execute(IN), Flush()]
IN_BY_QUERY: Kinds = [CopyInResponse]
IN_BY_EXECUTE: Kinds = [ParseComplete, BindComplete, CopyInResponse]
SELECTED: Kinds = [RowDescription, DataRow, CommandComplete, ReadyForQuery]
EXECUTED_TOO: Kinds = [ParseComplete, BindComplete, DataRow, CommandComplete, ReadyForQuery]
READY, FAILED = ReadyForQuery, [ErrorResponse, ReadyForQuery]

# what begins the COPY, the answer that the frontend awaits, what it sends then in one piece, and the answers to that
PIPELINES: list[tuple[list[FrontendMessage], Kinds, list[FrontendMessage], Kinds]] = [
    (QUERIED, IN_BY_QUERY, [ROW, DONE, SYNC, SELECT], [CommandComplete, READY, READY, *SELECTED]),
    (QUERIED, IN_BY_QUERY, [BAD, DONE, SELECT], [*FAILED, *SELECTED]),
    (QUERIED, IN_BY_QUERY, [FAIL, ROW, DONE, SELECT], [*FAILED, *SELECTED]),
    (QUERIED, IN_BY_QUERY, [FAIL, *by_execute("SELECT 1"), SYNC], [*FAILED, *EXECUTED_TOO]),
    (EXECUTED, IN_BY_EXECUTE, [SYNC, ROW, DONE, SYNC], [CommandComplete, READY]),
    (EXECUTED, IN_BY_EXECUTE, [ROW, DONE, SELECT], [CommandComplete, *SELECTED]),
    (EXECUTED, IN_BY_EXECUTE, [ROW, DONE, *by_execute("SELECT 1"), SYNC], [CommandComplete, *EXECUTED_TOO]),
    (EXECUTED, IN_BY_EXECUTE, [BAD, DONE, *by_execute("SELECT 1"), LOST, SYNC, SELECT], [*FAILED, *SELECTED]),
    (EXECUTED, IN_BY_EXECUTE, [FAIL, LOST, SYNC, SELECT], [*FAILED, *SELECTED]),
    (EXECUTED, IN_BY_EXECUTE, [FAIL, SYNC, *by_execute(OUT_FAILS), SYNC, SELECT],
     [*FAILED, ParseComplete, BindComplete, CopyOutResponse, CopyData, *FAILED, *SELECTED]),
    ([Query(OUT_FAILS), SELECT, *by_execute(OUT_FAILS), LOST, SYNC, SELECT], [CopyOutResponse], [],
     [CopyData, *FAILED, *SELECTED, ParseComplete, BindComplete, CopyOutResponse, CopyData, *FAILED, *SELECTED]),
]  # fmt: skip


@pytest.fixture(scope="module")
def table(server: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    server.psql(f"CREATE TABLE {NAME} (i int); CREATE PUBLICATION {NAME}")
    yield server
    server.psql(f"DROP TABLE {NAME}; DROP PUBLICATION {NAME}")


@pytest.mark.parametrize(("asked", "begun", "pipelined", "answered"), PIPELINES)
def test_a_server_and_the_machine_agree_on_what_follows_a_copy_at_once(
    table: EmbeddedPostgres,
    asked: list[FrontendMessage],
    begun: Kinds,
    pipelined: list[FrontendMessage],
    answered: Kinds,
) -> None:
    machine = CopyMachine()
    with connected(table) as client:
        for sent, kinds in ((asked, begun), (pipelined, answered)):
            for request in sent:
                machine.step(Side.FRONTEND, request)
            client.send(*sent)
            for kind in kinds:
                message = client.receive()
                assert type(message) is kind, message
                machine.step(Side.BACKEND, message)
        assert machine.state is CopyState.NONE
        assert [type(message) for message in client.query("SELECT 2")] == SELECTED  # nothing more had been answered


def test_a_command_may_follow_the_end_of_a_stream_at_once(table: EmbeddedPostgres) -> None:
    with streaming(table) as (client, machine):
        for request in (DONE, SELECT):
            assert machine.step(Side.FRONTEND, request) is Action.TAKE
        client.send(DONE, SELECT)
        for message in [*client.until_ready(), *client.until_ready()]:
            machine.step(Side.BACKEND, message)
        assert machine.state is CopyState.NONE


@pytest.mark.parametrize("message", [SYNC, FAIL, SELECT])
def test_a_request_within_a_stream_ends_the_connection(table: EmbeddedPostgres, message: FrontendMessage) -> None:
    with streaming(table) as (client, machine):
        assert machine.step(Side.FRONTEND, message) is Action.ABORT
        client.send(message)
        for answer in client.until(ErrorResponse):
            machine.step(Side.BACKEND, answer)
        assert machine.state is CopyState.FAILED
        with pytest.raises(ConnectionError):
            client.receive()


def connected(server: EmbeddedPostgres, **parameters: str) -> RawClient:
    return RawClient(server.port, folder=str(conninfo_to_dict(server.dsn)["host"]), **parameters)


@contextmanager
def streaming(server: EmbeddedPostgres) -> Iterator[tuple[RawClient, CopyMachine]]:
    """A walsender that streams, and a machine that knows so."""
    machine = CopyMachine()
    client = connected(server, replication="database")
    try:
        client.query(f"CREATE_REPLICATION_SLOT {NAME} TEMPORARY LOGICAL pgoutput")
        machine.step(Side.FRONTEND, Query(STREAM))
        client.send(Query(STREAM))
        for message in client.until(CopyBothResponse):
            machine.step(Side.BACKEND, message)
        yield client, machine
    finally:
        client.close()
