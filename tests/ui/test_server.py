"""The page as a process has it: over a real socket, kept up to date by threads, ended at once; and its command line."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

from tests.ui.shown import Shown
from tests.waiting import eventually
from wal2lake.cli.main import app
from wal2lake.errors import ConfigError
from wal2lake.ui import connections
from wal2lake.ui.server import TOKEN_VARIABLE, Server, UiOptions


def said(url: str) -> str:
    with urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


def test_it_listens_keeps_up_and_ends(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    with Server(shown.config, UiOptions()) as page:
        assert page.url == page.url_with_token == f"http://127.0.0.1:{page.port}/"
        eventually(lambda: "shop.orders is quarantined." in said(page.url))
        shown.say("pipeline", state="starting", doing="starting Spark")
        eventually(lambda: "starting Spark" in said(page.url))
        kept = socket.create_connection(("127.0.0.1", page.port))
        with pytest.raises(ConfigError, match=r"cannot listen on 127\.0\.0\.1, port"):
            Server(shown.config, UiOptions(port=page.port))
    kept.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", page.port))


def test_a_page_that_may_act_prints_its_token_and_opens_by_it(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    with Server(shown.config, UiOptions(actions=True)) as page:
        with pytest.raises(HTTPError, match="401"):
            said(page.url)
        assert page.url_with_token.startswith(f"{page.url}?token=")
    monkeypatch.setenv(TOKEN_VARIABLE, "a token of the user")
    with Server(shown.config, UiOptions(actions=True)) as page:
        assert page.url_with_token == page.url, "who set it knows it"


_BEGUN = {
    "nothing": b"",
    "half its headers": b"GET / HTTP/1.1\r\nHost: localhost\r\nX-",
    "half its form": b"POST /verify HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
    b"Authorization: Bearer a token of the user\r\nOrigin: http://localhost\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\n\r\na=",
    "half of the next": b"HEAD /static/ui.css HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HT",
}
_WHOLE = b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"


def _held(stack: ExitStack, port: int, begun: bytes) -> socket.socket:
    held = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
    held.sendall(begun)
    return held


def _to_the_end(held: socket.socket) -> bytes:
    said = b""
    with suppress(ConnectionResetError):
        while part := held.recv(65_536):
            said += part
    return said


def test_who_does_not_say_a_whole_request_is_not_waited_for(
    shown: Shown, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "a token of the user")
    monkeypatch.setattr(connections, "REQUEST_S", 1.0)
    with Server(shown.config, UiOptions(actions=True)) as page, ExitStack() as stack:
        held = {name: _held(stack, page.port, begun) for name, begun in _BEGUN.items()}
        for name, one in held.items():
            said_then = _to_the_end(one)
            assert said_then.count(b"HTTP/1.1 ") == _BEGUN[name].count(b"HEAD"), (name, said_then)
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]


def test_who_holds_connections_shuts_nobody_out(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    monkeypatch.setattr(connections, "MOST", 6)
    with Server(shown.config, UiOptions()) as page, ExitStack() as stack:
        held = [_held(stack, page.port, begun) for _ in range(5) for begun in _BEGUN.values()]
        assert "wal2lake" in said(page.url)
        assert not _to_the_end(held[0]), "the one that waited longest has gone"


def test_too_many_whole_requests_are_told_so(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    asked, go_on = threading.Semaphore(0), threading.Event()

    def slow(*arguments: object, **named: object) -> list[object]:
        asked.release()
        go_on.wait(60)
        return []

    monkeypatch.setattr("wal2lake.ui.app.read_events", slow)
    monkeypatch.setattr(connections, "MOST", 2)
    with Server(shown.config, UiOptions()) as page, ExitStack() as stack:
        stack.callback(go_on.set)
        held = [_held(stack, page.port, _WHOLE) for _ in range(2)]
        assert all(asked.acquire(timeout=60) for _ in held)
        refused = _to_the_end(_held(stack, page.port, _WHOLE))
        assert refused.startswith(b"HTTP/1.1 503 ") and b"try again in a moment." in refused
        go_on.set()
        assert all(one.recv(15) == b"HTTP/1.1 200 OK" for one in held)


def _configured(folder: Path, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*words, "--log", str(folder / "log"), "--dsn", "host=127.0.0.1 port=1"])
    return (getattr(done.exception, "exit_code", done.exit_code), str(done.exception))


@pytest.mark.parametrize("words", [("ui", "--allow-actions"), ("ui", "--host", "0.0.0.0")])
def test_without_a_terminal_nobody_would_read_the_token(
    tmp_path: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    code, text = _configured(tmp_path, *words)
    assert (code, f"Set {TOKEN_VARIABLE}" in text) == (2, True)


@pytest.mark.parametrize("option", ["--ui-port=1", "--ui-allow-actions", "--ui-host=::", "--ui-allow-host=a"])
def test_run_refuses_what_is_about_a_page_that_is_not_there(tmp_path: Path, option: str) -> None:
    code, text = _configured(tmp_path, "run", option)
    assert (code, "Add --ui." in text) == (2, True)
