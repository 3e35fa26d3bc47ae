"""`wal2lake demo` as `make demo` calls it: verified, summed up in its last line, and its lines for DuckDB work."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.slow]


def test_the_demonstration_ends_verified(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "wal2lake",
        "demo",
        "--seconds",
        "5",
        "--json",
        "--folder",
        str(tmp_path / "demo"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["verified"] is True
    assert summary["tables"] == 8
    assert {"changes", "changes_per_s", "lag_s"} < summary.keys()
    assert "paid" in _paste(done.stderr.partition("DuckDB:\n")[2].partition("With PySpark")[0])


def _paste(lines: str) -> str:
    program = textwrap.dedent(lines)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
