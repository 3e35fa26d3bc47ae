"""capture: server → durable log, against `pg_recvlogical -f /dev/null` on the same backlog over TCP loopback.

Both start a slot of their own, copied from one that was made before the changes, with the same plugin options. Ours
ends when the last commit is durable in the log (every segment is fsynced on the way), the baseline when it has read
that commit: --endpos is the last commit's own end, for with a later one it would wait for WAL to come.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

from bench import common
from wal2lake.capture import Capture
from wal2lake.changelog.log import ChangeLog
from wal2lake.config import Config, LogConfig, SourceConfig
from wal2lake.testing.embedded import EmbeddedPostgres

BAR = 1.5
ORIGIN = "origin"
_numbers = count()


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench capture", description=__doc__)
    parser.add_argument("--changes", type=int, default=common.CHANGES)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(argv)
    logging.getLogger("wal2lake.capture").setLevel(logging.ERROR)
    with common.server() as postgres, tempfile.TemporaryDirectory(prefix="wal2lake-bench-") as folder:
        backlog = Backlog(postgres, Path(folder), given.changes)
        return common.verdict(backlog.alternate(postgres.tcp_dsn, given.rounds), BAR)


class Backlog:
    """Changes that wait behind a slot of ``postgres``, for each who reads them to be given a copy of it."""

    def __init__(self, postgres: EmbeddedPostgres, folder: Path, changes: int, insert: str | None = None) -> None:
        self.postgres, self.folder, self.changes = postgres, folder, changes
        common.create_table(postgres)
        common.create_slot(postgres, ORIGIN)
        if insert is None:
            common.insert_rows(postgres, changes)
        else:
            postgres.psql(insert)
        self.end = committed_end(postgres)

    def alternate(
        self, dsn: str, rounds: int, *, program: Sequence[str] = (), entering: Callable[[], object] = bool
    ) -> dict[str, float]:
        """Changes per second of ours and of the baseline, by turns, both by way of ``dsn``. ``program``: how the
        baseline is called, if not as the server's own; ``entering`` is called in our thread first."""
        return common.alternate(
            {
                "wal2lake capture": lambda: self.changes / self._capture(dsn, entering),
                "pg_recvlogical": lambda: self.changes / recvlogical(self.postgres, self.end, dsn, program),
            },
            rounds,
        )

    def _capture(self, dsn: str, entering: Callable[[], object]) -> float:
        """Seconds from connecting until the log holds everything, durably."""
        slot = copied_slot(self.postgres)
        place = self.folder / slot
        capture = Capture(Config(SourceConfig(dsn, common.PUBLICATION, slot), LogConfig(str(place))))
        stop = threading.Event()

        def run() -> None:
            entering()
            capture.run(stop)

        thread = threading.Thread(target=run)
        began = time.perf_counter()
        thread.start()
        while thread.is_alive() and not ChangeLog.exists(place):
            time.sleep(0.01)
        log = ChangeLog.open(place)
        while thread.is_alive() and str(log.last_end_lsn) != self.end:
            time.sleep(0.02)
            log.refresh()
        seconds = time.perf_counter() - began
        stop.set()
        thread.join()
        assert str(log.last_end_lsn) == self.end, "capture ended early"
        drop(self.postgres, slot)
        shutil.rmtree(place)
        return seconds


def committed_end(postgres: EmbeddedPostgres) -> str:
    """The end LSN of the last transaction, as the server itself reads it from the slot."""
    options = f"'proto_version', '1', 'publication_names', '{common.PUBLICATION}'"
    return postgres.psql(f"SELECT max(lsn) FROM pg_logical_slot_peek_binary_changes('{ORIGIN}', NULL, NULL, {options})")


def recvlogical(postgres: EmbeddedPostgres, end: str, dsn: str | None = None, program: Sequence[str] = ()) -> float:
    """Seconds that pg_recvlogical takes to read up to ``end`` and throw it away."""
    slot = copied_slot(postgres)
    command = [
        *(program or [str(postgres.client_dir / "pg_recvlogical")]), "-d", dsn or postgres.tcp_dsn, "-S", slot,
        "--start", "--no-loop", "--endpos", end, "-f", "/dev/null",
        "-o", "proto_version=1", "-o", f"publication_names={common.PUBLICATION}",
    ]  # fmt: skip
    seconds = common.timed(lambda: subprocess.run(command, check=True, capture_output=True))
    drop(postgres, slot)
    return seconds


def copied_slot(postgres: EmbeddedPostgres) -> str:
    name = f"copy_{next(_numbers)}"
    postgres.psql(f"SELECT pg_copy_logical_replication_slot('{ORIGIN}', '{name}')")
    return name


def drop(postgres: EmbeddedPostgres, slot: str) -> None:
    """The walsender may not have seen yet that its client is gone."""
    freed = f"SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{slot}' AND NOT active"
    common.await_true(lambda: postgres.psql(freed) == "1")
    postgres.psql(f"SELECT pg_drop_replication_slot('{slot}')")
