"""The typed stream of one table: the envelope, ``_unpublished``, then the table's columns as last announced.

A column's NULL in a row of the stream is one of three, and the row says which: it is NULL in the source; it is
unchanged TOAST (named in ``_unchanged``); or the source did not send it (named in ``_unpublished``: the column did not
exist yet, a delete carries only the key, a truncate carries nothing).

A query's schema is fixed when it starts. Rows from before a column was added, dropped or widened fit in; what a row
has and the schema lacks stops the query, unless the table has lost it since.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from operator import attrgetter

import pyarrow as pa
import pyarrow.compute as pc

from wal2lake.apply.envelope import ENVELOPE, envelope, envelope_schema
from wal2lake.apply.unify import widens
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.plan import Extent
from wal2lake.columnar.types import TableSchema
from wal2lake.errors import ConfigError, SchemaChangeError
from wal2lake.tables.committed import CommittedChanges, DecodeRules, open_log, read_extent

PARTITION_ROWS = 100_000  # a partition takes extents until it has about so many log rows

TableName = tuple[str, str]
ExtentGroup = tuple[Extent, ...]

_UNPUBLISHED = pa.field("_unpublished", pa.list_(pa.string()))
_OWN = {*ENVELOPE.names, _UNPUBLISHED.name}


def typed_schema(log: ChangeLog, table: TableName, end: int | None, rules: DecodeRules) -> pa.Schema:
    """The stream's columns by the table's newest Relation among the transactions up to ``end`` (None: all).

    Raises ConfigError when the log has not seen the table, SchemaChangeError when a name is taken twice.
    """
    known = newest_schemas(log, log.last_end_lsn if end is None else end, rules)
    newest = _of_table(known, table)
    if newest is None:
        names = ", ".join(sorted({schema.qualified_name for schema in known})) or "none yet"
        raise ConfigError(
            f"The change log has no table {table[0]}.{table[1]}.",
            hint=f"It learns of a table by its first change. Known: {names}.",
        )
    return _typed(newest)


def newest_schemas(log: ChangeLog, end: int, rules: DecodeRules) -> list[TableSchema]:
    """Every relation as it was last announced in the transactions that end at or below ``end``.

    A segment knows what its session of the stream announced before it, and each session begins with nothing: so the
    segments are asked from the newest on, each for what no later one knows.
    """
    found: dict[int, TableSchema] = {}
    for segment in reversed(log.segments):
        if not segment.commits or segment.first_commit_end_lsn > end:
            continue
        known = {news.oid: news.row for news in reversed(segment.announced) if news.kind == "R"}
        known |= dict.fromkeys(log.relations_before(segment), 0)
        if known.keys() <= found.keys():
            continue
        commits = log.transactions(segment.previous_end_lsn, min(end, segment.last_commit_end_lsn))
        seen = Extent(segment.seq, 0, commits["last_row"][-1].as_py() + 1)
        for oid in sorted(oid for oid, row in known.items() if oid not in found and row < seen.row_stop):
            run = log.relation_runs(seen, oid)[-1]
            found[oid] = rules.schema(run)
    return list(found.values())


def _of_table(known: Sequence[TableSchema], table: TableName) -> TableSchema | None:
    """A table that was made anew is the newest of its name."""
    found = [schema for schema in known if (schema.namespace, schema.name) == table]
    return max(found, key=lambda schema: schema.relation_id, default=None)


def plan_typed(log: ChangeLog, table: TableName, start: int, end: int) -> list[ExtentGroup]:
    """The range's extents that may hold changes of the table, in order, grouped for about PARTITION_ROWS each."""
    groups: list[list[Extent]] = []
    size = PARTITION_ROWS
    for extent in log.plan(start, end):
        if not _relations(log, extent, table):
            continue
        if size >= PARTITION_ROWS:
            groups.append([])
            size = 0
        groups[-1].append(extent)
        size += extent.row_stop - extent.row_start
    return [tuple(group) for group in groups]


def end_within_rows(log: ChangeLog, table: TableName, start: int, end: int, max_rows: int) -> int:
    """The farthest end LSN of a transaction such that (start, it], within (start, end], has ``max_rows`` changes of the
    table at most; one transaction with changes of it goes in whatever its size."""
    reached, left = start, max_rows
    for segment in log.segments[bisect_right(log.segments, start, key=attrgetter("end_lsn")) :]:
        step = min(end, segment.end_lsn)
        if step <= reached:
            continue
        if (rows := _count_rows(log, table, reached, step)) > left:
            ends = log.transactions(reached, step)["end_lsn"].to_pylist()
            counted = partial(_count_rows, log, table, reached)
            fit = bisect_right(ends, left, key=counted)
            if left == max_rows and (not fit or not counted(ends[fit - 1])):
                fit += 1  # nothing of the table went in yet
            return int(ends[fit - 1]) if fit else reached
        reached, left = step, left - rows
    return reached


