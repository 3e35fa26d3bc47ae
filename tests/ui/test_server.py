"""The page as a process has it: over a real socket, kept up to date by threads, ended at once; and its command line."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

from tests.ui.shown import Shown
from tests.waiting import eventually
from wal2lake.cli.main import app
from wal2lake.errors import ConfigError
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
