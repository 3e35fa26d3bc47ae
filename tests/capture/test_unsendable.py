"""What the server cannot send as text in UTF-8 costs a table, or nothing; never the stream."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.capture.conftest import World
from tests.waiting import eventually
from wal2lake.errors import ServerError
from wal2lake.postgres import errors
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.server


class Elsewhere(World):
    """A world in a database of its own, of another encoding."""

    def __init__(self, server: EmbeddedPostgres, path: Path, encoding: str) -> None:
        super().__init__(server, path)
        server.psql(f"CREATE DATABASE {self.name} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'")
        self.server = _Other(server, self.name)  # type: ignore[assignment]

    def teardown(self) -> None:
        self.sql(f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = '{self.name}'")
        self.server.psql(f"DROP DATABASE {self.name} WITH (FORCE)")

    def put(self, row: int, octets: str) -> None:
        """Insert a row whose text has these bytes (hexadecimal)."""
        server = "(SELECT getdatabaseencoding())"
        self.sql(f"INSERT INTO {self.name} VALUES ({row}, convert_from('\\x{octets}', {server}))")


class _Other:
    def __init__(self, server: EmbeddedPostgres, database: str) -> None:
        self.psql = server.psql
        self.dsn, self.tcp_dsn = (
            dsn.replace("dbname=postgres", f"dbname={database} client_encoding=UTF8")
            for dsn in (server.dsn, server.tcp_dsn)
        )


@contextmanager
def database(server: EmbeddedPostgres, path: Path, encoding: str) -> Iterator[Elsewhere]:
    world = Elsewhere(server, path, encoding)
    try:
        world.setup()
        world.make_slots()
        yield world
    finally:
        world.teardown()


@pytest.mark.parametrize(
    ("encoding", "good", "arrives", "bad", "stored"),
    [
        ("SQL_ASCII", "c3a4", "c3a4", "e9", "e9"),
        ("WIN1252", "e4", "c3a4", "4181", "41ff"),
    ],
)
def test_text_without_utf8_stops_nothing(
    server: EmbeddedPostgres, tmp_path: Path, encoding: str, good: str, arrives: str, bad: str, stored: str
) -> None:
    with database(server, tmp_path / "log", encoding) as world:
        world.put(1, good)
        world.put(2, bad)
        world.put(3, good)
        with world.capturing():
            world.await_durable(world.wal_end())
        assert world.errors == []
        changes = [payload for payload in world.captured() if payload[:1] == b"I"]
        # tag, relation, 'N', two columns; the first is a digit: then kind and length of the second
        assert [payload[8 + 6 + 5 :].hex() for payload in changes] == [arrives, stored, arrives]
        assert world.confirmed() == world.log.durable_lsn()


@pytest.mark.parametrize(("encoding", "name"), [("SQL_ASCII", r"\351"), ("WIN1252", r"\344")])
def test_a_name_without_utf8_is_one_error_with_a_cure(
    server: EmbeddedPostgres, tmp_path: Path, encoding: str, name: str
) -> None:
    with database(server, tmp_path / "log", encoding) as world:
        world.sql(
            f"SET client_encoding = SQL_ASCII; DO $$BEGIN EXECUTE 'ALTER TABLE {world.name} RENAME v TO \"' ||"
            f" convert_from('{name}'::bytea, getdatabaseencoding()) || '\"'; END$$"
        )
        world.put(2, "4181")
        with world.capturing():
            eventually(lambda: world.errors)
    assert re.search("a name that cannot be had in UTF-8.*Rename.*wal2lake drop", str(world.errors[0]))


@pytest.fixture
def unprintable(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A type that has no text but a binary form; what the server says of it stands for a value that is too large."""
    too_large = ("0A000", re.compile("trigger_out"), errors.TOO_LARGE)
    monkeypatch.setattr(errors, "BY_FUNCTION", (too_large, *errors.BY_FUNCTION))
    world.sql(
        "CREATE TYPE untold; CREATE FUNCTION untold_in(cstring) RETURNS untold LANGUAGE internal IMMUTABLE STRICT AS"
        " 'byteain'; CREATE FUNCTION untold_out(untold) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS"
        " 'trigger_out'; CREATE FUNCTION untold_send(untold) RETURNS bytea LANGUAGE internal IMMUTABLE STRICT AS"
        " 'byteasend'; CREATE TYPE untold (INPUT = untold_in, OUTPUT = untold_out, SEND = untold_send)"
    )
    world.sql(f"ALTER TABLE {world.name} ADD u untold")
    return world


def test_a_transaction_with_what_has_no_text_comes_in_binary_form_and_no_other_does(
    unprintable: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = unprintable
    world.make_slots()
    try:
        world.insert(1, 3)
        world.sql(f"BEGIN; INSERT INTO {world.name} VALUES (4, 'w', '\\xabcd'), (5, NULL, NULL); COMMIT")
        world.insert(6, 8)
        with world.capturing():
            world.await_durable(world.wal_end())
        assert world.errors == []
        inserts = [payload for payload in world.captured() if payload[:1] == b"I"]
        forms = [bytes([payload[8]]) for payload in inserts]
        assert forms == [*[b"t"] * 3, b"b", b"b", *[b"t"] * 3]
        assert inserts[3].endswith(b"b\0\0\0\2\xab\xcd")
        assert world.confirmed() == world.log.durable_lsn()
    finally:
        world.sql(f"ALTER TABLE {world.name} DROP u; DROP TYPE untold CASCADE")
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert any("is read in binary form" in text for text in told)
    assert any(f"is of public.{world.name} and has" in text for text in told)


def test_what_no_form_can_send_names_tables_and_cures(unprintable: World) -> None:
    world = unprintable
    world.sql(
        f"ALTER TYPE untold SET (SEND = NONE); ALTER TABLE {world.name} ADD b bytea, ALTER b SET STORAGE EXTERNAL"
    )
    world.make_slots()
    try:
        world.sql(f"INSERT INTO {world.name} VALUES (4, 'w', '\\xabcd', convert_to(repeat('x', 1000000), 'UTF8'))")
        with world.capturing():
            eventually(lambda: world.errors)
    finally:
        world.sql(f"ALTER TABLE {world.name} DROP u; DROP TYPE untold CASCADE")
    (error,) = world.errors
    assert type(error).__bases__[0].__bases__ == (ServerError,)
    assert re.search(f"column list.*wal2lake drop.*public.{world.name}", str(error))
