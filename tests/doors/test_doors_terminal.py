"""Whoever may create a table chooses its name; the terminal and the log of whoever looks shows it, and does nothing."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo
from rich.table import Table

from tests.cli.commands import LEAVES
from tests.waiting import eventually
from wal2lake.capture import Capture
from wal2lake.changelog.events import Events
from wal2lake.changelog.log import ChangeLog
from wal2lake.cli.main import main
from wal2lake.cli.output import PlainConsole
from wal2lake.config import Config
from wal2lake.lsn import LSN
from wal2lake.monitor.progress import Progress, TableProgress
from wal2lake.monitor.view import line, render
from wal2lake.names import printable, qualified
from wal2lake.postgres.connection import Connection, connect
from wal2lake.run.verifying import show_report
from wal2lake.tables.state import Quarantine
from wal2lake.tables.table_folder import TableFolder
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.verify.report import KeyRange, TableResult, VerifyReport
from wal2lake.wire.command_text import quote_identifier

NAMES = (
    *("[/x]", "[bold red]x", "a\x1b]0;owned\x07b", "a\nwal2lake: all is well"),
    *("a\rb", "c\x9bd", "\u202eevil", ":bomb:"),
)
_MAKE = """
DO $$DECLARE n text; BEGIN FOREACH n IN ARRAY ARRAY[{}] LOOP
    EXECUTE format('CREATE TABLE %I (a int)', n); END LOOP; END$$;
CREATE PUBLICATION wal2lake FOR ALL TABLES
"""


@pytest.mark.parametrize("name", NAMES)
def test_doors_a_name_is_text(name: str) -> None:
    out = io.StringIO()
    console = PlainConsole(file=out, force_terminal=True, width=200)
    table = Table("heading", title=name, caption=name, box=None)
    table.add_row(name)
    console.print(table)
    console.print(name)
    console.print(f"The table {name} is there.", markup=True, highlight=False, soft_wrap=True)
    console.out(name)
    shown = printable(name)
    assert out.getvalue().count(shown) == 6
    assert shown.isprintable()
    assert not {"\a", "\r", "\x9b", "\u202e"} & set(out.getvalue())
    assert "\x1b]" not in out.getvalue() and "\nwal2lake" not in out.getvalue()


DATABASE = "d\x1b]0;owned\x07b\n[/x]"
# How each command that looks is called, and how many of the names (of which one was quarantined) it shows at least.
LOOKING = {
    "check": ([], 1),
    "status": ([], 8),
    "events": ([], 8),
    "tables": ([], 8),
    "resync": (["--all"], 8),
    "log list": ([], 0),
    "log dump": ([], 8),
    "log verify": ([], 0),
    "log consumers": ([], 0),
    "log forget": (["[/x]\x1b"], 0),
    "slots list": ([], 0),
    "identify": ([], 0),
    "drop": (["--yes"], 0),
}
# These show nothing of the server's but what is named on their command line, or run and are looked at below.
OTHERS = {
    "init",
    "run",
    "metrics",
    "capture",
    "pipeline",
    "demo",
    "verify",
    "ui",  # its pages: tests/ui
    "log decode",
    "recv",
    "basebackup",
    "receivewal",
}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A database of such a name, its tables in a log and in the documents about them: its DSN, and the folder."""
    folder = tmp_path_factory.mktemp("hostile")
    with EmbeddedPostgres() as server:
        server.psql(f"CREATE DATABASE {quote_identifier(DATABASE)}")
        dsn = make_conninfo(server.dsn, dbname=DATABASE)
        with connect(dsn, writable=True) as connection:
            connection.execute("SET search_path = public")
            connection.execute(_MAKE.format(", ".join(f"E'{escaped(name)}'" for name in NAMES)).encode())
            config = Config.from_dict(
                {"source": {"dsn": dsn}, "log": {"path": str(folder / "log")}, "lake": {"path": str(folder / "lake")}}
            )
            _capture_each(config, connection)
        yield dsn, folder


