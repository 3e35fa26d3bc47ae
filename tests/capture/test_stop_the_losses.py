"""What a server sends, says or has become that no documentation tells of, and that must not cost a row.

A role of its own makes the server's memory for decoding small, so that a few hundred rows outgrow it.
"""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.capture.conftest import World
from tests.capture.test_capture import failure
from tests.changelog.conftest import IDENTITY
from tests.waiting import eventually
from wal2lake.capture import Capture
from wal2lake.capture.frames import without_headers
from wal2lake.capture.startup import change_log_findings
from wal2lake.changelog.dump import verify_log
from wal2lake.changelog.writer import LogWriter
from wal2lake.cli.protocol import app
from wal2lake.config import Config
from wal2lake.errors import LogMismatchError, ProtocolError, PublicationError
from wal2lake.lsn import LSN
from wal2lake.monitor.status import read_status
from wal2lake.pgoutput.messages import StreamAbort
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.postgres.connection import connect, execute, replication_connection
from wal2lake.postgres.logical import LogicalStream, decoded
from wal2lake.postgres.plugin_output import json_output
from wal2lake.postgres.recvlogical import RecvOptions, recv
from wal2lake.postgres.slot_sql import slot_changes
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.testing.stream import ScriptedStream, relation

pytestmark = pytest.mark.server

ROLLED_BACK = """
BEGIN; INSERT INTO {0} VALUES (-1, 'x'); SAVEPOINT s; INSERT INTO {0} VALUES (-2, 'x'); RELEASE s;
INSERT INTO {0} SELECT g, repeat('x', 100) FROM generate_series(10001, 13000) g; ROLLBACK
"""


def test_capture_passes_over_the_abort_of_what_was_never_sent(world: World, short_of_memory: Config) -> None:
    world.make_slots()
    world.insert(1, 3)
    world.sql(ROLLED_BACK.format(world.name))
    world.insert(4, 6)
    with world.capturing(Capture(short_of_memory)):
        world.await_durable(world.wal_end())
    assert world.errors == []
    assert world.captured() == world.expected()


@pytest.mark.parametrize(("version", "streaming"), [(1, "off"), (2, "on"), (4, "parallel"), (4, "off")])
def test_recv_passes_over_it_too(
    world: World, short_of_memory: Config, tmp_path: Path, version: int, streaming: str
) -> None:
    world.make_slots()
    world.sql(ROLLED_BACK.format(world.name))
    world.insert(4, 6)
    options = PgoutputOptions((world.name,), version, streaming=streaming)  # type: ignore[arg-type]
    dsn, chosen = short_of_memory.source.dsn, RecvOptions(until_lsn=world.wal_end(), plugin_options=options)
    with closing(json_output(tmp_path / "lines", options)) as output:
        recv(dsn, world.name, output, chosen)
    told = [json.loads(line)["message"] for line in (tmp_path / "lines").read_text().splitlines()]
    assert told == ["Begin", "Relation", "Insert", "Insert", "Insert", "Commit"]
    with LogicalStream(dsn, f"{world.name}_twin", LSN(0), options) as stream:
        changes = decoded(stream, options)
        assert [type(next(changes).received.message).__name__ for _ in told] == told


def test_an_abort_of_what_was_sent_is_refused(tmp_path: Path) -> None:
    stream = ScriptedStream()
    begin, change, commit = stream.transaction(relation())
    abort = stream.message(StreamAbort(701, 702))
    with LogWriter(tmp_path / "log", IDENTITY) as writer:
        with pytest.raises(ProtocolError, match="StreamAbort amid transaction 701"):
            writer.append(without_headers([begin, change, abort, commit]))
        writer.append(without_headers([begin, change]))
        with pytest.raises(ProtocolError, match="StreamAbort amid transaction 701"):
            writer.append(without_headers([abort, commit]))
        assert writer.append(without_headers([commit, abort])).commits == 1


def test_a_publication_missing_for_a_while_ends_capture_before_the_slot_moves(world: World) -> None:
    """On 18 the server only warns, and goes on without the row."""
    world.make_slots()
    with world.capturing():
        world.insert(1, 3)
        world.await_durable(world.wal_end())
        world.sql(f"DROP PUBLICATION {world.name}")
        before = world.insert(4, 4)
        world.sql(f"CREATE PUBLICATION {world.name} FOR TABLE {world.name}")
        world.insert(5, 5)
        eventually(lambda: world.errors)
    for _ in range(2):  # and so does every later start
        error = world.errors.pop()
        assert isinstance(error, PublicationError)
        assert world.name in str(error)
        assert world.confirmed() <= before
        with world.capturing():
            eventually(lambda: world.errors)
    world.errors.clear()


