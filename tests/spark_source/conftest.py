"""A change log written by the real writer from a scripted stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from wal2lake.capture.frames import without_headers
from wal2lake.changelog.format import LogIdentity
from wal2lake.changelog.writer import LogWriter
from wal2lake.pgoutput.messages import PgoutputMessage
from wal2lake.testing.stream import ScriptedStream

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery


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
        self._writer.append(without_headers(payloads))

    def new_session(self) -> None:
        """Capture was restarted."""
        self._writer.new_session()

    def close(self) -> None:
        self._writer.close()


def completed(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query and wait for its end. Spark gives the Python process of a source ten seconds to come up, which no
    setting prolongs (PythonWorkerFactory.createSimpleWorker); nothing was read then, and it is started again."""
    from pyspark.errors import StreamingQueryException

    for _ in range(20):
        query = start()
        try:
            query.awaitTermination()
            return query
        except StreamingQueryException as error:
            if "Python worker failed to connect back" not in str(error):
                raise
    raise AssertionError("The machine starts no Python within ten seconds, twenty times over.")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogScript]:
    script = LogScript(tmp_path / "log")
    yield script
    script.close()
