"""Reading one table's committed changes out of the log: what an executor task does, without a JVM."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from wal2lake.apply.envelope import Commits
from wal2lake.changelog.in_force import RelationRun
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.plan import Extent
from wal2lake.columnar.cells import Policy
from wal2lake.columnar.changes import Changes, decode_changes
from wal2lake.columnar.types import FIRST_RULES, TableSchema, TypeRules
from wal2lake.pgoutput.messages import Relation, Type
from wal2lake.tables.failures import reading_log
from wal2lake.urls import shown

CHUNK_ROWS = 65_536  # log rows decoded at a time: larger chunks only leave the caches, and fault in fresh memory


_of_thread = threading.local()  # a ChangeLog is not for several threads, and Spark's driver runs tasks in some


@dataclass(frozen=True, slots=True)
class DecodeRules:
    """What [pipeline] says of values without a place in the lake's types, see PipelineConfig for both; and by which
    ``types`` the table was read."""

    unrepresentable: Policy = "error"
    text_columns: tuple[str, ...] = ()
    types: TypeRules = FIRST_RULES

    def schema(self, run: RelationRun) -> TableSchema:
        """The table as the log announces it; the very same object for what was announced in the same words."""
        named = {column.type_oid for column in run.relation.columns}
        types = tuple((oid, announced) for oid, announced in run.types.items() if oid in named)
        return _schema(run.relation, types, self.text_columns, self.types)


@lru_cache(4096)  # it costs as much as the decoding of hundreds of changes
def _schema(
    relation: Relation, types: tuple[tuple[int, Type], ...], text_columns: tuple[str, ...], rules: TypeRules
) -> TableSchema:
    return TableSchema.from_relation(relation, dict(types), text_columns, rules)


@dataclass(frozen=True, slots=True)
class CommittedChanges:
    """N changes of one table under one schema, and how each committed (``changes.xid``: by which transaction)."""

    changes: Changes
    commits: Commits


def read_extent(
    log: ChangeLog,
    extent: Extent,
    relation_id: int,
    transactions: pa.Table,
    rules: DecodeRules | None = None,
) -> Iterator[CommittedChanges]:
    """The relation's changes in one extent; ``transactions`` is the log's index of a range that encloses it.

    One item per schema version and CHUNK_ROWS; Truncates that name the relation are rows of kind 'T'. The same extent
    gives the same rows however often it is read. Raises LogCorruptError, LogMismatchError (it is no longer held),
    ProtocolError, UnrepresentableError.
    """
    rules = rules or DecodeRules()
    with reading_log(log.storage.where):
        if relation_id not in log.counts(extent):
            return
        part = log.read_relation(extent, relation_id)
        runs = log.relation_runs(extent, relation_id)
    for run in runs:
        schema = rules.schema(run)
        start, stop = part.between(run.row_start - extent.row_start, run.row_stop - extent.row_start)
        for first in range(start, stop, CHUNK_ROWS):
            rows = (first, min(first + CHUNK_ROWS, stop))
            changes = decode_changes(part.batch, schema, rows, unrepresentable=rules.unrepresentable)
            if len(changes):
                yield CommittedChanges(changes, Commits.of(changes.xid, transactions))


def open_log(path: str) -> ChangeLog:
    """The log as it is now; a Python worker that Spark uses again has read most of its metadata already.

    Unless another log stands in its place by now, of which it has read nothing.
    """
    with reading_log(shown(path)):
        log = ChangeLog.open(path)
        opened: dict[str, ChangeLog] = _of_thread.__dict__
        if path not in opened or opened[path].identity != log.identity:
            opened[path] = log
        opened[path].refresh()
        return opened[path]