def _count_rows(log: ChangeLog, table: TableName, start: int, end: int) -> int:
    """The table's changes in (start, end]."""
    return sum(
        sum(log.counts(extent)[relation_id].values())
        for extent in log.plan(start, end)
        for relation_id in _relations(log, extent, table)
    )


def read_typed(
    log_path: str,
    table: TableName,
    extents: Sequence[Extent],
    span: tuple[int, int],
    target: pa.Schema,
    rules: DecodeRules,
) -> Iterator[pa.RecordBatch]:
    """The table's changes in ``extents``, which lie in the range ``span``, as batches of exactly ``target``.

    Raises SchemaChangeError when the changes do not fit ``target``, and whatever read_extent raises.
    """
    log = open_log(log_path)
    transactions = log.transactions(*span)
    for extent in extents:
        for relation_id in _relations(log, extent, table):
            for found in read_extent(log, extent, relation_id, transactions, rules):
                if (found.changes.schema.namespace, found.changes.schema.name) == table:
                    yield from _conform(log, found, target, rules).to_batches()


def _relations(log: ChangeLog, extent: Extent, table: TableName) -> list[int]:
    """The relations with changes in the extent that bear the name there (a table made anew has another OID)."""
    return [
        relation_id
        for relation_id in sorted(log.counts(extent))
        if any((r.relation.namespace, r.relation.name) == table for r in log.relation_runs(extent, relation_id))
    ]


def _typed(schema: TableSchema) -> pa.Schema:
    shape = envelope_schema(schema)
    if _UNPUBLISHED.name in schema.arrow_schema.names:
        raise SchemaChangeError(
            f"The typed stream has a column {_UNPUBLISHED.name} of its own.",
            hint="Rename the table's column, or leave it out of the publication's column list.",
            relation=schema.qualified_name,
        )
    return shape.insert(len(ENVELOPE), _UNPUBLISHED)


def _conform(log: ChangeLog, found: CommittedChanges, target: pa.Schema, rules: DecodeRules) -> pa.Table:
    schema = found.changes.schema
    _check_no_loss(log, schema, target, rules)
    key = [column.name for column in schema.columns if column.key]
    rows = envelope(found.changes, found.commits, key)
    rows = rows.append_column(_UNPUBLISHED, _unpublished(rows["_op"], schema, target))
    columns = [_column(rows, field, schema) for field in target]
    return pa.table(columns, schema=target)


def _column(rows: pa.Table, field: pa.Field, schema: TableSchema) -> pa.ChunkedArray:
    if field.name not in rows.column_names:
        return pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
    column = rows[field.name]
    if field.name not in _OWN and column.type != field.type and not widens(column.type, field.type):
        raise SchemaChangeError(
            f"The column is {column.type} in the log and {field.type} in the query.",
            hint="Start the query again to take the table's present type. If the log has both, read what is older"
            " by a batch read with endingLsn, then start a new query at that startingLsn.",
            relation=schema.qualified_name,
            column=field.name,
        )
    return column.cast(field.type)


def _check_no_loss(log: ChangeLog, schema: TableSchema, target: pa.Schema, rules: DecodeRules) -> None:
    """A column that the query lacks was either added since the query began, or dropped by the table since."""
    extra = [column.name for column in schema.columns if column.name not in target.names]
    if not extra:
        return
    newest = _of_table(newest_schemas(log, log.last_end_lsn, rules), (schema.namespace, schema.name))
    present = {column.name for column in newest.columns} if newest else set()
    if added := [name for name in extra if name in present]:
        raise SchemaChangeError(
            "The table has a column that it did not have when the query started.",
            hint="Start the query again: it goes on where it stopped, with the column.",
            relation=schema.qualified_name,
            column=added[0],
        )


def _unpublished(op: pa.ChunkedArray, schema: TableSchema, target: pa.Schema) -> pa.ChunkedArray:
    """Per row the target's columns that the source did not send; one of three lists, by the row's kind."""
    mine = {column.name: column for column in schema.columns}
    columns = [name for name in target.names if name not in _OWN]
    absent = [name for name in columns if name not in mine]
    # a delete carries the whole row under REPLICA IDENTITY FULL, else the key
    full = schema.replica_identity == "f"
    unsent = [name for name in columns if name not in mine or not (full or mine[name].key)]
    lists = pa.array([absent, unsent, columns], _UNPUBLISHED.type)
    return lists.take(pc.if_else(pc.equal(op, "T"), 2, pc.if_else(pc.equal(op, "D"), 1, 0)))
