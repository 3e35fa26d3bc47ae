"""Schema changes: the target follows before the rows that need it, or the table stops with the reason.

The log announces names and types; the catalog's attnum says what became of a column. A new attnum is a column added
(its older rows hold attmissingval, else NULL), a known one under another name is a rename, a known name under
another attnum was dropped and made anew. A dropped column stays in the target, NULL from then on.

Source: PostgreSQL documentation, "pg_attribute"; "ALTER TABLE", notes on ADD COLUMN with a default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NoReturn

import pyarrow as pa

from wal2lake.columnar.copy import decode_copy_rows
from wal2lake.columnar.types import TableSchema
from wal2lake.errors import RESYNC, SchemaChangeError
from wal2lake.postgres.catalog import PublishedTable, published_tables
from wal2lake.postgres.connection import Connection, connect
from wal2lake.postgres.tables import LiveColumn, fast_default_row, heap_files, live_columns
from wal2lake.spark.chunks import columns_as_read
from wal2lake.spark.landing import target_schema
from wal2lake.spark.table_folder import Followed, SnapshotPlan, TableFolder
from wal2lake.spark.target import Target

Fill = Mapping[str, "pa.Scalar"]


@dataclass(frozen=True, slots=True)
class Source:
    """Where to ask about a table, as it is now."""

    dsn: str
    publication: str
    relation_id: int


def follow_schemas(
    versions: Sequence[TableSchema], folder: TableFolder, plan: SnapshotPlan, target: Target, source: Source
) -> Fill:
    """Bring the target to the newest of ``versions`` (oldest first); returns what older rows hold in newer columns.

    Raises SchemaChangeError for what a target cannot follow. Doing it again changes nothing.
    """
    followed = folder.followed()
    news = [schema for schema in versions if schema.digest not in followed.digests]
    if not news and len(versions) <= 1:
        return {}
    with closing(connect(source.dsn, application_name="wal2lake pipeline")) as connection:
        live = live_columns(connection, source.relation_id)
        for schema in news:
            require_key(schema, plan)
            followed = follow(followed, schema, live)
        younger = _younger_columns(versions, {column.name for column in plan.columns})
        fill = _fill(connection, younger, live, plan, target, source)
    for schema in news:
        target.sink().evolve(target_schema(schema, target), fill if target.mode == "mirror" else None)
    if news:
        folder.follow(followed)
    return fill


def require_key(schema: TableSchema, plan: SnapshotPlan) -> None:
    """Rows must go on being named as they were when the table was first read."""
    columns = {column.name for column in schema.columns}
    named = {column.name for column in schema.columns if column.key}
    planned = set(plan.key) or {column.name for column in plan.columns if column.key and plan.replica_identity in "di"}
    if schema.replica_identity in "di" and named != planned:
        _refuse(schema, None, "The table's replica identity changed, so its rows are named by other columns now.")
    if not columns.issuperset(plan.key):
        _refuse(schema, sorted(set(plan.key) - columns)[0], "A column of the table's key is gone.")


def follow(followed: Followed, schema: TableSchema, live: Mapping[str, LiveColumn]) -> Followed:
    """``followed`` after ``schema``; raises SchemaChangeError for a rename and for a column made anew."""
    attnums = dict(followed.attnums)
    names = {column.name for column in schema.columns}
    gone = [name for name in attnums if name not in names]
    before = {attnum: name for name, attnum in attnums.items()}
    for name in names:
        now = live.get(name)
        if name in attnums:
            if now is not None and now.attnum != attnums[name]:
                _refuse(schema, name, "The column was dropped and another of the same name was made.")
        elif now is None and gone:
            _refuse(schema, name, "The column is new, another is gone, and both have changed since: which is which?")
        elif now is not None and now.attnum in before:
            _refuse(schema, name, f"The column {before[now.attnum]} was renamed.")
        else:
            attnums[name] = 0 if now is None else now.attnum
    return Followed(attnums, (*followed.digests, schema.digest))


def _refuse(schema: TableSchema, column: str | None, message: str) -> NoReturn:
    raise SchemaChangeError(message, hint=RESYNC, relation=schema.qualified_name, column=column)


def _younger_columns(versions: Sequence[TableSchema], first: set[str]) -> list[str]:
    """The newest version's columns that an older one, or the snapshot, did not have."""
    common = first.intersection(*({column.name for column in schema.columns} for schema in versions))
    return [column.name for column in versions[-1].columns if column.name not in common]


def _fill(
    connection: Connection,
    names: Sequence[str],
    live: Mapping[str, LiveColumn],
    plan: SnapshotPlan,
    target: Target,
    source: Source,
) -> dict[str, pa.Scalar]:
    """The fast defaults of ``names``; a column without one holds NULL in older rows unless the table was rewritten."""
    wanted = [name for name in names if name in live and (live[name].fast_default or live[name].computed)]
    if not wanted:
        return {}
    published = published_tables(connection, source.publication)
    table = next((table for table in published if table.relation_id == source.relation_id), None)
    if table is None:
        return {}
    rewritten = heap_files(connection, [source.relation_id])[source.relation_id] != plan.heap
    for name in wanted:
        if rewritten and not live[name].fast_default:
            raise SchemaChangeError(
                "The table was rewritten when the column was added, so what its rows hold there never was in the WAL.",
                hint=RESYNC,
                relation=str(table),
                column=name,
            )
    return _fast_defaults(connection, table, [name for name in wanted if live[name].fast_default], target)


def _fast_defaults(
    connection: Connection, table: PublishedTable, names: Sequence[str], target: Target
) -> dict[str, pa.Scalar]:
    columns = [column for column in columns_as_read(table, target.text_columns) if column.name in names]
    if not columns:
        return {}
    described = ((c.name, c.type_oid, c.typmod, c.base_oid, c.key) for c in columns)
    schema = TableSchema.build(table.relation_id, table.namespace, table.name, described)
    row = fast_default_row(connection, table, columns)
    lenient = target.unrepresentable == "null"
    arrays = decode_copy_rows([row], schema.columns, str(table), lenient=lenient)
    return {column.name: array[0] for column, array in zip(columns, arrays, strict=True)}
