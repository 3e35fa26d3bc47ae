"""What servers do against the documentation, or each in a way of its own, costs no row and stops no stream for ever.

Aborts: transactions that outgrow logical_decoding_work_mem and are rolled back, whole or in part, at once or prepared:
their WAL is decoded when it is known already that they were aborted, a case that PostgreSQL 18 treats in its own way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from wal2lake.changelog.builder import Tail, build_segment
from wal2lake.columnar.headers import MessageColumns
from wal2lake.errors import PublicationError
from wal2lake.lsn import LSN
from wal2lake.pgoutput.messages import Insert, StreamAbort
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.pgoutput.session import PgoutputSession
from wal2lake.postgres.connection import connect, replication_connection
from wal2lake.postgres.plugin_output import json_output
from wal2lake.postgres.recvlogical import RecvOptions, recv
from wal2lake.postgres.slot_sql import slot_changes
from wal2lake.postgres.slots import create_slot, require_slot
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.servers

_MANY = "INSERT INTO aborts SELECT g, repeat('x', 100) FROM generate_series({0}, {0} + 2999) g;"
_SAVED = f"BEGIN; {_MANY.format(10_000)} SAVEPOINT s; {_MANY.format(20_000)}"
_SMALL = "BEGIN; INSERT INTO aborts VALUES (-3, 'x'); SAVEPOINT s; INSERT INTO aborts VALUES (-4, 'x');"
ENDINGS = (
    f"{_SMALL} RELEASE s; {_MANY.format(60_000)} ROLLBACK;",
    f"{_SMALL} ROLLBACK TO s; {_MANY.format(60_000)} ROLLBACK;",
    f"{_SMALL} RELEASE s; {_MANY.format(60_000)} PREPARE TRANSACTION 'd'; ROLLBACK PREPARED 'd';",
    f"{_SAVED} ROLLBACK;",
    f"{_SAVED} RELEASE s; INSERT INTO aborts VALUES (-1, 'x'); ROLLBACK;",
    f"{_SAVED} ROLLBACK TO s; {_MANY.format(30_000)} ROLLBACK;",
    f"{_SAVED} ROLLBACK TO s; INSERT INTO aborts VALUES (-2, 'x'); COMMIT;",
    f"{_SAVED} SAVEPOINT t; TRUNCATE aborts; RELEASE t; ROLLBACK;",
    f"{_SAVED} ALTER TABLE aborts ADD c int; {_MANY.format(40_000)} ROLLBACK;",
    f"{_SAVED} RELEASE s; PREPARE TRANSACTION 'a'; ROLLBACK PREPARED 'a';",
    f"{_SAVED} ROLLBACK TO s; {_MANY.format(50_000)} PREPARE TRANSACTION 'b'; ROLLBACK PREPARED 'b';",
    "BEGIN; INSERT INTO aborts VALUES (1, 'x'); SAVEPOINT s; INSERT INTO aborts VALUES (2, 'x');"
    " PREPARE TRANSACTION 'c'; COMMIT PREPARED 'c';",
)
ROWS_COMMITTED = 3000 + 1 + 2


@pytest.fixture
def aborting(versioned: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    versioned.psql("CREATE TABLE aborts (a int, b text); CREATE PUBLICATION aborts FOR TABLE aborts")
    with replication_connection(versioned.dsn) as pgconn:
        create_slot(pgconn, "aborts")
        if pgconn.server_version >= 150000:
            create_slot(pgconn, "aborts_two_phase", two_phase=True)
    for ending in ENDINGS:
        versioned.psql(ending)
    yield versioned
    versioned.psql("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name ~ '^aborts'")
    versioned.psql("DROP PUBLICATION aborts; DROP TABLE aborts")


def _options(server_version: int) -> Iterator[PgoutputOptions]:
    yield PgoutputOptions(("aborts",))
    if server_version >= 140000:
        yield PgoutputOptions(("aborts",), 2)
        yield PgoutputOptions(("aborts",), 2, streaming="on")
    if server_version >= 150000:
        yield PgoutputOptions(("aborts",), 3, two_phase=True)
        yield PgoutputOptions(("aborts",), 3, streaming="on", two_phase=True)
    if server_version >= 160000:
        yield PgoutputOptions(("aborts",), 4, streaming="parallel", two_phase=True)


def test_aborts_of_all_kinds_stop_the_losses(aborting: EmbeddedPostgres) -> None:
    with connect(aborting.dsn) as connection:
        version = connection.info.server_version
        for options in _options(version):
            slot = "aborts_two_phase" if options.two_phase else "aborts"
            sent = list(slot_changes(connection, slot, peek=True, plugin_options=options))
            session = PgoutputSession(options)
            heard = [session.receive(change.payload, change.start_lsn) for change in sent]
            aborts = [received for received in heard if isinstance(received.message, StreamAbort)]
            if options.streaming == "off":
                assert all(abort.of_nothing for abort in aborts)
                assert bool(aborts) == (version >= 180000)
            if options.streaming == "off" and not options.two_phase:  # else what is rolled back may be sent as well
                assert sum(isinstance(received.message, Insert) for received in heard) == ROWS_COMMITTED
            if options.proto_version == 1:
                messages = MessageColumns.of((change.start_lsn, change.payload) for change in sent)
                segment, _ = build_segment(messages, 0, Tail(0, 0))
                assert segment.info.commit_rows >= ROWS_COMMITTED


@pytest.fixture
def unpublished(versioned: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    """A slot ``gap``, and behind it a row of a publication that is there, one of none, and the publication again."""
    publication = "CREATE PUBLICATION gap FOR TABLE gap"
    versioned.psql(f"CREATE TABLE gap (a int PRIMARY KEY); {publication}")
    with replication_connection(versioned.dsn) as pgconn:
        create_slot(pgconn, "gap")
    for sql in ("INSERT INTO gap VALUES (1)", "DROP PUBLICATION gap", "INSERT INTO gap VALUES (2)", publication):
        versioned.psql(sql)
    yield versioned
    versioned.psql("SELECT pg_drop_replication_slot('gap')")
    versioned.psql("DROP PUBLICATION gap; DROP TABLE gap")


def test_a_missing_publication_stop_the_losses(unpublished: EmbeddedPostgres, folder: Path) -> None:
    """13 to 17 refuse a change that was made without one; 18 only warns. To us it is the same."""
    options = PgoutputOptions(("gap",))
    with connect(unpublished.dsn) as connection:
        with pytest.raises(PublicationError, match="gap"):
            list(slot_changes(connection, "gap", peek=True, plugin_options=options))
        end = LSN.parse(unpublished.psql("SELECT pg_current_wal_lsn()"))
        chosen = RecvOptions(until_lsn=end, plugin_options=options)
        with (
            closing(json_output(folder / "lines", options)) as output,
            pytest.raises(PublicationError, match="gap"),
        ):
            recv(unpublished.dsn, "gap", output, chosen)
        lines = [json.loads(line) for line in (folder / "lines").read_text().splitlines()]
        assert [line["new"] for line in lines if line["message"] == "Insert"] == [{"a": "1"}]
        confirmed = require_slot(connection, "gap").confirmed_flush_lsn
    assert confirmed is not None
    # not past the change: it is refused again
    assert confirmed < end
    with connect(unpublished.dsn) as connection, pytest.raises(PublicationError, match="gap"):
        list(slot_changes(connection, "gap", peek=True, plugin_options=options))
