"""What the documents show is true: their commands parse, and the Python of docs/live.md runs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from tests.documents.shown import acknowledged, on_page, run, run_until, shown
from wal2lake.cli.main import app
from wal2lake.cli.protocol import app as protocol
from wal2lake.testing.embedded import EmbeddedPostgres


def _commands() -> list[str]:
    """Without what a pipe or a redirection leads to."""
    lines = (item.text.partition(" | ")[0] for item in shown() if item.language == "sh")
    return [line for line in lines if line.startswith("wal2lake ")]


@pytest.mark.parametrize("line", dict.fromkeys(_commands()))
def test_a_command_that_is_shown_parses(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command, words = get_command(app), shlex.split(line, comments=True)[1:]
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    command.make_context(line, words)


def _examples(command: Any) -> Iterator[Any]:
    yield command
    for below in getattr(command, "commands", {}).values():
        yield from _examples(below)


def test_every_protocol_command_has_an_example_that_parses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [command for command in _examples(get_command(protocol)) if not hasattr(command, "commands")]
    assert len(found) == 11
    for command in found:
        example = command.epilog.removeprefix("Example: ")
        test_a_command_that_is_shown_parses(example, tmp_path, monkeypatch)


def test_commands_were_found() -> None:
    assert len(_commands()) >= 8


@pytest.mark.server
@pytest.mark.documents
def test_the_python_of_the_live_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that streams for ever is ended as by Ctrl-C."""
    monkeypatch.chdir(tmp_path)
    with EmbeddedPostgres() as server:
        server.psql("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION shop FOR ALL TABLES")
        names: dict[str, object] = {"dsn": server.dsn}
        for block in on_page("docs/live.md", "python"):
            if "LogicalStream(" not in block.text:
                run(block, names)
                continue
            server.psql("SET synchronous_commit = on; INSERT INTO t VALUES (1)")
            run_until(acknowledged(server, "mine"), block, names)
    assert (tmp_path / "copy" / "PG_VERSION").exists()
