"""iceberg: the same changes from the change log into Iceberg and into Delta tables, as histories and as mirrors.

Each has a slot, a log and a lake of its own; the log has the whole backlog when Spark, which is up, begins. The backlog
is read in several batches, so that commits count as well as rows: eight of ten changes update a row anywhere in the
table, one inserts, one deletes. The mirrors are compared with the source by verify, the histories with each other.
Delta's mirror rewrites files too: what marking them saves is `python -m bench mirror-scale`'s subject.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from bench import common
from bench.capture import ORIGIN, committed_end
from bench.mirror import Load, change
from wal2lake.capture import run_capture
from wal2lake.changelog.log import ChangeLog
from wal2lake.config import Config, LakeConfig, LogConfig, Mode, PipelineConfig, SourceConfig
from wal2lake.lsn import LSN
from wal2lake.sinks.factory import open_sink
from wal2lake.spark.pipeline import run_pipeline
from wal2lake.spark.session import build_session
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.verify import verify

BAR = 0.5  # of the histories
_BATCH = 8 << 20  # bytes of the log
_FORMATS = ("iceberg", "delta")


def main(argv: list[str]) -> int:
    """Run the benchmark; 0 if the histories' bar is met and all is equal."""
    parser = argparse.ArgumentParser(prog="python -m bench iceberg", description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000, help="of the table (%(default)s)")
    parser.add_argument("--changes", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(argv)
    logging.getLogger("wal2lake").setLevel(logging.ERROR)
    spark = build_session(Config())
    try:
        ratios = {mode: _measure(spark, mode, given) for mode in ("mirror", "append")}
    finally:
        spark.stop()
    print(f"mirror: {ratios['mirror']:.2f} of Delta's copy on write")
    return common.judge("ratio", ratios["append"], BAR)


def _measure(spark: SparkSession, mode: Any, given: argparse.Namespace) -> float:
    """How fast Iceberg is, as a part of Delta."""
    with common.server() as postgres, tempfile.TemporaryDirectory(prefix="wal2lake-bench-") as folder:
        common.create_table(postgres)
        common.insert_rows(postgres, given.rows)
        common.create_slot(postgres, ORIGIN)
        turns = [(kind, turn) for turn in range(given.rounds) for kind in _FORMATS]
        made = [
            _prepared(postgres, Path(folder, f"{kind}{turn}"), f"{kind}_{turn}", mode, kind) for kind, turn in turns
        ]
        change(postgres, Load("", given.changes, given.changes // 30, 0), given.rows)
        end = LSN.parse(committed_end(postgres))
        for config in made:
            _captured(config, end)
        configs = {kind: iter([c for c in made if c.lake.format == kind]) for kind in _FORMATS}
        print(f"{mode}: {given.changes:,} changes of {given.rows:,} rows", flush=True)
        rates = {kind: partial(_rate, spark, configs[kind], given.changes) for kind in _FORMATS}
        medians = common.alternate(rates, given.rounds)
        _require_equal(spark, mode, made[: len(_FORMATS)], end)
    return medians["iceberg"] / medians["delta"]


def _prepared(postgres: EmbeddedPostgres, folder: Path, slot: str, mode: Mode, kind: str) -> Config:
    """A pipeline that has its slot, its log and the table's snapshot."""
    config = Config(
        source=SourceConfig(postgres.tcp_dsn, common.PUBLICATION, slot),
        log=LogConfig(str(folder / "log")),
        lake=LakeConfig(str(folder / "lake"), mode, kind, deletion_vectors=False),
        pipeline=PipelineConfig(max_bytes_per_trigger=_BATCH),
    )
    with _capturing(config):
        run_pipeline(config, available_now=True)
    return config


class _capturing:
    """Capture in a thread."""

    def __init__(self, config: Config) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=run_capture, args=(config, self._stop))

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *failure: object) -> None:
        self._stop.set()
        self._thread.join()


def _captured(config: Config, end: int) -> None:
    def durable() -> bool:
        return ChangeLog.open(config.log.path).last_end_lsn >= end

    with _capturing(config):
        common.await_true(durable, 300)


def _rate(spark: SparkSession, configs: Iterator[Config], changes: int) -> float:
    """Changes a second, from the start of the query to the last commit."""
    config = next(configs)
    work: Callable[[], object] = partial(run_pipeline, config, available_now=True)
    return changes / common.timed(work)


def _require_equal(spark: SparkSession, mode: str, configs: list[Config], end: int) -> None:
    for config in configs:
        state = open_sink(config.lake, config.pipeline.name, *common.TABLE.split(".")).state()
        assert state is not None and state.applied_lsn >= end, f"{config.lake.format} stands at {state}"
    if mode == "mirror":
        for config in configs:
            report = verify(config, spark, timeout_s=5)
            assert report.ok, f"{config.lake.format}: {report}"
            print(f"equal by verify: {config.lake.format}, {report.tables[0].rows_lake:,} rows", flush=True)
    else:
        iceberg, delta = map(_history, configs)
        assert iceberg.equals(delta), "the histories differ"
        print(f"equal histories: {delta.num_rows:,} rows", flush=True)


def _history(config: Config) -> pa.Table:
    place = f"{config.lake.path}/{common.TABLE.replace('.', '/')}"
    if config.lake.format == "delta":
        rows = pa.table(DeltaTable(place).scan())
    else:
        catalog = load_catalog("wal2lake", type="sql", uri=f"sqlite:///{config.lake.path}/_catalog.db")
        rows = catalog.load_table(common.TABLE).scan().to_arrow()
    names = ["_op", "_lsn", "_xid", "id", "note", "quantity"]
    kinds = pa.schema([("_op", pa.string()), *((name, pa.int64()) for name in ("_lsn", "_xid", "id")),
                       ("note", pa.string()), ("quantity", pa.int32())])  # fmt: skip
    return rows.select(names).cast(kinds).sort_by([("_lsn", "ascending"), ("id", "ascending")])
