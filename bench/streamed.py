"""Large transactions by turns: what is left to do when they commit, with `source.streaming` and without.

Some connections write by turns into a table of ten columns, each a transaction of its own with savepoints that are
rolled back. When the server has decoded what they wrote, half of the transactions are rolled back; of the others, two
are prepared before they are committed. The ratio is the time from the last COMMIT to its rows in the lake, streamed to
as it was, each with a capture, a pipeline and a database of their own; and `wal2lake verify` must find source and lake
equal. Beside it: the most memory that the capture ever had, to that of one that had a single transaction of a tenth of
the rows; and the most that one of the pipeline's Python workers had.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psycopg

from bench import common
from wal2lake.changelog.log import ChangeLog
from wal2lake.lsn import LSN
from wal2lake.sinks.delta import DeltaSink
from wal2lake.testing.embedded import EmbeddedPostgres

BAR, MEMORY_BAR = 0.5, 1.3
_PIECES = 10  # a transaction is written in so many statements; of some more, a savepoint is rolled back
_ROLLED_BACK = (3, 7)
_POLL_S = 0.05
_LOOK_S = 0.2
_FLUSHED = "-c synchronous_commit=on"  # decoding sees only that
_PATIENCE_S = 1800.0


@dataclass(frozen=True)
class Load:
    """So many transactions of so many rows each."""

    transactions: int
    rows: int


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench streamed", description=__doc__)
    parser.add_argument("--transactions", type=int, default=8)
    parser.add_argument("--rows", type=int, default=500_000, help="of each transaction")
    parser.add_argument("--work-mem", default="64MB", help="logical_decoding_work_mem, its default")
    parser.add_argument("--log-only", action="store_true", help="without Spark: until all is durable in the change log")
    given = parser.parse_args(argv)
    settings = {"logical_decoding_work_mem": given.work_mem, "max_prepared_transactions": "10"}
    load, folder = Load(given.transactions, given.rows), Path(tempfile.mkdtemp(prefix="wal2lake-bench-"))
    seconds, memory, equal = {}, {}, True
    with EmbeddedPostgres(settings=settings) as postgres:
        try:
            small = Site(postgres, folder, "small", streaming=True).capture_alone(given.rows // 10)
            for name, streaming in (("streamed", True), ("whole", False)):
                site = Site(postgres, folder, name, streaming=streaming)
                if given.log_only:
                    seconds[name], memory[name] = site.logged(load)
                else:
                    seconds[name], memory[name], verified = site.mirror(load)
                    equal &= verified
                    print(f"verify finds source and lake {'equal' if verified else 'DIFFERENT'}")
                mb = memory[name] >> 20
                print(f"{name}: {seconds[name]:.1f} s after the last COMMIT, capture's peak {mb} MB", flush=True)
        finally:
            shutil.rmtree(folder)
    growth, ratio = memory["streamed"] / small, seconds["streamed"] / seconds["whole"]
    print(f"capture's peak after one transaction of {given.rows // 10:,} rows: {small >> 20} MB")
    wider = common.judge("memory", growth, MEMORY_BAR, at_most=True)
    later = common.judge("ratio", ratio, BAR, at_most=True)
    return int(not equal) or wider or later


class Site:
    """A database with the table and its publication, a configuration, and the processes of wal2lake."""

    def __init__(self, postgres: EmbeddedPostgres, folder: Path, name: str, *, streaming: bool) -> None:
        postgres.psql(f"CREATE DATABASE {name}")
        self._dsn = postgres.dsn.replace("dbname=postgres", f"dbname={name}")
        self._folder = folder / name
        self._folder.mkdir()
        dsn = postgres.tcp_dsn.replace("dbname=postgres", f"dbname={name}")
        (self._folder / "wal2lake.toml").write_text(
            f"[source]\ndsn = {json.dumps(dsn)}\npublication = '{common.PUBLICATION}'\nslot = 'bench_{name}'\n"
            f"streaming = {str(streaming).lower()}\n"
        )
        postgres.psql(common.CREATE, database=name)
        self._sql(f"INSERT INTO {common.TABLE} SELECT {common.ROWS} FROM generate_series(1::bigint, 10) AS i")
        self._sink = DeltaSink(str(self._folder / "wal2lake/lake/public/bench"), "wal2lake")

    def capture_alone(self, rows: int) -> int:
        """The peak memory, in bytes, of a capture that has one transaction."""
        with self._running("capture") as capture:
            self._await_state("capture", "streaming")
            end = self._insert(rows)
            self._await(lambda: LSN.parse(self._said("capture")["durable_lsn"]) >= end)
            return _peak(capture.pid)

    def landed(self, rows: int) -> int:
        """The peak memory, in bytes, of the largest Python process of a pipeline that has one transaction."""
        with ExitStack() as stack:
            _, pipeline = (stack.enter_context(self._running(role)) for role in ("capture", "pipeline"))
            workers = stack.enter_context(_Workers(pipeline.pid))
            self._await_state("pipeline", "streaming")
            self._insert(rows)
            last = self._sql(f"UPDATE {common.TABLE} SET note = '' WHERE id = 1 RETURNING pg_current_wal_lsn()::text")
            self._await_applied(LSN.parse(last[0][0]))
            return max(workers.peak, _peak(pipeline.pid))

    def _insert(self, rows: int) -> int:
        """One transaction of so many rows; a position behind it."""
        self._sql(f"INSERT INTO {common.TABLE} SELECT {common.ROWS} FROM generate_series(11::bigint, {rows}) AS i")
        return LSN.parse(self._sql("SELECT pg_current_wal_lsn()::text")[0][0])

    def logged(self, load: Load) -> tuple[float, int]:
        """Seconds from the last COMMIT until all is durable in the change log, and the capture's peak memory."""
        with self._running("capture") as capture:
            self._await_state("capture", "streaming")
            last = _Transactions(self._dsn, load).run()
            return self._await_log(last), _peak(capture.pid)

    def mirror(self, load: Load) -> tuple[float, int, bool]:
        """Seconds from the last COMMIT to the lake, the capture's peak memory, and whether all is equal."""
        with ExitStack() as stack:
            capture, pipeline = (stack.enter_context(self._running(role)) for role in ("capture", "pipeline"))
            workers = stack.enter_context(_Workers(pipeline.pid))
            self._await_state("pipeline", "streaming")
            first = self._sql(f"UPDATE {common.TABLE} SET note = '' RETURNING pg_current_wal_lsn()::text")[0][0]
            self._await_applied(LSN.parse(first))  # the pipeline has begun
            last = _Transactions(self._dsn, load).run()
            committed = time.perf_counter()
            print(f"durable in the log after {self._await_log(last):.1f} s", flush=True)
            self._await_applied(last)
            seconds = time.perf_counter() - committed
            print(f"the pipeline's largest Python worker had {workers.peak >> 20} MB", flush=True)
            done = subprocess.run(self._command("verify"), cwd=self._folder, capture_output=True, check=False)
            return seconds, _peak(capture.pid), done.returncode == 0

    def _await_log(self, lsn: int) -> float:
        """Seconds until the log has what commits above ``lsn``."""
        began, log = time.perf_counter(), ChangeLog.open(self._folder / "wal2lake/log")
        while log.last_end_lsn <= lsn:
            time.sleep(_POLL_S)
            log.refresh()
        return time.perf_counter() - began

    def _await_applied(self, lsn: int) -> None:
        """Until the lake has it."""
        self._await(lambda: (state := self._sink.state()) is not None and state.applied_lsn > lsn)

    def _await_state(self, role: str, state: str) -> None:
        self._await(lambda: self._said(role).get("state") == state)

    def _said(self, role: str) -> dict[str, str]:
        try:
            return dict(json.loads((self._folder / f"wal2lake/log/status/{role}.json").read_bytes()))
        except (FileNotFoundError, ValueError):
            return {}

    @staticmethod
    def _await(condition: Callable[[], object]) -> None:
        end = time.monotonic() + _PATIENCE_S
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError("waited in vain")
            time.sleep(_POLL_S)

    def _sql(self, query: str) -> Sequence[tuple[str, ...]]:
        with psycopg.connect(self._dsn, autocommit=True, options=_FLUSHED) as connection:
            cursor = connection.execute(query.encode())
            return cursor.fetchall() if cursor.description else []

    def _command(self, role: str) -> list[str]:
        return [sys.executable, "-m", "wal2lake", role]

    @contextmanager
    def _running(self, role: str) -> Iterator[subprocess.Popen[bytes]]:
        with (self._folder / f"{role}.txt").open("ab") as said:
            process = subprocess.Popen(self._command(role), cwd=self._folder, stderr=said)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class _Transactions:
    """All transactions of a load at once, each in a thread and a session of its own."""

    def __init__(self, dsn: str, load: Load) -> None:
        self._dsn, self._load = dsn, load

    def run(self) -> int:
        """Write and end them; returns a position that is below the last one's commit record only."""
        with ExitStack() as stack:
            made = (psycopg.connect(self._dsn, options=_FLUSHED) for _ in range(self._load.transactions))
            sessions = [stack.enter_context(session) for session in made]
            threads = [threading.Thread(target=self._write, args=pair) for pair in enumerate(sessions)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self._await_decoded()
            return self._end(sessions)

    def _write(self, number: int, session: psycopg.Connection) -> None:
        size, first = self._load.rows // _PIECES, number * 2 * self._load.rows + 11
        for piece in range(_PIECES + len(_ROLLED_BACK)):
            at = first + piece * size
            rows = f"SELECT {common.ROWS} FROM generate_series({at}::bigint, {at + size - 1}) AS i"
            session.execute(f"SAVEPOINT s{piece}; INSERT INTO {common.TABLE} {rows}".encode())
            if piece in _ROLLED_BACK:
                session.execute(f"ROLLBACK TO SAVEPOINT s{piece}".encode())

    def _await_decoded(self) -> None:
        """Until the server has read the WAL so far for the slot, as it has long before a long transaction ends."""
        with psycopg.connect(self._dsn, autocommit=True) as other:
            row = other.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
            assert row is not None
            other.execute("SELECT pg_switch_wal()")  # flushed up to there
            query = "SELECT sent_lsn >= %s::pg_lsn FROM pg_stat_replication WHERE application_name = 'wal2lake capture'"
            while other.execute(query, row).fetchone() != (True,):
                time.sleep(_POLL_S)

    def _end(self, sessions: list[psycopg.Connection]) -> int:
        half = len(sessions) // 2
        for session in sessions[:half]:
            session.rollback()
        prepared = sessions[half : half + 2]
        for number, session in enumerate(prepared):
            session.execute(f"PREPARE TRANSACTION 'bench {number}'".encode())
        for session in sessions[half + 2 :]:
            session.commit()
        with psycopg.connect(self._dsn, autocommit=True, options=_FLUSHED) as other:
            below = 0
            for number in range(len(prepared)):
                row = other.execute("SELECT pg_current_wal_lsn()::text").fetchone()
                assert row is not None
                below = int(LSN.parse(row[0]))
                other.execute(f"COMMIT PREPARED 'bench {number}'".encode())
        return below


class _Workers(threading.Thread):
    """Looks for the most memory, in bytes, that a Python process below ``pid`` has had: ``peak``."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid, self._over, self.peak = pid, threading.Event(), 0

    def run(self) -> None:
        while not self._over.wait(_LOOK_S):
            for pid in _below(self._pid):
                with suppress(OSError, AssertionError):  # it has ended meanwhile
                    if Path(f"/proc/{pid}/exe").resolve().name.startswith("python"):
                        self.peak = max(self.peak, _peak(pid))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._over.set()
        self.join()


def _below(pid: int) -> list[int]:
    """The processes that ``pid`` started, and theirs."""
    started: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            parent = stat.read_text().rpartition(")")[2].split()[1]
            started.setdefault(int(parent), []).append(int(stat.parent.name))
    found = [pid]
    for known in found:
        found += started.get(known, [])
    return found[1:]


def _peak(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
