"""Control rows: what a batch holds, in one constant schema for any number of tables, without its data.

One row says: in segment ``seq``, rows ``row_start`` ≤ row < ``row_stop`` belong to committed transactions of the
batch (``start_lsn``, ``end_lsn``] and hold so many changes of this relation, all under the schema ``schema_digest``.
Every row of a batch has the batch's own bounds, so every table can be brought to the same end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.plan import Extent
from wal2lake.tables.committed import DecodeRules, open_log
from wal2lake.tables.failures import reading_log

CONTROL_SCHEMA = pa.schema(
    [
        ("relation_id", pa.int64()),
        ("namespace", pa.string()),
        ("table", pa.string()),
        ("schema_digest", pa.string()),
        ("seq", pa.int64()),
        ("row_start", pa.int64()),
        ("row_stop", pa.int64()),
        ("inserts", pa.int64()),
        ("updates", pa.int64()),
        ("deletes", pa.int64()),
        ("truncates", pa.int64()),
        ("start_lsn", pa.int64()),
        ("end_lsn", pa.int64()),
    ]
)
_COUNTS = {"I": "inserts", "U": "updates", "D": "deletes", "T": "truncates"}


def read_control(log_path: str, start: int, end: int, rules: DecodeRules) -> Iterator[pa.RecordBatch]:
    """The control rows of all transactions with ``start`` < end LSN ≤ ``end``: one batch, or none."""
    rows = list(control_rows(open_log(log_path), start, end, rules))
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=CONTROL_SCHEMA)


def control_rows(log: ChangeLog, start: int, end: int, rules: DecodeRules) -> Iterator[dict[str, Any]]:
    """One row per extent, relation and schema version, in the log's order."""
    bounds = {"start_lsn": int(start), "end_lsn": int(end)}
    with reading_log(log.storage.where):
        for extent in log.plan(start, end):
            for relation_id in sorted(counts := log.counts(extent)):
                for row in _relation_rows(log, extent, relation_id, counts[relation_id], rules):
                    yield row | bounds


def _relation_rows(
    log: ChangeLog, extent: Extent, relation_id: int, counts: Mapping[str, int], rules: DecodeRules
) -> Iterator[dict[str, Any]]:
    """Rows are counted again only where the schema changed amid the extent."""
    runs = log.relation_runs(extent, relation_id)
    for run in runs:
        part = Extent(extent.seq, run.row_start, run.row_stop)
        mine = counts if len(runs) == 1 else log.counts(part).get(relation_id)
        if mine:
            schema = rules.schema(run)
            yield {
                "relation_id": relation_id,
                "namespace": schema.namespace,
                "table": schema.name,
                "schema_digest": schema.digest,
                "seq": part.seq,
                "row_start": part.row_start,
                "row_stop": part.row_stop,
            } | {name: mine.get(kind, 0) for kind, name in _COUNTS.items()}
