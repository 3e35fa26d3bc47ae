"""The whole way by one command: a server, a shop, its workload, the pipeline as a user runs it, and the proof.

Nothing here is made for the demonstration alone: the server is the one tests use, the children are those of
`wal2lake run`, and verify is `wal2lake verify`.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from rich.console import Console

from wal2lake.config import Config
from wal2lake.demo.workload import Workload
from wal2lake.errors import ConfigError
from wal2lake.monitor.progress import Progress, read_progress
from wal2lake.monitor.view import View
from wal2lake.run.supervisor import Supervisor
from wal2lake.run.verifying import show_report, verify_beside
from wal2lake.signals import on_signals
from wal2lake.testing.embedded import EmbeddedPostgres

_MARK = ".wal2lake-demo"
_TICK_S = 0.25
_START_S = 90.0  # longer than Spark's start and the snapshot take on a small machine


@dataclass(frozen=True)
class DemoOptions:
    """``seconds``: how long the workload goes on once every table is in the lake, which it does not wait for longer
    than _START_S; the draining comes after."""

    folder: Path = Path("demo")
    seconds: float = 60.0
    seed: int = 0


def run_demo(options: DemoOptions, console: Console) -> dict[str, Any]:
    """Run it all and return the summary: verified, tables, changes, changes_per_s, lag_s (at the workload's end)."""
    folder = _fresh_folder(options.folder)
    with EmbeddedPostgres() as server:
        console.print("PostgreSQL 18 is up; filling the shop.", highlight=False)
        server.psql((files("wal2lake.demo") / "schema.sql").read_text())
        config = shop_config(server.dsn, folder)
        supervisor = Supervisor(config)
        supervisor.start()
        try:
            return _Demo(options, config, supervisor, console).run()
        finally:
            with on_signals(supervisor.kill):
                supervisor.stop()


def shop_config(dsn: str, folder: Path) -> Config:
    """The configuration of the demonstration: everything below ``folder``."""
    return Config.from_dict(
        {
            "source": {"dsn": dsn, "slot": "wal2lake_demo"},
            "log": {"path": str(folder / "log")},
            "lake": {"path": str(folder / "lake")},
            "spark": {"spark.master": "local[2,4]"},
        }
    )


class _Demo:
    """One demonstration under way."""

    def __init__(self, options: DemoOptions, config: Config, supervisor: Supervisor, console: Console) -> None:
        self._options = options
        self._config = config
        self._supervisor = supervisor
        self._console = console

    def run(self) -> dict[str, Any]:
        workload = Workload(self._config.source.dsn, self._options.seed)
        workload.start()
        began = time.monotonic()
        ends = began + _START_S + self._options.seconds
        with View(self._console) as view:
            while time.monotonic() < ends and workload.is_alive():
                progress = self._tick(view)
                if progress.tables and all(table.state != "snapshot" for table in progress.tables):
                    ends = min(ends, time.monotonic() + self._options.seconds)
                time.sleep(_TICK_S)
            workload.finish()
        self._console.print(
            f"The workload has stopped after {workload.transactions:,} transactions; draining and verifying.",
            highlight=False,
        )
        report = verify_beside(self._config, self._console, self._tick)
        after = read_progress(self._config.log.path)
        show_report(report, self._console)
        for line in _how_to_query(Path(self._config.lake.path)).splitlines():
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        return {
            "verified": report.ok,
            "tables": len(report.tables),
            "changes": after.changes,
            "changes_per_s": round(after.changes / (time.monotonic() - began), 1),
            "lag_s": None if progress.lag_s is None else round(progress.lag_s, 2),
            "lake": self._config.lake.path,
        }

    def _tick(self, view: View | None = None) -> Progress:
        self._supervisor.tick()
        progress, note = self._supervisor.progress()
        if view is not None:
            view.show(progress, note)
        return progress


def _fresh_folder(folder: Path) -> Path:
    """Make the folder anew; only one that a demonstration made is ever removed."""
    folder = folder.absolute()
    if folder.exists() and any(folder.iterdir()):
        if not (folder / _MARK).exists():
            raise ConfigError(f"{folder} is not empty.", hint="Choose another place with --folder.")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MARK).touch()
    return folder


def _how_to_query(lake: Path) -> str:
    """Lines to paste into Python; a test pastes the first."""
    orders = lake / "shop" / "orders"
    return f"""
The Delta tables lie below {lake}. To query one with DuckDB:

  import deltalake, duckdb, pyarrow
  orders = pyarrow.table(deltalake.DeltaTable("{orders}").scan(columns=["status", "total"]))
  duckdb.sql("SELECT status, count(*), sum(total) FROM orders GROUP BY status").show()

With PySpark (the jar comes from Maven Central):

  from pyspark.sql import SparkSession
  spark = (
      SparkSession.builder.config("spark.jars.packages", "io.delta:delta-spark_4.2_2.13:4.4.0")
      .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
      .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
      .getOrCreate()
  )
  spark.read.format("delta").load("{orders}").groupBy("status").count().show()
"""