def escaped(name: str) -> str:
    return "".join(f"\\U{ord(char):08X}" for char in name)


def _capture_each(config: Config, connection: Connection) -> None:
    stop = threading.Event()
    capturing = threading.Thread(target=Capture(config).run, args=(stop,))
    capturing.start()
    try:
        eventually(lambda: ChangeLog.exists(config.log.path), alive=capturing.is_alive)
        for name in NAMES:
            connection.execute(f"INSERT INTO public.{quote_identifier(name)} VALUES (1)".encode())
        committed = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        assert committed is not None
        end = LSN.parse(committed[0])
        eventually(lambda: ChangeLog.open(config.log.path).durable_lsn() >= end, alive=capturing.is_alive)
    finally:
        stop.set()
        capturing.join()
    for name in NAMES:
        folder = TableFolder(config.log.path, config.pipeline.name, "public", name)
        folder.write(replace(folder.read(), quarantine=Quarantine("SinkError", f"{name} is odd.", 1.0)))
        Events(config.log.path, "pipeline", config.pipeline.name).record("quarantined", f"{name} is odd.", table=name)


@pytest.mark.server
@pytest.mark.parametrize("name", LOOKING)
def test_doors_no_command_passes_on_what_a_name_does(
    hostile: tuple[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (dsn, folder), (arguments, shown) = hostile, LOOKING[name]
    leaf = {parameter.name for parameter in LEAVES[name].params}
    places = ["--log", str(folder / "log"), "--lake", str(folder / "lake")] if "log" in leaf else []
    monkeypatch.setattr(sys, "argv", ["wal2lake", *name.split(), *arguments, "--dsn", dsn, *places])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert ended.value.code in (0, 1, 2), err
    for said in (out, err):
        assert not {"\a", "\r", "\x9b", "\u202e", "\x1b"} & set(said)
        assert "\nwal2lake: all is well" not in said
    joined = re.sub(r"\s+", "", out + err)
    forms = [(qualified(table), printable(table)) for table in NAMES]  # as a table's name, and amid what is said of it
    assert sum(any(re.sub(r"\s+", "", form) in joined for form in both) for both in forms) >= shown


def test_doors_every_command_is_looked_at() -> None:
    given = {name for name in LEAVES if name.startswith("slots ") and name != "slots list"}
    assert {*LOOKING} | OTHERS | given == LEAVES.keys()


@pytest.mark.parametrize("terminal", [True, False])
def test_doors_what_runs_shows_names_as_text(terminal: bool) -> None:
    """The live view of `run` and its kin, and the report of `verify`."""
    out = io.StringIO()
    console = PlainConsole(file=out, force_terminal=terminal, width=400)
    for name in NAMES:
        progress = Progress(tables=(TableProgress(name=name, state="quarantined", reason=name),), pipeline_reason=name)
        console.print(render(progress, note=name))
        console.print(line(progress, name))
        result = TableResult("public", name, LSN(1), 0, 1, 1, 1, (KeyRange(name, None, None, 1, 2),), 1.0, problem=name)
        show_report(VerifyReport(LSN(1), (result,), note=name), console)
        shown = printable(name)
        assert out.getvalue().count(shown) >= 6, out.getvalue()
    colours = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert not {"\a", "\r", "\x9b", "\u202e", "\x1b"} & set(colours)
    assert "\nwal2lake: all is well" not in colours


def test_doors_a_log_line_is_one_line() -> None:
    program = """
import logging
from wal2lake.run.logs import configure_logging
configure_logging()
logging.getLogger("wal2lake").warning("%s is quarantined", "a\\nwal2lake-error: {}\\x1b[2J")
"""
    terminal, end = pty.openpty()
    done = subprocess.run([sys.executable, "-c", program], stdin=end, stderr=subprocess.PIPE, text=True, check=True)
    os.close(terminal)
    os.close(end)
    assert len(done.stderr.splitlines()) == 1
    assert r"a\nwal2lake-error: {}\x1b[2J is quarantined" in done.stderr
