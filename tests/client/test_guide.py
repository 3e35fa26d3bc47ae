"""The Python of docs/library.md and of the README's ten lines runs, against a server where rows change meanwhile."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.documents.shown import on_page, run
from wal2lake.client import AsyncStream, Stream
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = [pytest.mark.server, pytest.mark.timeout(60)]

TABLE = "CREATE TABLE orders (id int PRIMARY KEY, item text); CREATE PUBLICATION shop FOR ALL TABLES"
CHANGES = "INSERT INTO orders VALUES (1, 'pen'); UPDATE orders SET item = 'ink'; DELETE FROM orders"
FOLLOWS_S = 0.7


def disturb(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """As soon as a stream stands, rows change; a little later it is told to stop."""
    entered, entered_async = Stream.__enter__, AsyncStream.__aenter__

    def enter(stream: Stream[Any]) -> Stream[Any]:
        opened = entered(stream)
        change()
        threading.Timer(FOLLOWS_S, opened.stop).start()
        return opened

    async def enter_async(stream: AsyncStream[Any]) -> AsyncStream[Any]:
        opened = await entered_async(stream)
        change()
        asyncio.get_running_loop().call_later(FOLLOWS_S, opened.stop)
        return opened

    monkeypatch.setattr(Stream, "__enter__", enter)
    monkeypatch.setattr(AsyncStream, "__aenter__", enter_async)


@pytest.fixture
def shop(server: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    """A database of the guide's own; its slot goes with it."""
    server.psql("CREATE DATABASE shop")
    server.psql(TABLE, database="shop")
    yield server
    server.psql("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = 'shop'")
    server.psql("DROP DATABASE shop WITH (FORCE)")


@pytest.mark.documents
def test_the_guide_runs(
    shop: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    disturb(monkeypatch, lambda: shop.psql(CHANGES, database="shop"))
    (server,) = [block for block in on_page("docs/library.md") if "def serve(" in block.text]
    assert len(server.text.splitlines()) <= 30
    names: dict[str, Any] = {"dsn": shop.dsn.replace("dbname=postgres", "dbname=shop")}
    for block in on_page("docs/library.md"):
        run(block, names)
    said = capsys.readouterr().out
    assert "public.orders: {'id': 1} is now {'id': 1, 'item': 'ink'}" in said
    assert "public.orders: {'id': 1} is gone" in said
    assert said.splitlines()[-1] == "0/1028"  # what the made-up walsender was told last
    assert_libpq_takes_it_for_a_server(names["serve"])


def assert_libpq_takes_it_for_a_server(serve: Callable[[socket.socket], None]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve_one() -> None:
            with listener.accept()[0] as connection:
                serve(connection)

        thread = threading.Thread(target=serve_one)
        thread.start()
        port = listener.getsockname()[1]
        dsn = f"host=127.0.0.1 port={port} user=me dbname=d connect_timeout=5"
        with psycopg.connect(dsn, autocommit=True) as connection:
            assert connection.execute("hello").fetchall() == [("hello",)]
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.documents
def test_the_readme_s_ten_lines_run(
    shop: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = [block for block in on_page("README.md", "python") if "connect(" in block.text]
    assert len(block.text.splitlines()) <= 10
    folder = str(conninfo_to_dict(shop.dsn)["host"])
    for name, value in {"PGHOST": folder, "PGPORT": str(shop.port), "PGUSER": "postgres"}.items():
        monkeypatch.setenv(name, value)
    disturb(monkeypatch, lambda: shop.psql(CHANGES, database="shop"))
    run(block, {})
    assert "public.orders {'id': 1, 'item': 'pen'}" in capsys.readouterr().out
