"""Do readers that are not ours read a table with deletion vectors right? Rows, keys and sums, after random batches.

Three tables of 40,000 rows (a key of one column; of two, of which one is text; no key at all) take fifty random batches
that mark, rewrite and join, and a checkpoint; what they must hold is kept beside. Each reader that can be had reads
them: delta-rs's query engine and its scan, Polars, DuckDB over that scan, Spark with Delta (its jar comes from Maven
Central), DuckDB's own extension (which it fetches). pyarrow's datasets must refuse them. Prints equal / readers; what
cannot be had is told, and counts for nothing.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyspark
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaProtocolError

from wal2lake.apply.fold import Folded, FoldedRows
from wal2lake.config import Config
from wal2lake.sinks.delta import DeltaSink
from wal2lake.sinks.retention import Retention
from wal2lake.spark.session import build_session

SCHEMA = pa.schema({"id": "i8", "part": "str", "v": "i4", "note": "str", "at": pa.timestamp("us", "UTC")})
KEYS = {"one": ("id",), "two": ("part", "id"), "none": ()}
ROWS = 40_000
Read = Callable[[str], pa.Table]


def main(argv: list[str]) -> int:
    """`python -m bench readers [--batches N] [--seed N]`."""
    parser = argparse.ArgumentParser(prog="python -m bench readers", description=__doc__)
    parser.add_argument("--batches", type=int, default=50, help="of each table (50)")
    parser.add_argument("--seed", type=int, default=1, help="of the random batches (1)")
    options = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="wal2lake-readers"))
    try:
        expected = {name: _made(folder / name, key, options) for name, key in KEYS.items()}
        readers = {name: _judged(name, read, folder, expected) for name, read in READERS.items()}
        readers["pyarrow"] = all(_refuses(str(folder / name)) for name in KEYS)
    finally:
        shutil.rmtree(folder)
    had = [equal for equal in readers.values() if equal is not None]
    print(f"equal: {sum(had)} / {len(had)} readers")
    return 0 if all(had) else 1


def rows(ids: list[int], value: int) -> pa.Table:
    """Rows of these ids; a third of the texts are NULL."""
    notes = [None if i % 3 == 0 else f"a note on {i}, written as {value}" for i in ids]
    at = pa.array([i * 1_000_003 for i in ids], pa.timestamp("us", "UTC"))
    return pa.table([ids, [f"part é {i % 7}" for i in ids], [value] * len(ids), notes, at], schema=SCHEMA)


def _made(folder: Path, key: tuple[str, ...], options: argparse.Namespace) -> dict[int, int]:
    """A table after random batches; returns id → v of its rows."""
    dice = random.Random(f"{options.seed}{key}")
    sink = DeltaSink(str(folder), "bench", Retention(0, 0, 0), deletion_vectors=True)
    held = dict.fromkeys(range(ROWS), 0)
    sink.commit_files(sink.write_files(rows(list(held), 0).to_batches(), SCHEMA), 1, SCHEMA, None)
    for lsn in range(1, options.batches + 1):
        changed = dice.sample(sorted(held), dice.choice([1, 40, 900]))
        gone, come = changed[: len(changed) // 4], [*changed[len(changed) // 4 :], ROWS + lsn]
        before = {i: held.pop(i) for i in changed}
        held |= dict.fromkeys(come, lsn)
        due = sink.merge(_batch(key, before, gone, come, lsn), lsn + 1, lsn)
        if due or lsn % 17 == 0:
            sink.maintain()
    table = DeltaTable(folder)
    vectors = len(list(folder.glob("*.bin")))
    marked = sum(table.get_add_actions().column("num_records").to_pylist()) - len(held)
    print(
        f"{folder.name}: {len(held):,} rows, {marked:,} marked, version {table.version()}, {vectors} files of vectors"
    )
    return held


def _batch(
    key: tuple[str, ...], before: dict[int, int], gone: list[int], come: list[int], value: int
) -> Folded | FoldedRows:
    new = rows(come, value)
    if key:
        return Folded(key, False, new, rows(gone, 0).select(key), {}, new.select(key))
    old = pa.concat_tables([rows([i], was) for i, was in before.items()])
    return FoldedRows(False, pa.concat_tables([old, new]), np.repeat([-1, 1], [len(before), len(come)]))


def _judged(name: str, read: Read, folder: Path, expected: dict[str, dict[int, int]]) -> bool | None:
    """Whether the reader reads all tables right; None where there is no such reader here."""
    for table, held in expected.items():
        try:
            found = read(str(folder / table))
        except Exception as error:  # noqa: BLE001  whatever a reader that is not ours may say
            print(f"{name}: not here: {type(error).__name__}: {' '.join(str(error).split())[:160]}", flush=True)
            return None
        wanted = pa.concat_tables(
            [rows([i for i, v in held.items() if v == value], value) for value in {*held.values()}]
        )
        right = found.select(SCHEMA.names).cast(SCHEMA).sort_by("id").equals(wanted.sort_by("id"))
        said = f"{found.num_rows:,} rows, sum {sum(found['v'].to_pylist()):,}"
        print(f"{name}: {table}: {said}: {'equal' if right else f'NOT EQUAL, {len(held):,} rows were'}", flush=True)
        if not right:
            return False
    return True


def _refuses(uri: str) -> bool:
    try:
        DeltaTable(uri).to_pyarrow_dataset()
    except DeltaProtocolError:
        return True
    print("pyarrow: read a table with vectors that it does not know")
    return False


def _by_query(uri: str) -> pa.Table:
    return pa.table(QueryBuilder().register("t", DeltaTable(uri)).execute("SELECT * FROM t"))


def _by_duckdb(uri: str) -> pa.Table:
    with duckdb.connect() as connection:
        connection.register("rows", pa.table(DeltaTable(uri).scan()))
        return connection.sql("SELECT * FROM rows").arrow().read_all()


def _by_extension(uri: str) -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute("INSTALL delta; LOAD delta")
        return connection.sql(f"SELECT * FROM delta_scan('{uri}')").arrow().read_all()


def _by_spark(uri: str) -> pa.Table:
    version = ".".join(pyspark.__version__.split(".")[:2])
    settings = {
        "spark.jars.packages": f"io.delta:delta-spark_{version}_2.13:4.4.0",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    spark = build_session(Config(spark=settings))
    return spark.read.format("delta").load(uri).toArrow()


READERS: dict[str, Read] = {
    "delta-rs, scan": lambda uri: pa.table(DeltaTable(uri).scan()),
    "delta-rs, SQL": _by_query,
    "Polars": lambda uri: polars.scan_delta(uri).collect().to_arrow(),
    "DuckDB over delta-rs": _by_duckdb,
    "DuckDB's extension": _by_extension,
    "delta-spark": _by_spark,
}
