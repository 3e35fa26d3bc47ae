"""What a server sends, says or has become that no documentation tells of, and that must not cost a row.

A role of its own makes the server's memory for decoding small, so that a few hundred rows outgrow it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.capture.conftest import World
from tests.changelog.conftest import IDENTITY
from wal2lake.capture import Capture
from wal2lake.changelog import LogWriter
from wal2lake.config import Config
from wal2lake.errors import ProtocolError
from wal2lake.lsn import LSN
from wal2lake.pgoutput.messages import StreamAbort
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.postgres.logical import LogicalStream, decoded
from wal2lake.postgres.outputs import JsonLinesOutput
from wal2lake.postgres.recv import RecvOptions, recv
from wal2lake.testing.stream import ScriptedStream, relation

pytestmark = pytest.mark.server

ROLLED_BACK = """
BEGIN; INSERT INTO {0} VALUES (-1, 'x'); SAVEPOINT s; INSERT INTO {0} VALUES (-2, 'x'); RELEASE s;
INSERT INTO {0} SELECT g, repeat('x', 100) FROM generate_series(10001, 13000) g; ROLLBACK
"""


@pytest.fixture
def short_of_memory(world: World) -> Iterator[Config]:
    """The world's configuration, for a role whose transactions outgrow logical_decoding_work_mem soon."""
    role = f"{world.name}_short"
    world.sql(f"CREATE ROLE {role} LOGIN SUPERUSER")
    world.sql(f"ALTER ROLE {role} SET logical_decoding_work_mem = '64kB'")
    dsn = world.server.dsn.replace("user=postgres", f"user={role}")
    yield replace(world.config, source=replace(world.config.source, dsn=dsn))
    world.sql(f"DROP ROLE {role}")


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
    with closing(JsonLinesOutput(tmp_path / "lines", options)) as output:
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
            writer.append([begin, change, abort, commit])
        writer.append([begin, change])
        with pytest.raises(ProtocolError, match="StreamAbort amid transaction 701"):
            writer.append([abort, commit])
        assert writer.append([commit, abort]).commits == 1
