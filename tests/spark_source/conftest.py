"""A change log written by the real writer from a scripted stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from wal2lake.changelog.format import LogIdentity
from wal2lake.changelog.writer import LogWriter
from wal2lake.pgoutput.messages import PgoutputMessage
from wal2lake.testing.stream import ScriptedStream


class LogScript:
    """``log.transactions(...)`` appends one segment; ``ends`` has the end LSN of every transaction so far."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.stream = ScriptedStream()
        self.start = int(self.stream.lsn)
        self.ends: list[int] = []
        self._writer = LogWriter(path, LogIdentity("7", 1, "shop", "slot", "pub", self.stream.lsn))

    def transactions(self, *transactions: list[PgoutputMessage]) -> None:
        payloads = []
        for changes in transactions:
            payloads += self.stream.transaction(*changes)
            self.ends.append(int(self.stream.lsn))
        self.append(payloads)

    def append(self, payloads: list[bytes]) -> None:
        self._writer.append(payloads)

    def new_session(self) -> None:
        """Capture was restarted."""
        self._writer.new_session()

    def close(self) -> None:
        self._writer.close()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogScript]:
    script = LogScript(tmp_path / "log")
    yield script
    script.close()
