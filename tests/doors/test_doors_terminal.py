"""Whoever may create a table chooses its name; the terminal and the log of whoever looks shows it, and does nothing."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from rich.table import Table

from wal2lake.cli.output import PlainConsole
from wal2lake.names import printable
from wal2lake.testing.embedded import EmbeddedPostgres

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


@pytest.mark.server
@pytest.mark.parametrize("command", ["check", "status"])
def test_doors_a_hostile_table_is_shown_by_name(tmp_path: Path, command: str) -> None:
    with EmbeddedPostgres() as server:
        server.psql(_MAKE.format(", ".join(f"'{name}'" for name in NAMES)))
        done = subprocess.run(
            [sys.executable, "-m", "wal2lake", command, "--dsn", server.dsn, "--log", "log", "--lake", "lake"],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert "Traceback" not in done.stderr
    for name in NAMES:
        assert printable(name) in done.stdout.replace("\n", ""), name
    assert not {"\a", "\r", "\x9b", "\u202e", "\x1b"} & set(done.stdout + done.stderr)
    assert "\nwal2lake: all is well" not in done.stdout + done.stderr


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
