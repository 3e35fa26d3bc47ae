"""Conversations in protocol 3, by our own client and by libpq, so that every message passes at least once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import psycopg

from tests.vectors import Capture
from tests.vectors.client import Frame, Proxy, RawClient
from tests.vectors.scenarios import PUBLICATION
from tests.waiting import eventually
from wal2lake.errors import ServerConfigError
from wal2lake.lsn import LSN
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.wire.base_backup import BaseBackup
from wal2lake.wire.commands import (
    AlterReplicationSlot,
    Command,
    CreateLogicalReplicationSlot,
    CreatePhysicalReplicationSlot,
    DropReplicationSlot,
    IdentifySystem,
    ReadReplicationSlot,
    Show,
    StartLogicalReplication,
    StartPhysicalReplication,
    TimelineHistory,
    UploadManifest,
)
from wal2lake.wire.messages import (
    PROTOCOL_3_0,
    Bind,
    Close,
    CopyData,
    CopyDone,
    CopyFail,
    CopyInResponse,
    Describe,
    Execute,
    Flush,
    FunctionCall,
    Parse,
    Query,
    Sync,
)

LONGEST: Final = 4000  # bytes of a frame worth keeping: longer ones are bulk, and no other kind
MOST_DATA: Final = 20  # CopyData of one conversation worth keeping
Conversation = Callable[[EmbeddedPostgres, int], Capture]
INT4_PLUS: Final = 177  # the function int4pl
PASSWORDS: Final = {"scram": "scram-sha-256", "md5": "md5", "clear": "password"}


def capture(name: str, sql: list[str], frames: list[Frame]) -> Capture:
    """The frames of a conversation, without what is too long to read or only more of the same."""
    kept: list[str] = []
    data = 0
    for side, frame in frames:
        data += frame[:1] == b"d"
        if len(frame) <= LONGEST and (frame[:1] != b"d" or data <= MOST_DATA):
            kept.append(side + frame.hex())
    return Capture(name, "frames", sql, hex=kept)


def commands(server: EmbeddedPostgres, major: int) -> Capture:
    """Replication commands with every option, and what they answer, errors included."""
    target, method, detail = ("blackhole", "gzip", "level=1") if major >= 15 else (None, None, None)
    said: tuple[Command, ...] = (
        IdentifySystem(), Show("wal_level"), TimelineHistory(1), CreatePhysicalReplicationSlot("p", reserve_wal=True),
        ReadReplicationSlot("p"), ReadReplicationSlot("none"), DropReplicationSlot("p"),
        CreatePhysicalReplicationSlot("t", temporary=True), CreateLogicalReplicationSlot("l", "pgoutput"),
        CreateLogicalReplicationSlot("e", "pgoutput", temporary=True, snapshot="export"),
        CreateLogicalReplicationSlot("u", "pgoutput", temporary=True, snapshot="use"),
        CreateLogicalReplicationSlot("n", "pgoutput", snapshot="nothing", two_phase=True),
        CreateLogicalReplicationSlot("f", "pgoutput", snapshot="nothing", failover=True),
        AlterReplicationSlot("l", failover=True), AlterReplicationSlot("n", failover=False, two_phase=False),
        *(DropReplicationSlot(slot) for slot in "nf"), DropReplicationSlot("l", wait=True), DropReplicationSlot("l"),
        BaseBackup("v", target=target, checkpoint="fast", wait=False, manifest="yes"),
        BaseBackup(
            "it's", progress=True, checkpoint="fast", wal=True, wait=False, max_rate=1 << 20, tablespace_map=True,
            verify_checksums=False, manifest="force-encode", manifest_checksums="SHA256",
            target=target, compression=method, compression_detail=detail,
        ),
        BaseBackup(incremental=True),
    )  # fmt: skip
    texts = []
    with RawClient(server.port, replication="database") as client:
        for command in said:
            with suppress(ServerConfigError):  # what this server does not know is not asked of it
                texts.append(command.build(major * 10000))
                client.query(texts[-1], may_fail=True)
    return capture("commands", texts, client.frames)


def physical(server: EmbeddedPostgres, major: int) -> Capture:
    """WAL from the current position, ended by the frontend."""
    with RawClient(server.port, replication="true") as client, RawClient(server.port) as session:
        text = StartPhysicalReplication(LSN.parse(session.scalar("SELECT pg_current_wal_flush_lsn()"))).build()
        client.send(Query(text))
        session.query("SELECT pg_logical_emit_message(true, 'p', 'physical')")
        for _ in range(3):
            client.payload(0.3)
        client.send(CopyDone())
        client.until_ready()
    return capture("physical", [text], client.frames)


def logical(server: EmbeddedPostgres, major: int) -> Capture:
    """A logical stream of one small transaction, ended by the frontend; plain SQL on the same connection before it."""
    slot = CreateLogicalReplicationSlot("l", "pgoutput", temporary=True, snapshot="nothing").build(major * 10000)
    options = (("proto_version", "1"), ("publication_names", PUBLICATION))
    start = StartLogicalReplication("l", LSN(0), options).build(major * 10000)
    with RawClient(server.port, replication="database") as client, RawClient(server.port) as session:
        client.query(slot)
        session.query("INSERT INTO nothing VALUES (NULL)")
        client.send(Query(start))
        for _ in range(6):
            client.payload(0.3)
        client.send(CopyDone())
        client.until_ready()
    return capture("logical", [slot, "INSERT INTO nothing VALUES (NULL)", start], client.frames)


def upload_manifest(server: EmbeddedPostgres, major: int) -> Capture:
    """A manifest that is none, so the server answers by an error in the midst of the COPY."""
    with RawClient(server.port, replication="true") as client:
        client.send(Query(UploadManifest().build()))
        client.until(CopyInResponse)
        client.send(CopyData(b"{}"))
        client.send(CopyDone())
        client.until_ready(may_fail=True)
    return capture("upload manifest", [UploadManifest().build()], client.frames)


def negotiation(server: EmbeddedPostgres, major: int) -> Capture:
    """A protocol that no server speaks yet, and an option that none knows."""
    with RawClient(server.port, PROTOCOL_3_0 + 99, **{"_pq_.vectors": "on"}) as client:
        pass
    return capture("negotiation", [], client.frames)


def copy_rows(server: EmbeddedPostgres, major: int) -> Capture:
    """COPY in each row format, both ways, and broken off from both ends."""
    values = "(VALUES (1, 'a'), (2, NULL), (3, ''), (4, E'\\t\\n\\\\\"'','), (5, 'ü')) v"
    outs = [f"COPY (SELECT * FROM {values}) TO STDOUT (FORMAT {form})" for form in ("text", "csv, HEADER", "binary")]
    failing = "COPY (SELECT 1 / (3 - i) FROM generate_series(1, 5) i) TO STDOUT"
    into = "COPY rows FROM STDIN (FORMAT csv)"
    with RawClient(server.port) as client:
        client.query("CREATE TABLE rows (a int, b text)")
        for sql in (*outs, failing):
            client.query(sql, may_fail=True)
        for data, end in ((b"1,a\n2,\n", CopyDone()), (b"1,a\n", CopyFail("enough")), (b"x,a\n", CopyDone())):
            client.send(Query(into))
            client.until(CopyInResponse)
            client.send(CopyData(data))
            client.send(Flush())
            client.send(Sync())
            client.send(end)
            client.until_ready(may_fail=True)
    return capture("copy", [*outs, failing, into], client.frames)


def simple(server: EmbeddedPostgres, major: int) -> Capture:
    """What may come between: notices, notifications, parameters, errors in and out of a transaction."""
    sql = [
        "", "SELECT 1 AS one, NULL::text, 'ü'::varchar(10)", "DO $$ BEGIN RAISE NOTICE 'noticed'; END $$",
        "LISTEN vectors; NOTIFY vectors, 'payload'", "SET application_name = 'vectors'", "BEGIN", "SELECT 1 / 0",
        "ROLLBACK", "nonsense",
    ]  # fmt: skip
    with RawClient(server.port) as client:
        for statement in sql:
            client.query(statement, may_fail=True)
    return capture("simple", sql, client.frames)


def extended(server: EmbeddedPostgres, major: int) -> Capture:
    """The extended query protocol, a portal that pauses, and a call by OID."""
    sql = "SELECT i, $1::text FROM generate_series(1, 3) i"
    with RawClient(server.port) as client:
        for message in (
            Parse("s", sql, (25,)), Describe("S", "s"), Bind("p", "s", (1,), (b"x",), (1,)), Describe("P", "p"),
            Execute("p", 2), Execute("p", 0), Close("P", "p"), Close("S", "s"),
            Parse("", "SET application_name = 'v'", ()), Bind("", "", (), (), ()), Describe("P", ""), Flush(),
            Execute("", 0), Sync(),
        ):  # fmt: skip
            client.send(message)
        client.until_ready()
        client.send(FunctionCall(INT4_PLUS, (1,), (b"\0\0\0\1", b"\0\0\0\2"), 1))
        client.until_ready()
    return capture("extended", [sql], client.frames)


def libpq(server: EmbeddedPostgres, major: int) -> Capture:
    """libpq's own words: a query with parameters, COPY both ways, a cancelled query."""
    sql = ["SELECT %s::int", "COPY rows FROM STDIN", "COPY rows TO STDOUT (FORMAT binary)", "SELECT pg_sleep(20)"]
    proxy = Proxy(server.port)
    with psycopg.connect(_dsn(proxy.port, "postgres"), autocommit=True) as session:
        session.execute(sql[0], [1], binary=True)
        cursor = session.cursor()
        with cursor.copy(sql[1]) as copy:
            copy.write_row((7, "libpq"))
        with cursor.copy(sql[2]) as copy:
            for _ in copy:
                pass
        threading.Timer(0.2, session.cancel_safe).start()
        with suppress(psycopg.errors.QueryCanceled):
            session.execute(sql[3])
    proxy.close()
    return capture("libpq", sql, proxy.frames)


