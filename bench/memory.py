"""memory: the most that a process of `wal2lake pipeline` ever has, over one transaction of 5 M rows to one of 500,000.

Capture and pipeline run by themselves, each time with a database and a lake of their own, and land the transaction as
a mirror. Counted is the largest of the pipeline's Python processes, which are its driver and Spark's workers.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from bench.streamed import Site
from wal2lake.testing.embedded import EmbeddedPostgres

BAR = 1.5
ROWS, FEW = 5_000_000, 500_000


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench memory", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--few", type=int, default=FEW)
    given = parser.parse_args(argv)
    peaks = {}
    with EmbeddedPostgres() as postgres, tempfile.TemporaryDirectory(prefix="wal2lake-bench-") as folder:
        for rows in (given.few, given.rows):
            peaks[rows] = Site(postgres, Path(folder), f"rows_{rows}", streaming=True).landed(rows)
            print(f"one transaction of {rows:,} rows: {peaks[rows] >> 20} MB", flush=True)
    ratio = peaks[given.rows] / peaks[given.few]
    print(f"ratio: {ratio:.2f} (bar {BAR})")
    return 0 if ratio <= BAR else 1
