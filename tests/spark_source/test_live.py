"""A real server's changes, captured live, through the typed stream into a Delta table of the user's own."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from tests.waiting import eventually
from wal2lake.capture import Capture
from wal2lake.changelog.log import ChangeLog
from wal2lake.config import Config
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = [pytest.mark.spark, pytest.mark.server]

_SETUP = """
CREATE SCHEMA live;
CREATE TYPE live.state AS ENUM ('new', 'paid');
CREATE TABLE live.orders (id bigint PRIMARY KEY, state live.state, total numeric(10,2), made timestamptz, note text);
ALTER TABLE live.orders ALTER COLUMN note SET STORAGE EXTERNAL;
CREATE PUBLICATION live FOR TABLE live.orders;
"""
_CHANGES = """
INSERT INTO live.orders VALUES (1, 'new', 12.50, '2024-02-29 12:00:00+02', repeat('x', 9000)),
    (2, 'new', NULL, NULL, '');
BEGIN; INSERT INTO live.orders VALUES (3, 'new', 1, NULL, NULL); ROLLBACK;
BEGIN; UPDATE live.orders SET state = 'paid' WHERE id = 1; UPDATE live.orders SET id = 20 WHERE id = 2; COMMIT;
DELETE FROM live.orders WHERE id = 20;
"""


def test_a_live_server_into_delta(server: EmbeddedPostgres, spark: SparkSession, tmp_path: Path) -> None:
    server.psql(_SETUP)
    log, out = str(tmp_path / "log"), str(tmp_path / "delta")
    source = {"dsn": server.dsn, "publication": "live", "slot": "live"}
    stop = threading.Event()
    capture = threading.Thread(
        target=Capture(Config.from_dict({"source": source, "log": {"path": log}})).run, args=(stop,)
    )
    capture.start()
    try:
        eventually(lambda: ChangeLog.exists(log), timeout_s=120)
        server.psql(_CHANGES)
        eventually(lambda: any(segment.commits for segment in ChangeLog.open(log).segments), timeout_s=120)
        stream = spark.readStream.format("wal2lake").option("log", log).option("table", "live.orders").load()
        query = stream.writeStream.foreachBatch(lambda batch, _: append(batch, out)).start()
        server.psql("UPDATE live.orders SET total = 13 WHERE id = 1; TRUNCATE live.orders")
        eventually(lambda: DeltaTable.is_deltatable(out) and len(rows(out)) == 8, alive=lambda: query.isActive)
        query.stop()
    finally:
        stop.set()
        capture.join()
        server.psql("SELECT pg_drop_replication_slot('live'); DROP PUBLICATION live; DROP SCHEMA live CASCADE")
    assert query.exception() is None
    assert rows(out) == [
        ("I", 1, "new", "12.50", [], []),
        ("I", 2, "new", None, [], []),
        ("U", 1, "paid", "12.50", ["note"], []),
        ("D", 2, None, None, [], ["state", "total", "made", "note"]),
        ("U", 20, "new", None, [], []),
        ("D", 20, None, None, [], ["state", "total", "made", "note"]),
        ("U", 1, "paid", "13.00", ["note"], []),
        ("T", None, None, None, [], ["id", "state", "total", "made", "note"]),
    ]


def append(batch: DataFrame, out: str) -> None:
    write_deltalake(out, batch.toArrow(), mode="append")


def rows(out: str) -> list[tuple[object, ...]]:
    table = pa.table(DeltaTable(out).to_pyarrow_table()).sort_by([("_lsn", "ascending"), ("_op", "ascending")])
    return [
        (r["_op"], r["id"], r["state"], r["total"] and str(r["total"]), r["_unchanged"], r["_unpublished"])
        for r in table.to_pylist()
    ]
