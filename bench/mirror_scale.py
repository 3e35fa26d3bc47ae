"""What a batch of changes spread over a whole table costs a mirror, by the table's size: rows marked, files rewritten.

A table of ten columns is filled; then so many rows, spread evenly over it, are updated in one batch, several times: by
a sink that marks rows in deletion vectors, by one that rewrites files, and by delta-rs's MERGE, each on a table of its
own with the same rows. What counts is this process's CPU, all threads, from the fold to the durable commit; medians.
The ratio is the CPU of MERGE to that of marking on the largest table. Lines before it tell how marking grows from the
smallest table to the largest.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from wal2lake.apply.fold import Folded
from wal2lake.sinks.delta import DeltaSink

BAR = 5.0
_CHUNK = 500_000
SCHEMA = pa.schema(
    {
        "id": pa.int64(), "customer": pa.int32(), "name": pa.string(), "quantity": pa.int32(),
        "price": pa.decimal128(12, 2), "weight": pa.float64(), "created": pa.timestamp("us", "UTC"),
        "note": pa.string(), "active": pa.bool_(), "token": pa.string(),
    }
)  # fmt: skip


def rows(ids: Any, turn: int) -> pa.Table:
    """The table's rows of these ids; ``turn`` makes the values others."""
    ids = pa.array(ids, pa.int64())
    plain = ids.to_numpy()
    text = ids.cast(pa.string())
    strings = [pc.binary_join_element_wise(word, text, f"-{turn}") for word in ("customer", "a note on", "t")]
    price = pa.array((plain % 1_000_000).astype(np.int32)).cast(pa.decimal128(12, 2))
    columns = [
        ids, plain * 7919 % 100_000, strings[0], plain % 1000, price,
        np.sqrt(plain + turn), pa.array(plain * 1_234_567, pa.timestamp("us", "UTC")), strings[1],
        pa.array(plain % 3 == 0), strings[2],
    ]  # fmt: skip
    return pa.table([pa.array(column).cast(field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


def spread(size: int, changes: int, turn: int) -> Folded:
    """Updates of so many rows of a table of ``size``, evenly spread, others each turn."""
    ids = np.unique(np.linspace(turn, size - 1, changes).astype(np.int64))
    come = rows(ids, turn + 1)
    return Folded(("id",), False, come, come.select(["id"]).slice(0, 0), {}, come.select(["id"]))


def filled(folder: Path, size: int, deletion_vectors: bool) -> DeltaSink:
    """A table of so many rows."""
    sink = DeltaSink(str(folder), "bench", deletion_vectors=deletion_vectors)
    batches: Iterator[pa.RecordBatch] = (
        batch
        for start in range(0, size, _CHUNK)
        for batch in rows(range(start, min(start + _CHUNK, size)), 0).to_batches()
    )
    sink.commit_files(sink.write_files(batches, SCHEMA), 1, SCHEMA, None)
    return sink


def main(argv: list[str]) -> int:
    """`python -m bench mirror-scale [--rows 2 20] [--changes 200000 100] [--rounds 3]`."""
    parser = argparse.ArgumentParser(prog="python -m bench mirror-scale", description=__doc__)
    parser.add_argument("--rows", type=float, nargs="+", default=[2, 20], help="millions, ascending (2 20)")
    parser.add_argument("--changes", type=int, nargs="+", default=[200_000, 100], help="rows of a batch (200000 100)")
    parser.add_argument("--rounds", type=int, default=3, help="batches of each kind; medians count (3)")
    options = parser.parse_args(argv)
    sizes = [int(millions * 1e6) for millions in options.rows]
    seconds: dict[tuple[str, int, int], float] = {}
    for size in sizes:
        folder = Path(tempfile.mkdtemp(prefix="wal2lake-mirror-scale"))
        try:
            for name, measure in _contestants(folder, size, options.rounds).items():
                for changes in options.changes:
                    seconds[name, size, changes] = measure(changes)
                    print(
                        f"{name:8} {changes:9,} of {size:11,} rows: {seconds[name, size, changes]:8.3f} s CPU",
                        flush=True,
                    )
        finally:
            shutil.rmtree(folder)
    return _verdict(seconds, sizes, options.changes)


def _contestants(folder: Path, size: int, rounds: int) -> dict[str, Callable[[int], float]]:
    marks = filled(folder / "marked", size, True)
    copies = {name: folder / name for name in ("rewritten", "merged")}
    for copy in copies.values():
        shutil.copytree(folder / "marked", copy)
    rewrites = DeltaSink(str(copies["rewritten"]), "bench")
    return {
        "marked": lambda changes: _median(rounds, lambda turn: _by_sink(marks, size, changes, turn)),
        "rewritten": lambda changes: _median(rounds, lambda turn: _by_sink(rewrites, size, changes, turn)),
        "merged": lambda changes: _median(rounds, lambda turn: _by_merge(copies["merged"], size, changes, turn)),
    }


def _median(rounds: int, measure: Callable[[int], float]) -> float:
    return statistics.median(measure(turn) for turn in range(rounds))


def _by_sink(sink: DeltaSink, size: int, changes: int, turn: int) -> float:
    state, batch = sink.state(), spread(size, changes, turn)
    assert state is not None
    began = time.process_time()
    sink.merge(batch, state.applied_lsn + 1, state.applied_lsn)
    took = time.process_time() - began
    assert sink.count_rows() == size
    return took


def _by_merge(folder: Path, size: int, changes: int, turn: int) -> float:
    batch = spread(size, changes, turn)
    began = time.process_time()
    merger = DeltaTable(folder).merge(batch.upserts, "t.id = s.id", source_alias="s", target_alias="t")
    merger.when_matched_update_all().when_not_matched_insert_all().execute()
    return time.process_time() - began


def _verdict(seconds: dict[tuple[str, int, int], float], sizes: list[int], changes: list[int]) -> int:
    first, last = sizes[0], sizes[-1]
    for batch in changes:
        grown = seconds["marked", last, batch] / seconds["marked", first, batch]
        print(f"{batch:,} changes: marked in {last:,} rows costs {grown:.2f} times what it costs in {first:,}")
    ratio = min(seconds["merged", last, batch] / seconds["marked", last, batch] for batch in changes)
    print(f"ratio: {ratio:.2f} (bar {BAR})")
    return 0 if ratio >= BAR else 1
