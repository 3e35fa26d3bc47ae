"""`wal2lake demo` as `make demo` calls it: verified, summed up in its last line, and its lines for DuckDB work."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.documents.shown import on_page, ran

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.slow]


@pytest.mark.documents
def test_the_demonstration_ends_verified(tmp_path: Path) -> None:
    """The line of docs/recovery.md; `make demo` is the same in another folder."""
    (shown,) = [item for item in on_page("docs/recovery.md", "sh") if "wal2lake demo" in item.text]
    words = [*shlex.split(shown.text)[1:], "--json"]
    words[words.index("--seconds") + 1] = "5"
    command = [sys.executable, "-m", "wal2lake", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["verified"] is True
    assert summary["tables"] == 8
    assert {"changes", "changes_per_s", "lag_s"} < summary.keys()
    ran(shown)
    ran(next(item for item in on_page("README.md", "sh") if item.text == "make demo"))
    assert "paid" in _paste(done.stderr.partition("DuckDB:\n")[2].partition("With PySpark")[0], tmp_path)


def _paste(lines: str, folder: Path) -> str:
    program = textwrap.dedent(lines)
    return subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True
    ).stdout
