"""What a batch of changes spread over a whole table costs a mirror, by the table's size.

A table of ten columns is filled; then so many rows, spread evenly over it, are updated in one batch, several times.
What counts is this process's CPU, all threads, from the fold to the durable commit; medians. The first batch of a
process makes or checks the key indexes, and is told apart. delta-rs's MERGE of the same batches, and with --rewrite a
sink that rewrites files, run on copies of the table. The ratio is the CPU of MERGE to ours on the largest table of up
to 20 M rows, the worse of the two kinds of batches; the lines before it say how ours grows with the table, which has
bars of its own.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from bench import common
from wal2lake.apply.fold import Folded
from wal2lake.sinks.delta import DeltaSink

BAR = 5.0
GROWTH = {20_000_000: 1.5, 60_000_000: 2.0}  # how many times more a table of so many rows may cost than the smallest
_MOST_MERGED = 20_000_000
_CHUNK = 1_000_000
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
    """A table of so many rows; but for the keys, each million is like the first."""
    sink = DeltaSink(str(folder), "bench", deletion_vectors=deletion_vectors)
    like = rows(np.arange(min(size, _CHUNK)), 0)
    batches: Iterator[pa.RecordBatch] = (
        batch for start in range(0, size, _CHUNK) for batch in _shifted(like.slice(0, size - start), start).to_batches()
    )
    sink.commit_files(sink.write_files(batches, SCHEMA), 1, SCHEMA, None)
    return sink


def _shifted(like: pa.Table, start: int) -> pa.Table:
    return like.set_column(0, SCHEMA.field(0), pa.array(np.arange(start, start + like.num_rows)))


def main(argv: list[str]) -> int:
    """`python -m bench mirror-scale [--rows 2 20 60] [--changes 200000 100] [--rounds 5] [--rewrite]`."""
    parser = argparse.ArgumentParser(prog="python -m bench mirror-scale", description=__doc__)
    parser.add_argument("--rows", type=float, nargs="+", default=[2, 20, 60], help="millions, ascending (2 20 60)")
    parser.add_argument("--changes", type=int, nargs="+", default=[200_000, 100], help="rows of a batch (200000 100)")
    parser.add_argument("--rounds", type=int, default=5, help="batches of each kind; medians count (5)")
    parser.add_argument("--rewrite", action="store_true", help="measure a sink that rewrites files as well")
    options = parser.parse_args(argv)
    sizes = [int(millions * 1e6) for millions in options.rows]
    merged = max([size for size in sizes if size <= _MOST_MERGED], default=sizes[0])
    folder = Path(tempfile.mkdtemp(prefix="wal2lake-mirror-scale"))
    try:
        ours = {size: filled(folder / str(size), size, True) for size in sizes}
        theirs = {"merged": partial(_by_merge, _copy(folder, merged, "merged"))}
        if options.rewrite:
            theirs["rewritten"] = partial(_by_sink, DeltaSink(_copy(folder, merged, "rewritten"), "bench"))
        seconds = _measure(ours, options.changes, options.rounds)
        for name, measure in theirs.items():
            for changes in options.changes:
                took = [measure(merged, changes, turn) for turn in range(-(-options.rounds // 2))]
                seconds[name, merged, changes] = statistics.median(took)
                _say(name, merged, changes, took)
    finally:
        shutil.rmtree(folder)
    return _verdict(seconds, sizes, merged, options.changes)


def _copy(folder: Path, size: int, name: str) -> str:
    shutil.copytree(folder / str(size), folder / name)
    return str(folder / name)


def _measure(ours: dict[int, DeltaSink], changes: Sequence[int], rounds: int) -> dict[tuple[str, int, int], float]:
    """Ours, the sizes by turns."""
    seconds: dict[tuple[str, int, int], float] = {}
    for size, sink in ours.items():
        print(
            f"first    {changes[-1]:9,} of {size:11,} rows: {_by_sink(sink, size, changes[-1], 0):8.3f} s CPU",
            flush=True,
        )
    for each in changes:
        took: dict[int, list[float]] = {size: [] for size in ours}
        for turn in range(rounds):
            for size, sink in ours.items():
                took[size].append(_by_sink(sink, size, each, turn + 1))
        for size in ours:
            seconds["marked", size, each] = statistics.median(took[size])
            _say("marked", size, each, took[size])
    return seconds


def _say(name: str, size: int, changes: int, took: Sequence[float]) -> None:
    told = ", ".join(f"{seconds:.3f}" for seconds in sorted(took))
    print(f"{name:8} {changes:9,} of {size:11,} rows: {statistics.median(took):8.3f} s CPU ({told})", flush=True)


def _by_sink(sink: DeltaSink, size: int, changes: int, turn: int) -> float:
    state, batch = sink.state(), spread(size, changes, turn)
    assert state is not None
    began = time.process_time()
    due = sink.merge(batch, state.applied_lsn + 1, state.applied_lsn)
    took = time.process_time() - began
    assert sink.count_rows() == size
    if due:
        sink.maintain()
    return took


def _by_merge(folder: str, size: int, changes: int, turn: int) -> float:
    batch = spread(size, changes, turn)
    began = time.process_time()
    merger = DeltaTable(folder).merge(batch.upserts, "t.id = s.id", source_alias="s", target_alias="t")
    merger.when_matched_update_all().when_not_matched_insert_all().execute()
    return time.process_time() - began


def _verdict(seconds: dict[tuple[str, int, int], float], sizes: list[int], merged: int, changes: Sequence[int]) -> int:
    missed = 0
    for batch in changes:
        for size in sizes[1:]:
            grown = seconds["marked", size, batch] / seconds["marked", sizes[0], batch]
            bar = next((most for rows, most in GROWTH.items() if size <= rows), max(GROWTH.values()))
            figure = f"{batch:,} changes of {size:,} rows, times those of {sizes[0]:,}"
            missed |= common.judge(figure, grown, bar, at_most=True)
    ratio = min(seconds["merged", merged, batch] / seconds["marked", merged, batch] for batch in changes)
    return common.judge("ratio", ratio, BAR) or missed
