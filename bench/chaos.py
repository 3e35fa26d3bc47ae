"""`python -m bench chaos --seeds 3`: whatever dies and whatever is done to the tables, the lake ends as the source.

For each seed a server with twelve tables, four connections that write, change definitions and the publication, and
`wal2lake run`, as soon as it streams (or after two minutes) under SIGKILL of any of its processes, crashes of the
server, cut connections and a disk that is full for a while. Then all that is left to the pipeline is time: every
published table must come to stream, hold what the server holds, by code that shares nothing with the product's, and by
`wal2lake verify`. Prints equal / seeds; `--seed N` runs that one alone, `--seconds` says how long each is disturbed.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import psycopg

from bench.chaos_run import Disk, PipelineRun
from bench.chaos_tables import SHAPES, filling
from bench.chaos_workload import CONNECTIONS, Writer
from bench.rows import difference
from wal2lake.testing.embedded import EmbeddedPostgres

_SETTINGS = {"logical_decoding_work_mem": "64kB", "max_locks_per_transaction": "256", "deadlock_timeout": "200ms"}
_DRAIN_S = 300.0
_CALM_S = 120.0
_CHANGE_EVERY_S = 3.0
_HARMS = {"process": 8, "run": 1, "server": 2, "connections": 3, "disk": 2}
_SCHEMAS = ("shop", "elsewhere")


def main(argv: list[str]) -> int:
    """Run the seeds and print what came of each; 0 when all ended equal."""
    chosen = _parser().parse_args(argv)
    seeds = [chosen.seed] if chosen.seed is not None else list(range(1, chosen.seeds + 1))
    equal = 0
    for seed in seeds:
        began = time.monotonic()
        words = _run(seed, chosen.seconds)
        print(f"seed {seed}, {time.monotonic() - began:.0f} s: {words or 'equal'}", flush=True)
        equal += words is None
    print(f"equal: {equal} / {len(seeds)}")
    return 0 if equal == len(seeds) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench chaos", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="how many, from 1 on (default: 3)")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--seconds", type=float, default=90.0, help="how long each is disturbed (default: 90)")
    return parser


def _run(seed: int, seconds: float) -> str | None:
    """How a seed ended otherwise than equal, in words."""
    folder = Path(tempfile.mkdtemp(prefix="wal2lake-chaos-"))
    try:
        with EmbeddedPostgres(settings=_SETTINGS) as server, Disk(folder / "log") as disk, ExitStack() as stack:
            _prepare(server, random.Random(seed), via_root=seed % 2 == 0)
            run = stack.enter_context(PipelineRun(server.dsn, folder, disk))
            writers = [
                Writer(server.dsn, f"{seed}/{number}", None if number else _CHANGE_EVERY_S)
                for number in range(CONNECTIONS)
            ]
            for writer in writers:
                writer.start()
            try:
                run.drain(server.psql("SELECT pg_current_wal_flush_lsn()"), _CALM_S)  # so that there is more to disturb
                done = _disturb(random.Random(seed), server, run, disk, seconds)
            finally:
                for writer in writers:
                    writer.finish()
            tried, failed = sum(w.transactions for w in writers), sum(w.failed for w in writers)
            print(f"seed {seed}: {dict(done)}; {tried} transactions, {failed} of them failed", flush=True)
            words = _judge(server, run)
            marked = sum(b'"deletionVector"' in path.read_bytes() for path in run.lake.glob("*/*/_delta_log/*.json"))
            print(f"seed {seed}: {marked} commits that marked rows", flush=True)
            return words
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _prepare(server: EmbeddedPostgres, dice: random.Random, *, via_root: bool) -> None:
    names = ", ".join(f'"{shape.name}"' for shape in SHAPES)
    server.psql(
        "CREATE SCHEMA shop; CREATE SCHEMA elsewhere; SET search_path TO shop;"
        f"{'; '.join(shape.create for shape in SHAPES)};"
        f"CREATE PUBLICATION pub FOR TABLE {names} WITH (publish_via_partition_root = {str(via_root).lower()})"
    )
    with psycopg.connect(server.dsn, options="-c search_path=shop") as connection:
        for shape in SHAPES:
            connection.execute(filling(shape, dice).encode())


def _disturb(
    dice: random.Random, server: EmbeddedPostgres, run: PipelineRun, disk: Disk, seconds: float
) -> Counter[str]:
    """Do harm at random moments; returns how often which."""
    done: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        run.tend(dice.uniform(2, 9))
        harm = dice.choices(list(_HARMS), list(_HARMS.values()))[0]
        if harm == "process":
            done[run.kill_one(dice)] += 1
        elif harm == "run":
            run.kill()
            done["run"] += 1
        elif harm == "server":
            server.stop(signal.SIGQUIT)
            run.tend(dice.uniform(0, 2))
            server.start()
            done["server"] += 1
        elif harm == "connections":
            server.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
            done["connections"] += 1
        elif disk.is_small:
            with disk.full():
                run.tend(dice.uniform(3, 6))
            done["disk"] += 1
    return done


def _judge(server: EmbeddedPostgres, run: PipelineRun) -> str | None:
    target = server.psql("SELECT pg_current_wal_flush_lsn()")
    late = run.drain(target, _DRAIN_S)
    with psycopg.connect(server.dsn) as connection:
        connection.execute("SET timezone TO 'UTC'; SET search_path TO shop")
        found = [difference(connection, str(run.lake), schema) for schema in _SCHEMAS]
    differences = [words for words in found if words is not None]
    verified = run.verify()
    if differences and not late and verified is None:
        return f"SILENT: {differences}"
    problems = [*([late] if late else []), *differences, *([verified] if verified else [])]
    return "; ".join(problems) or None
