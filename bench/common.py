"""What the benchmarks share: the server, the ten-column table, its changes, alternating rounds and the verdict.

A benchmark runs ours and the baseline by turns on the same data, compares the medians, prints the ratio last and
exits with 1 when it is below the bar. Absolute figures drift from machine to machine; the ratio is what counts.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from wal2lake.testing.embedded import EmbeddedPostgres

PUBLICATION = "bench"
TABLE = "public.bench"
CHANGES = 1_500_000
TRANSACTIONS = 3
FIGURES = "WAL2LAKE_BENCH_FIGURES"  # the file that a report wants the figures in, as lines of JSON

CREATE = f"""
CREATE TABLE {TABLE} (
    id bigint PRIMARY KEY, customer int, name text, quantity int, price numeric(12,2), weight double precision,
    created timestamptz, note text, active bool, token uuid
);
CREATE PUBLICATION {PUBLICATION} FOR TABLE {TABLE};
"""
ROWS = """
    i, i * 7919 % 100000, 'customer name ' || i, (i % 1000)::int, (i % 1000000) / 100.0, sqrt(i),
    timestamptz '2024-01-01 00:00:00+00' + i * interval '1.234567 s', 'a note of middling length, number ' || i * 31,
    i % 3 = 0, md5(i::text)::uuid
"""


SERVER = {"shared_buffers": "512MB", "logical_decoding_work_mem": "2GB", "autovacuum": "off"}


def server() -> EmbeddedPostgres:
    """A server that is large enough not to be the subject."""
    return EmbeddedPostgres(settings=SERVER)


def create_table(postgres: EmbeddedPostgres) -> None:
    """The table of ten columns that every benchmark uses, and its publication."""
    postgres.psql(CREATE)


def insert_rows(postgres: EmbeddedPostgres, rows: int = CHANGES, transactions: int = TRANSACTIONS) -> None:
    """Insert that many rows, alike in every run, in that many transactions."""
    for part in range(transactions):
        first, last = rows * part // transactions + 1, rows * (part + 1) // transactions
        source = f"generate_series({first}::bigint, {last}) AS i"
        postgres.psql(f"SET synchronous_commit TO on; INSERT INTO {TABLE} SELECT {ROWS} FROM {source}")


def create_slot(postgres: EmbeddedPostgres, name: str) -> None:
    """A pgoutput slot at the present end of the WAL."""
    postgres.psql(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")


def one_core() -> None:
    """Let this process run on one core, pyarrow on one thread."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


def timed(work: Callable[[], object]) -> float:
    """Seconds that ``work`` takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def await_true(condition: Callable[[], bool], patience_s: float = 60.0) -> None:
    """Ask until it is so. Raises TimeoutError."""
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("waited in vain")
        time.sleep(0.02)


def alternate(contestants: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Let each measure itself once per round, by turns; print every round and return the median rates."""
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(1, rounds + 1):
        for name, measure in contestants.items():
            rates[name].append(measure())
        print(f"round {turn}: " + ", ".join(f"{name} {rates[name][-1]:,.0f}/s" for name in rates), flush=True)
    _note({"rates": rates})
    return {name: statistics.median(values) for name, values in rates.items()}


def verdict(medians: Mapping[str, float], bar: float) -> int:
    """Print the medians and, last, the ratio of the first to the second; 0 when it reaches the bar, else 1."""
    ours, baseline = medians.values()
    for name, rate in medians.items():
        print(f"median: {name} {rate:,.0f}/s")
    return judge("ratio", ours / baseline, bar)


def judge(figure: str, value: float, bar: float, *, at_most: bool = False) -> int:
    """Print the figure beside its bar; 0 when it is at least the bar (or ``at_most`` the bar), else 1."""
    print(f"{figure}: {value:.2f} (bar {bar:g})")
    _note({"figure": figure, "value": value, "bar": bar, "at_most": at_most})
    return 0 if (value <= bar if at_most else value >= bar) else 1


def _note(figure: dict[str, Any]) -> None:
    if path := os.environ.get(FIGURES):
        with open(path, "a") as file:
            file.write(json.dumps(figure) + "\n")