def _refused(dsn: str) -> bool:
    try:
        psycopg.connect(dsn, password="wrong").close()
    except psycopg.OperationalError:
        return True
    return False


def authentication(server: EmbeddedPostgres, major: int) -> Capture:
    """A right and a wrong password by each method that needs nothing but a password."""
    hba = server.data_dir / "pg_hba.conf"
    trust = hba.read_text()
    hba.write_text("".join(f"host all {role} 127.0.0.1/32 {method}\n" for role, method in PASSWORDS.items()) + trust)
    sql = [f"SET password_encryption = '{'md5' if role == 'md5' else 'scram-sha-256'}'; "
           f"CREATE ROLE {role} LOGIN PASSWORD 'vectors'" for role in PASSWORDS]  # fmt: skip
    with RawClient(server.port) as session:
        for statement in (*sql, "SELECT pg_reload_conf()"):
            session.query(statement)
    eventually(lambda: all(_refused(_dsn(server.port, role)) for role in PASSWORDS))
    proxy = Proxy(server.port)
    for role in PASSWORDS:
        psycopg.connect(_dsn(proxy.port, role), password="vectors").close()
        with suppress(psycopg.OperationalError):
            psycopg.connect(_dsn(proxy.port, role), password="wrong").close()
    with suppress(psycopg.OperationalError):
        psycopg.connect(_dsn(proxy.port, "postgres"), sslmode="require").close()
    proxy.close()
    return capture("authentication", sql, proxy.frames)


def _dsn(port: int, role: str) -> str:
    return f"host=127.0.0.1 port={port} user={role} dbname=postgres sslmode=disable gssencmode=disable"


CONVERSATIONS: Final[tuple[tuple[int, Conversation], ...]] = (
    (13, commands), (13, physical), (13, logical), (17, upload_manifest), (13, negotiation), (13, copy_rows),
    (13, simple), (13, extended), (13, libpq), (13, authentication),
)  # fmt: skip
