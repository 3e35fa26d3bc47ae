"""capture-memory: the most memory that capture ever has, over one transaction of 5 M rows to one of 50,000.

Each by `wal2lake capture` with a database of its own and the settings that it has by default, of a server with its own.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from bench.streamed import Site
from wal2lake.testing.embedded import EmbeddedPostgres

BAR = 1.3
ROWS, FEW = 5_000_000, 50_000


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench capture-memory", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--few", type=int, default=FEW)
    parser.add_argument("--whole", action="store_true", help="with source.streaming off")
    given = parser.parse_args(argv)
    peaks = {}
    with EmbeddedPostgres() as postgres, tempfile.TemporaryDirectory(prefix="wal2lake-bench-") as folder:
        for rows in (given.few, given.rows):
            site = Site(postgres, Path(folder), f"rows_{rows}", streaming=not given.whole)
            peaks[rows] = site.capture_alone(rows)
            print(f"one transaction of {rows:,} rows: {peaks[rows] >> 20} MB", flush=True)
    ratio = peaks[given.rows] / peaks[given.few]
    print(f"ratio: {ratio:.2f} (bar {BAR})")
    return 0 if ratio <= BAR else 1
