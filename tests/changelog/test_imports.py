"""Capture starts in a moment and stays small: pandas must not come in by the back doors of pyarrow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import sys
from tests.changelog.conftest import IDENTITY
from wal2lake.capture import Capture
from wal2lake.capture.frames import without_headers
from wal2lake.changelog.writer import LogWriter
from wal2lake.testing.stream import ScriptedStream, insert, relation
stream = ScriptedStream()
with LogWriter(sys.argv[1], IDENTITY) as writer:
    sent = without_headers(stream.transaction(relation(), insert(1, "a")))
    writer.append(sent.where(sent.tag > 0))
    writer.log.refresh()
    [writer.log.read(extent) for extent in writer.log.plan(0, stream.lsn)]
    writer.log.transactions(0, stream.lsn)
    writer.log.end_lsn_within(0, max_rows=1)
assert "pandas" not in sys.modules and "pyspark" not in sys.modules
"""


def test_writing_and_planning_import_no_pandas(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _PROGRAM, str(tmp_path / "log")], check=True)
