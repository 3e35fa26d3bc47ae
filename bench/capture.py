"""Server → durable log, against `pg_recvlogical -f /dev/null` on the same backlog over TCP loopback.

Both start a slot of their own, copied from one that was made before the changes, with the same plugin options. Ours
ends when the last commit is durable in the log (every segment is fsynced on the way), the baseline when it has read
that commit: --endpos is the last commit's own end, for with a later one it would wait for WAL to come.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import tempfile
import threading
import time
from functools import partial
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
        common.create_table(postgres)
        common.create_slot(postgres, ORIGIN)
        common.insert_rows(postgres, given.changes)
        end = committed_end(postgres)
        ours, baseline = partial(capture, postgres, Path(folder), end), partial(recvlogical, postgres, end)
        rate = {
            "wal2lake capture": lambda: given.changes / ours(),
            "pg_recvlogical": lambda: given.changes / baseline(),
        }
        return common.verdict(common.alternate(rate, given.rounds), BAR)


def committed_end(postgres: EmbeddedPostgres) -> str:
    """The end LSN of the last transaction, as the server itself reads it from the slot."""
    options = f"'proto_version', '1', 'publication_names', '{common.PUBLICATION}'"
    return postgres.psql(f"SELECT max(lsn) FROM pg_logical_slot_peek_binary_changes('{ORIGIN}', NULL, NULL, {options})")


def capture(postgres: EmbeddedPostgres, folder: Path, end: str) -> float:
    """Seconds from connecting until the log holds everything up to ``end``, durably."""
    slot = copied_slot(postgres)
    source = SourceConfig(postgres.tcp_dsn, common.PUBLICATION, slot)
    config = Config(source, LogConfig(str(folder / slot)))
    stop = threading.Event()
    thread = threading.Thread(target=Capture(config).run, args=(stop,))
    began = time.perf_counter()
    thread.start()
    while thread.is_alive() and not ChangeLog.exists(folder / slot):
        time.sleep(0.01)
    log = ChangeLog.open(folder / slot)
    while thread.is_alive() and str(log.last_end_lsn) != end:
        time.sleep(0.02)
        log.refresh()
    seconds = time.perf_counter() - began
    stop.set()
    thread.join()
    assert str(log.last_end_lsn) == end, "capture ended early"
    return seconds


def recvlogical(postgres: EmbeddedPostgres, end: str) -> float:
    """Seconds that pg_recvlogical takes to read up to ``end`` and throw it away."""
    slot = copied_slot(postgres)
    command = [
        str(postgres.bin_dir / "pg_recvlogical"), "-d", postgres.tcp_dsn, "-S", slot, "--start", "--no-loop",
        "--endpos", end, "-f", "/dev/null", "-o", "proto_version=1", "-o", f"publication_names={common.PUBLICATION}",
    ]  # fmt: skip
    return common.timed(lambda: subprocess.run(command, check=True, capture_output=True))


def copied_slot(postgres: EmbeddedPostgres) -> str:
    name = f"copy_{next(_numbers)}"
    postgres.psql(f"SELECT pg_copy_logical_replication_slot('{ORIGIN}', '{name}')")
    return name
