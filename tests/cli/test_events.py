"""`wal2lake events` shows what happened, by choice, and goes on with what comes."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from typer.testing import CliRunner

from tests.cli.commands import start
from tests.waiting import eventually
from wal2lake.changelog.events import Events
from wal2lake.cli.main import app


def _called(folder: Path, *words: str) -> tuple[int, list[str], str]:
    done = CliRunner().invoke(app, ["events", "--log", str(folder), *words])
    return done.exit_code, done.stdout.splitlines(), str(done.exception or done.stderr)


def _told(folder: Path) -> None:
    pipeline = Events(folder, "pipeline", "wal2lake")
    pipeline.record("started", "The pipeline begins.", version="1")
    pipeline.record("batch", "Batch 1.", batch=1, changes=5)
    pipeline.record("quarantined", "It is left out.", level="error", table="shop.\x1b[31mred")
    Events(folder, "pipeline", "other").record("started", "Another.")


def test_what_is_shown(tmp_path: Path) -> None:
    _told(tmp_path)
    code, lines, _ = _called(tmp_path)
    assert code == 0
    assert [line.split(" ", 1)[1].strip() for line in lines] == [
        "INFO    pipeline: The pipeline begins.",
        "ERROR   pipeline: shop.\\x1b[31mred: It is left out.",
    ]
    assert len(_called(tmp_path, "--batches")[1]) == 3
    assert len(_called(tmp_path, "--batches", "-n", "1")[1]) == 1
    assert len(_called(tmp_path, "--kind", "batch", "--kind", "started")[1]) == 2
    assert len(_called(tmp_path, "--since", "1h")[1]) == 2
    assert len(_called(tmp_path, "--since", "0s")[1]) == 0
    (line,) = _called(tmp_path, "--json", "--table", "shop.\x1b[31mred")[1]
    event = json.loads(line)
    assert (event["kind"], event["table"], event["level"]) == ("quarantined", "shop.\x1b[31mred", "error")


def test_what_cannot_be_shown(tmp_path: Path) -> None:
    code, lines, said = _called(tmp_path / "elsewhere")
    assert (code != 0, lines, "There is no change log at" in said) == (True, [], True)
    _told(tmp_path)
    assert "There are started, stopped" in _called(tmp_path, "--kind", "party")[2]
    assert "Write 90s" in _called(tmp_path, "--since", "yesterday")[2]
    assert "Nothing of that" in _called(tmp_path, "--kind", "promoted")[2]


def test_it_goes_on_with_what_comes(tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    _told(log)
    process = start(["events", "--log", str(log), "--follow", "--json"], tmp_path, {})
    try:
        eventually(lambda: out.exists() and out.read_text().count("\n") == 2, alive=process.is_alive)
        Events(log, "run").record("restarted", "Again.", role="capture")
        Events(log, "pipeline", "wal2lake").record("batch", "Batch 2.")
        Events(log, "run").record("stopped", "Over.")
        eventually(lambda: out.read_text().count("\n") == 4, alive=process.is_alive)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGINT)
        process.join(30)
        assert process.exitcode == 0
    finally:
        process.kill()
    told = [json.loads(line) for line in out.read_text().splitlines()]
    assert [event["kind"] for event in told[2:]] == ["restarted", "stopped"]
