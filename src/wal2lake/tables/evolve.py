"""Schema changes: the target follows before the rows that need it, or the table stops with the reason.

The log announces names and types; the catalog's attnum says what became of a column. A new attnum is a column added
(its older rows hold attmissingval, else NULL), a known one under another name is a rename, a known name under
another attnum was dropped and made anew. A dropped column stays in the target, NULL from then on. What was there
before it was published, or while it was not, never was in the log: there the table stops too.

A table may look as it did, and yet a column be another one. So the catalog is asked whenever the server announces the
table, which it does after every change, even if nothing seems new.

Source: PostgreSQL documentation, "pg_attribute"; "ALTER TABLE", notes on ADD COLUMN with a default and on rewriting.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

import pyarrow as pa

from wal2lake.apply.unify import widens
from wal2lake.columnar.copy_rows import decode_copy_rows
from wal2lake.columnar.types import ColumnType, TableColumn, TableSchema, column_type
from wal2lake.errors import RESYNC, SchemaChangeError
from wal2lake.login import Dsn
from wal2lake.postgres.catalog import PublishedTable, published_tables
from wal2lake.postgres.catalog_rows import CatalogRows, rows_in
from wal2lake.postgres.connection import Connection
from wal2lake.postgres.live_tables import LiveColumn, fast_default_row, live_columns, unique_keys
from wal2lake.tables.catalog_session import catalog_session
from wal2lake.tables.chunks import columns_as_read, require_columns
from wal2lake.tables.doubt import SAME_TEXTS, rewritten
from wal2lake.tables.landing import target_schema
from wal2lake.tables.state import Followed, SnapshotPlan
from wal2lake.tables.table import Table
from wal2lake.tables.target import Target

Fill = Mapping[str, "pa.Scalar"]


@dataclass(frozen=True, slots=True)
class SourceRelation:
    """Where to ask about a table, as it is now."""

    dsn: Dsn = field(repr=False)
    publication: str
    relation_id: int


@dataclass(frozen=True, slots=True)
class Present:
    """What the catalog says of a table by now: its columns by name, the greatest attnum when it was first read, and
    whether any of the files that it was read from is gone: then its rows were written anew, and not to the WAL.
    ``keys``: the sets of attnums of which the server sees to it that they name one row."""

    columns: Mapping[str, LiveColumn]
    attributes: int
    rewritten: bool
    keys: Collection[frozenset[int]] = ()


@dataclass(frozen=True, slots=True)
class Follower:
    """Brings one table's target to the schemas that the log announces."""

    table: Table
    source: SourceRelation

    def follow(self, versions: Sequence[TableSchema], start: int, end: int, *, announced: bool) -> Fill:
        """Bring the target to the newest of ``versions``, which come in this order in the batch (start, end];
        ``announced``: the server announced one in it, new or not. Returns what older rows hold in newer columns.

        Raises SchemaChangeError for what a target cannot follow, LockedError when somebody's lock is in the way.
        Doing it again changes nothing.
        """
        before = self.table.state.followed
        news = [schema for schema in versions if schema.digest not in before.digests]
        if not versions or not (news or announced or len(versions) > 1):
            return {}
        with catalog_session(self.source.dsn) as connection:
            oid = self.source.relation_id
            now = rows_in(connection, self.source.publication, [oid]).get(oid)
            present = self._present(connection, now)
            followed = before
            for schema in _not_yet_followed(versions, before, start, end):
                require_columns(schema)
                require_key(schema, self.table.plan)
                require_unique(schema, self.table.plan, present)
                followed = follow(followed, schema, present)
            fill = self._fill(connection, versions, present)
        self.require_no_doubt(now)
        for schema in news:
            adding = fill if self.table.target.mode == "mirror" else None
            self.table.target.sink().evolve(target_schema(schema, self.table.target), adding)
        if followed != before:
            self.table.follow(replace(followed, lsn=end))
        return fill

    def require_no_doubt(self, now: CatalogRows | None) -> None:
        """Raise SchemaChangeError if something may have been kept from the stream since the table was read.

        ``now``: None while it is not published; when it is back, other rows say so.
        """
        if now is not None and (reason := self.table.doubt(now)) is not None:
            raise SchemaChangeError(reason, hint=RESYNC, relation=str(self.table))

    def _present(self, connection: Connection, now: CatalogRows | None) -> Present:
        oid, noted = self.source.relation_id, self.table.state.rows
        anew = now is None or noted is None or rewritten(noted, now)
        keys = unique_keys(connection, oid)
        return Present(live_columns(connection, oid), self.table.plan.attributes, anew, keys)

    def _fill(self, connection: Connection, versions: Sequence[TableSchema], present: Present) -> dict[str, pa.Scalar]:
        """The fast defaults of younger columns; those without hold NULL in older rows unless these were rewritten."""
        # the newest version's columns that an older one, or the snapshot, did not have
        first = {column.name for column in self.table.plan.columns}
        common = first.intersection(*({column.name for column in schema.columns} for schema in versions))
        younger = [column.name for column in versions[-1].columns if column.name not in common]
        live = {name: present.columns[name] for name in younger if name in present.columns}
        wanted = [name for name, column in live.items() if column.fast_default]
        for name, column in live.items():
            if present.rewritten and column.given and not column.fast_default:
                message = "The table was rewritten since the column was added: what its rows hold never was in the WAL."
                _refuse(versions[-1], name, message)
        published = published_tables(connection, self.source.publication) if wanted else []
        table = next((table for table in published if table.relation_id == self.source.relation_id), None)
        return _fast_defaults(connection, table, wanted, self.table.target) if table is not None else {}


