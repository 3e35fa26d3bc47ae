"""A small table that changes all the time: what its past takes on disk, kept by time alone and by time and bytes.

The times of `wal2lake.toml` are shortened so that a run of half a minute shows what a day would: a past of a minute is
kept, unless it takes more than so many bytes, but no file for less than a second. The ratio is the bytes that lie on
disk where only time counts to those where bytes do; the bar is what the bound in bytes must be worth.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench import common
from wal2lake.apply.fold import Folded
from wal2lake.sinks.delta import DeltaSink
from wal2lake.sinks.retention import Retention

BAR = 3.0
_SCHEMA = pa.schema([("id", pa.int64()), ("note", pa.string())])
_ROWS = 2500
_KEPT = {
    "time alone": Retention(seconds=60, bytes=1 << 40, min_seconds=1),
    "time and bytes": Retention(seconds=60, bytes=2 << 20, min_seconds=1),
}


def main(argv: list[str]) -> int:
    """`python -m bench hot [--versions N]`."""
    parser = argparse.ArgumentParser(prog="python -m bench hot", description=__doc__)
    parser.add_argument("--versions", type=int, default=600, help="commits to each table (600)")
    versions = parser.parse_args(argv).versions
    folder = Path(tempfile.mkdtemp(prefix="wal2lake-hot"))
    try:
        sizes = [_measure(folder / name.replace(" ", "-"), name, versions) for name in _KEPT]
    finally:
        shutil.rmtree(folder)
    return common.judge("ratio", sizes[0] / sizes[1], BAR)


def _measure(folder: Path, name: str, versions: int) -> int:
    """Change one row of the table, ``versions`` times; returns the bytes in its folder then."""
    rng = np.random.default_rng(1)
    sink = DeltaSink(str(folder), "bench", _KEPT[name])
    sink.commit_files(sink.write_files(_rows(rng, range(_ROWS)).to_batches(), _SCHEMA), 1, _SCHEMA, None)
    began = time.perf_counter()
    for lsn in range(1, versions + 1):
        if sink.merge(_update(rng, lsn % _ROWS), lsn + 1, lsn):
            sink.maintain()
    each = (time.perf_counter() - began) / versions
    sink.maintain()
    began = time.perf_counter()
    state = sink.state()
    opened = time.perf_counter() - began
    assert state is not None and state.applied_lsn == versions + 1 and sink.count_rows() == _ROWS
    disk = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    live = max(path.stat().st_size for path in folder.glob("*.parquet"))
    print(
        f"{name:15} {versions} versions, {each * 1e3:.0f} ms each: {disk / 1e6:.1f} MB on disk,"
        f" {live / 1e6:.2f} MB live, {disk / live:.0f} times; opened in {opened * 1e3:.0f} ms",
        flush=True,
    )
    return disk


def _rows(rng: np.random.Generator, ids: range) -> pa.Table:
    return pa.table([list(ids), [rng.bytes(24).hex() for _ in ids]], schema=_SCHEMA)


def _update(rng: np.random.Generator, number: int) -> Folded:
    rows = _rows(rng, range(number, number + 1))
    key = rows.select(["id"])
    return Folded(("id",), False, rows, key.slice(1), {}, key)
