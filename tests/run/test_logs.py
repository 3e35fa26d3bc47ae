"""What a process of its own tells on standard error, and how it reads again."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import start
from tests.waiting import eventually
from wal2lake.run import process
from wal2lake.run.logs import Line, read_line, relay
from wal2lake.run.process import Child

TELL = """
import logging
from wal2lake.run.logs import configure_logging
configure_logging()
configure_logging()
for name in ("wal2lake.capture", "py4j.clientserver", "pyspark.sql", "elsewhere"):
    logging.getLogger(name).info("news of %s", name)
    logging.getLogger(name).warning("trouble of %s", name)
"""


def test_our_news_are_told_and_of_others_only_the_warnings() -> None:
    done = subprocess.run([sys.executable, "-c", TELL], capture_output=True, text=True, check=True)
    assert [read_line(line)[:2] for line in done.stderr.splitlines()] == [
        ("INFO", "news of wal2lake.capture"),
        ("WARNING", "trouble of wal2lake.capture"),
        ("WARNING", "trouble of py4j.clientserver"),
        ("WARNING", "trouble of pyspark.sql"),
        ("WARNING", "trouble of elsewhere"),
    ]
    assert done.stdout == ""


def test_a_line_of_nobodys_logger_stays_as_it_is() -> None:
    assert read_line("  File INFO x.py") == Line("", "  File INFO x.py")


TELL_JSON = """
import logging
from wal2lake.config import MonitorConfig
from wal2lake.changelog.events import Events
from wal2lake.run.logs import configure_logging
configure_logging(MonitorConfig(log_format="json", log_level="{level}"), "capture")
logging.getLogger("wal2lake.x").info("news of %s", "two\\nlines \\x1b[31m")
Events("{folder}", "capture").record("quarantined", "Out.", level="error", table="a.b", error="X")
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("elsewhere").warning("trouble", exc_info=True)
"""


def _objects(text: str) -> list[dict[str, Any]]:
    """Every line is one."""
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("level", ["info", "error"])
def test_lines_that_are_json(tmp_path: Path, level: str) -> None:
    program = TELL_JSON.format(level=level, folder=tmp_path)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    told = _objects(done.stderr)
    assert [read_line(line)[:2] for line in done.stderr.splitlines()] == [
        ("INFO", "news of two\nlines \x1b[31m"), ("ERROR", "a.b: Out."), ("WARNING", "trouble"),
    ][level == "error" :]  # fmt: skip
    event, trouble = told[-2:]
    assert event["event"] == {"event": "quarantined", "table": "a.b", "error": "X"}
    assert (event["role"], event["logger"]) == ("capture", "wal2lake.capture")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event["time"])
    assert "ZeroDivisionError" in trouble["exception"]


@pytest.mark.parametrize(
    ("line", "log_format", "told"),
    [
        ("2026-01-02 03:04:05,678 INFO a b", "text", "2026-01-02 03:04:05,678 INFO capture: a b"),
        ("26/01/02 WARN Spark:\x1b[31m", "text", "capture: 26/01/02 WARN Spark:\\x1b[31m"),
        ('{"time": "2026", "message": "m"}', "json", {"time": "2026", "message": "m"}),
        ('{"time": "torn', "json", {"level": "", "role": "capture", "logger": "", "message": '{"time": "torn'}),
        ("Traceback", "json", {"level": "", "role": "capture", "logger": "", "message": "Traceback"}),
    ],
)
def test_what_a_child_tells_its_parent_tells(
    line: str, log_format: str, told: str | dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    relay(line, "capture", log_format)
    (found,) = capsys.readouterr().err.splitlines()
    if isinstance(told, dict):
        found = json.loads(found)
        assert {name: found[name] for name in told} == told
    else:
        assert found == told


def test_a_child_s_log_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LOG_BYTES", 1000)
    child = Child("capture", tmp_path / "log" / "status" / "capture.log")
    for number in range(2):
        child.read_output(io.BytesIO(b"".join(b"line %d of %d\n" % (line, number) for line in range(200))))
    files = sorted(child.log_file.parent.iterdir())
    assert [file.name for file in files] == ["capture.log", "capture.log.1"]
    assert all(file.stat().st_size <= 1020 and file.stat().st_mode & 0o777 == 0o600 for file in files)
    told = (files[1].read_text() + files[0].read_text()).splitlines()
    assert told[-1] == "line 199 of 1"
    assert len(told) > 60


def test_all_that_run_tells_is_json(tmp_path: Path) -> None:
    """The real children, until they are asked to end; the server is not there."""
    dsn, err = "host=127.0.0.1 port=1 dbname=x", tmp_path / "err"
    running = start(["run", "--log-format", "json", "--dsn", dsn, "--log", "log"], tmp_path, {})
    try:
        eventually(lambda: err.exists() and "cannot be reached" in err.read_text(), alive=running.is_alive)
        assert running.pid is not None
        os.kill(running.pid, signal.SIGTERM)
        running.join(60)
        assert running.exitcode == 0
    finally:
        running.kill()
    told = _objects(err.read_text())
    assert {"run", "capture"} <= {line["role"] for line in told}
    assert [line["event"]["event"] for line in told if line["role"] == "run" and "event" in line] == [
        "started",
        "stopped",
    ]
    assert any("Stopping" in line["message"] for line in told)
    assert any(
        line["level"] == "WARNING" and line["event"]["event"] == "disconnected" for line in told if "event" in line
    )
