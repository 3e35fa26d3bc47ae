"""What lies on disk after many small batches spread over a table, of which no past is kept.

Each batch updates a hundred rows spread over the table; maintenance runs when the sink says that it is due, and once at
the end. Two tables, of about 60 MB and of about 1 MB. The ratio is the worse one's bytes on disk to its live bytes: the
bytes of the same rows in files of their own.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from bench import common
from bench.mirror_scale import SCHEMA, filled, spread
from wal2lake.sinks.delta import DeltaSink
from wal2lake.sinks.retention import Retention

BAR = 3.0
_ROWS = {"60 MB": 2_700_000, "1 MB": 45_000}
_CHANGES = 100


def main(argv: list[str]) -> int:
    """`python -m bench mirror-disk [--batches N] [--rewrite]`."""
    parser = argparse.ArgumentParser(prog="python -m bench mirror-disk", description=__doc__)
    parser.add_argument("--batches", type=int, default=200, help="of 100 rows each (200)")
    parser.add_argument("--rewrite", action="store_true", help="rewrite files, instead of marking rows")
    options = parser.parse_args(argv)
    worst = max(_measure(name, size, options.batches, not options.rewrite) for name, size in _ROWS.items())
    return common.judge("ratio", worst, BAR, at_most=True)


def _measure(name: str, size: int, batches: int, marks: bool) -> float:
    folder = Path(tempfile.mkdtemp(prefix="wal2lake-mirror-disk"))
    try:
        filled(folder / "t", size, marks)
        sink = DeltaSink(str(folder / "t"), "bench", Retention(0, 0, 0), deletion_vectors=marks)
        highest = 0
        for lsn in range(1, batches + 1):
            due = sink.merge(spread(size, _CHANGES, lsn), lsn + 1, lsn)
            highest = max(highest, _bytes(folder / "t"))
            if due:
                sink.maintain()
        sink.maintain()
        table = pa.table(DeltaTable(folder / "t").scan()).select(SCHEMA.names).cast(SCHEMA)
        assert table.num_rows == size
        live = sum(action.size for action in sink.write_files(table.to_batches(), SCHEMA))
        disk = _bytes(folder / "t") - live
    finally:
        shutil.rmtree(folder)
    said = f"{disk / 1e6:.2f} MB on disk, {highest / 1e6:.2f} MB at most meanwhile, {live / 1e6:.2f} MB live"
    print(f"{name:6} {batches} batches: {said}, {disk / live:.2f} times", flush=True)
    return disk / live


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