def _not_yet_followed(
    versions: Sequence[TableSchema], followed: Followed, start: int, end: int
) -> Sequence[TableSchema]:
    """A batch that is tried again, maybe as a part of a longer one, brings versions that are past."""
    if end <= followed.lsn:
        return ()
    digests, last = [schema.digest for schema in versions], followed.digests[-1]
    return versions[digests.index(last) :] if start < followed.lsn and last in digests else versions


def require_key(schema: TableSchema, plan: SnapshotPlan) -> None:
    """Rows must go on being named as they were when the table was first read."""
    columns = {column.name for column in schema.columns}
    named = {column.name for column in schema.columns if column.key}
    planned = set(plan.key) or {column.name for column in plan.columns if column.key and plan.replica_identity in "di"}
    if schema.replica_identity in "di" and named != planned:
        _refuse(schema, None, "The table's replica identity changed, so its rows are named by other columns now.")
    if not columns.issuperset(plan.key):
        _refuse(schema, sorted(set(plan.key) - columns)[0], "A column of the table's key is gone.")


def require_unique(schema: TableSchema, plan: SnapshotPlan, present: Present) -> None:
    """Where the server announces no key (identity FULL or NOTHING), the catalog says whether it still is one."""
    if schema.replica_identity in "di" or not plan.key or not present.columns:
        return
    if frozenset(column.attnum for column in plan.columns if column.name in plan.key) not in present.keys:
        _refuse(schema, None, f"The key ({', '.join(plan.key)}) is none any more: several rows may have the same.")


def follow(followed: Followed, schema: TableSchema, present: Present) -> Followed:
    """``followed`` after ``schema``; raises SchemaChangeError for what leaves in doubt what rows hold."""
    attnums, types = dict(followed.attnums), dict(followed.types)
    names = {column.name for column in schema.columns}
    gone = [name for name in attnums if name not in names and name not in followed.lapsed]
    for column in schema.columns:
        if column.name in attnums:
            _require_same(schema, column, followed, present)
        else:
            attnums[column.name] = _added(schema, column.name, attnums, gone, present)
        types[column.name] = column.type.oid, column.type.typmod
    _require_order(schema, followed)
    digests = (*(digest for digest in followed.digests if digest != schema.digest), schema.digest)
    return Followed(attnums, digests, types, (*followed.lapsed, *gone), followed.lsn)


def _require_order(schema: TableSchema, followed: Followed) -> None:
    """A Relation has its columns by attnum, so known ones in another order, or behind new ones, bear others' names."""
    known = [(followed.attnums.get(column.name), column.name) for column in schema.columns]
    before = 0
    for place, (attnum, name) in enumerate(known):
        if attnum is None:
            behind = next((other for later, other in known[place:] if later), None)
            if behind is not None:
                _refuse(schema, behind, "The column's name was another column's for a while.")
        elif attnum:
            if attnum < before:
                _refuse(schema, name, "The column's name was another column's for a while.")
            before = attnum


def _require_same(schema: TableSchema, column: TableColumn, followed: Followed, present: Present) -> None:
    """A column known by name is the one that it was, and older rows hold what they held."""
    name, now = column.name, present.columns.get(column.name)
    if now is not None and now.attnum != followed.attnums[name]:
        _refuse(schema, name, "The column was dropped and another of the same name was made.")
    if name in followed.lapsed:
        _refuse(
            schema, name, "The column is back after it was not published, and what it held then was not in the log."
        )
    before, after = followed.types.get(name), (column.type.oid, column.type.typmod)
    if present.rewritten and before not in (None, after) and not _keeps_values(before, column.type):
        _refuse(schema, name, "The column's type changed, and what the rewritten rows hold never was in the WAL.")


def _keeps_values(before: tuple[int, int] | None, after: ColumnType) -> bool:
    """Whether ALTER COLUMN TYPE leaves every value what it is in the lake; USING is beyond what anyone can see."""
    assert before is not None
    old = column_type(*before)
    if {old.oid, after.oid} <= SAME_TEXTS:
        return True
    narrowed = not pa.types.is_floating(old.arrow) and widens(after.arrow, old.arrow)
    return narrowed or widens(old.arrow, after.arrow)


def _added(schema: TableSchema, name: str, attnums: Mapping[str, int], gone: Sequence[str], present: Present) -> int:
    """The attnum of a column that is new, 0 when it is gone again."""
    now = present.columns.get(name)
    if gone and (now is None or not all(attnums[other] for other in gone)):
        _refuse(schema, name, "The column is new, another is gone, and both have changed since: which is which?")
    if now is None:
        return 0
    before = {attnum: other for other, attnum in attnums.items()}
    if now.attnum in before:
        _refuse(schema, name, f"The column {before[now.attnum]} was renamed.")
    if now.attnum <= present.attributes:
        _refuse(schema, name, "The column was there before it was published, and what it held then was not in the log.")
    return now.attnum


def _refuse(schema: TableSchema, column: str | None, message: str) -> NoReturn:
    raise SchemaChangeError(message, hint=RESYNC, relation=schema.qualified_name, column=column)


def _fast_defaults(
    connection: Connection, table: PublishedTable, names: Sequence[str], target: Target
) -> dict[str, pa.Scalar]:
    read = columns_as_read(table, target.text_columns, target.types)
    columns = [column for column in read if column.name in names]
    if not columns:
        return {}
    described = ((c.name, c.type_oid, c.typmod, c.base_oid, c.key) for c in columns)
    schema = TableSchema.build(table.relation_id, table.namespace, table.name, described, rules=target.types)
    row = fast_default_row(connection, table, columns)
    arrays = decode_copy_rows([row], schema.columns, str(table), unrepresentable=target.unrepresentable)
    return {column.name: array[0] for column, array in zip(columns, arrays, strict=True)}