def test_recv_refuses_a_missing_publication_before_it_changes_anything(world: World, tmp_path: Path) -> None:
    world.make_slots()
    world.insert(1, 3)
    before = world.confirmed()
    arguments = ["--dsn", world.server.dsn, "--file", str(tmp_path / "out"), "--publication", "typo"]
    for more in ([world.name], [f"{world.name}_new", "--create-slot"]):
        done = CliRunner().invoke(app, ["recv", *more, *arguments, "--publication", world.name])
        assert isinstance(done.exception, PublicationError)
        assert "There is no publication typo" in str(done.exception)
    assert world.confirmed() == before
    assert world.sql(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{world.name}_new'") == []


def test_recv_ends_where_a_publication_was_missing(world: World, tmp_path: Path) -> None:
    """What came before is written; the slot stays before what is missing, however it is read."""
    world.make_slots()
    world.insert(1, 3)
    world.sql(f"DROP PUBLICATION {world.name}")
    before = world.insert(4, 6)
    world.sql(f"CREATE PUBLICATION {world.name} FOR TABLE {world.name}")
    options = PgoutputOptions((world.name,))
    with closing(json_output(tmp_path / "lines", options)) as output, pytest.raises(PublicationError):
        recv(world.server.dsn, world.name, output, RecvOptions(plugin_options=options, status_interval_s=0.1))
    assert sum(json.loads(line)["message"] == "Insert" for line in (tmp_path / "lines").read_text().splitlines()) == 3
    assert world.confirmed() <= before
    with connect(world.server.dsn) as connection, pytest.raises(PublicationError):
        list(slot_changes(connection, world.name, peek=True, plugin_options=options))


@pytest.mark.parametrize("replication", [False, True])
def test_notices_are_heard_and_quote_no_value(
    world: World, caplog: pytest.LogCaptureFixture, replication: bool
) -> None:
    """Also for a role that would rather hear none."""
    role = f"{world.name}_deaf"
    world.sql(f"CREATE ROLE {role} LOGIN SUPERUSER")
    world.sql(f"ALTER ROLE {role} SET client_min_messages = 'error'")
    dsn = world.server.dsn.replace("user=postgres", f"user={role}")
    warning, raised = "ROLLBACK", "DO $$BEGIN RAISE WARNING 'the secret'; END$$"
    with caplog.at_level(logging.INFO):
        for command in (warning, raised):
            if replication:
                with replication_connection(dsn) as pgconn:
                    execute(pgconn, command)
            else:
                with connect(dsn) as connection:
                    connection.execute(command.encode())
    world.sql(f"DROP ROLE {role}")
    told = [record for record in caplog.records if record.name == "wal2lake.server"]
    assert [record.levelname for record in told] == ["WARNING"] * 2
    assert told[0].getMessage() == "PostgreSQL warns: there is no transaction in progress (SQLSTATE 25P01)."
    assert "secret" not in caplog.text


@pytest.fixture
def own_world(tmp_path: Path) -> Iterator[World]:
    """On a server of its own, whose data directory can be put back."""
    with EmbeddedPostgres() as server:
        world = World(server, tmp_path / "log")
        world.setup()
        yield world


@contextmanager
def taken_back(world: World, folder: Path) -> Iterator[None]:
    """What happens in the block happens to a copy of the server alone: the data directory of before is put back."""
    world.server.stop()
    subprocess.run(["cp", "-a", world.server.data_dir, folder], check=True)
    world.server.start()
    yield
    world.server.stop()
    shutil.rmtree(world.server.data_dir)
    subprocess.run(["cp", "-a", folder, world.server.data_dir], check=True)
    world.server.start()


def test_a_server_that_was_taken_back_is_refused(own_world: World, tmp_path: Path) -> None:
    """While it is behind the log, and for good once it has grown past the log's end."""
    world = own_world
    world.make_slots()
    with world.capturing():
        world.insert(1, 3)
        world.await_durable(world.wal_end())
    with taken_back(world, tmp_path / "copy"), world.capturing():
        world.insert(4, 500)
        world.await_durable(world.wal_end())
    durable, confirmed = world.durable(), world.confirmed()
    assert world.wal_end() < durable
    error = failure(world)
    assert isinstance(error, LogMismatchError)
    assert f"before the change log, which ends at {durable}" in str(error)
    assert "move the lake's tables away" in str(error)
    assert "taken back" in " ".join(read_status(world.config).problems)
    assert not change_log_findings(world.config)[0].ok
    while world.wal_end() <= durable:
        world.sql(f"INSERT INTO {world.name} SELECT g, 'other' FROM generate_series(1000, 1099) g")
        world.sql(f"DELETE FROM {world.name} WHERE id >= 1000")
    world.sql("SELECT pg_switch_wal()")
    assert "another history" in change_log_findings(world.config)[0].text
    error = failure(world)
    assert isinstance(error, LogMismatchError)
    assert "another history" in str(error)
    assert "every table must be read again" in str(error)
    assert (world.durable(), world.confirmed()) == (durable, confirmed)


def test_a_server_taken_back_that_nothing_happened_to_is_told_from_one_with_news(
    own_world: World, tmp_path: Path
) -> None:
    """Only one of log and server has transactions behind the fork, and either is enough."""
    world = own_world
    world.make_slots()
    with world.capturing():
        world.insert(1, 3)
        world.await_durable(world.wal_end())
    with taken_back(world, tmp_path / "copy"), world.capturing():
        world.sql("CREATE TABLE elsewhere AS SELECT generate_series(1, 10000)")
        world.await_durable(world.wal_end())
    durable = world.durable()
    assert world.log.last_end_lsn < durable
    world.insert(4, 6)
    while world.wal_end() <= durable:
        world.sql("CREATE TABLE another AS SELECT generate_series(1, 10000); DROP TABLE another")
    world.sql("SELECT pg_switch_wal()")
    assert "another history" in str(failure(world))


def test_a_slot_that_fell_back_is_no_other_history(own_world: World) -> None:
    """PostgreSQL does not write every move of a slot to disk: after its crash it sends again what the log has."""
    world = own_world
    world.make_slots()
    fell_back, first = 0, 1
    while fell_back < 3 and first < 1000:  # a record of the server's own may have had the slot written in between
        with world.capturing():
            world.insert(first, first + 49)
            world.insert(first + 50, first + 99)
            world.await_durable(world.wal_end())
        assert world.confirmed() == world.durable()
        world.server.kill()
        world.server.start()
        fell_back, first = fell_back + (world.confirmed() < world.durable()), first + 100
    assert fell_back == 3
    with world.capturing():
        eventually(lambda: world.confirmed() >= world.durable(), world.errors)
        world.insert(1001, 1002)
        world.await_durable(world.wal_end())
    assert world.errors == []
    assert world.captured() == world.expected()
    assert list(verify_log(world.log.storage)) == []
