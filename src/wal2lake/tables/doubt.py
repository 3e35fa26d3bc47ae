"""Whether the lake still holds what the source holds, by the catalog rows that were noted and those of now: pure.

The rule: what was noted is of a moment at which the lake was known to be right. Whatever may have kept a change from
the stream since, or given rows other values without one, has left another version of some row; then nobody can know,
and the table is read anew. What changes no row of the lake (GRANT, OWNER, an index, ANALYZE, VACUUM, a new column that
rewrites nothing, a new partition) is none of that.

A table's file changes by TRUNCATE as well, which the stream tells, and by VACUUM FULL and CLUSTER, which change no row.
Of a table in the publication by its own name no other way is left: what gives its rows other values alters a column's
row too. Of others a file that changed must be the work of a Truncate of the stream (``unexplained``): they may have
been unlogged for a while, and of a partition's own TRUNCATE nothing is sent where the publication speaks of the root.

Source: PostgreSQL documentation, "ALTER TABLE", notes on rewriting; "CREATE PUBLICATION"; pgoutput_truncate in
src/backend/replication/pgoutput/pgoutput.c.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from wal2lake.postgres.catalog_rows import CatalogRows, ColumnRow, HeapFile

# text, varchar: the same characters in either, where no length cuts them, which rewrites
SAME_TEXTS: Final = {25, 1043}


def doubt(noted: CatalogRows, now: CatalogRows, *, history: bool = False) -> str | None:
    """Why the lake may differ, as a sentence; None when it cannot. ``history``: it holds changes, not the rows."""
    if not now.published:
        return None  # it has left, and nothing is said of it meanwhile; when it is back, other rows say so
    if noted.published != now.published:
        return "The table left the publication and came back, or what is published of it changed."
    return _of_partitions(noted, now) or (None if history else _of_values(noted, now))


def key_unsent(now: CatalogRows, key: Collection[str]) -> str | None:
    """Why a change of ``key`` may come without the old one, as a sentence: the root's Relation announces its key, and
    the partition's own replica identity decides what is sent. None where it cannot; one without any sends no changes.

    Source: ExtractReplicaIdentity in src/backend/access/heap/heapam.c; CheckCmdReplicaIdentity in execReplication.c.
    """
    for file in now.files:
        if file.link and file.identity not in ((), ("*",)) and not set(key) <= set(file.identity):
            return f"The partition {file.name} has a replica identity that lacks columns of the root's key."
    return None


def unexplained(noted: CatalogRows, now: CatalogRows, truncates: Collection[int] = ()) -> frozenset[tuple[int, int]]:
    """The files (OID, number) that changed by no Truncate of the stream, whose xids are ``truncates``."""
    if now.listed and len(now.files) == 1:
        return frozenset()
    before = {file.relation_id: file for file in noted.files}
    return frozenset(
        (file.relation_id, file.file)
        for file in now.files
        if not _is_first(file, before.get(file.relation_id)) and file.writer not in truncates
    )


def _of_partitions(noted: CatalogRows, now: CatalogRows) -> str | None:
    before = {file.relation_id: file for file in noted.files}
    after = {file.relation_id: file for file in now.files}
    if before.keys() - after.keys():
        return "A partition was detached or dropped, and its rows with it."
    for oid, file in after.items():
        if oid not in before and not file.born:
            return "A partition was attached, with rows that were never in the stream."
        if oid in before and before[oid].link != file.link:
            return "A partition was detached and attached again."
        if (before[oid].persistence if oid in before else "p") != file.persistence:
            return "The table, or a partition, was made UNLOGGED or LOGGED."
    return None


def _of_values(noted: CatalogRows, now: CatalogRows) -> str | None:
    before, after = ({column.attnum: column for column in rows.columns} for rows in (noted, now))
    both = [(before[attnum], after[attnum]) for attnum in before.keys() & after.keys()]
    for old, new in both:
        if old.name != new.name:
            return f"The column {old.name} was renamed."
    names = {column.name for column in noted.columns}
    for attnum in after.keys() - before.keys():
        if after[attnum].name in names:
            return f"The column {after[attnum].name} was dropped and another of the same name was made."
    altered = any(old.xmin != new.xmin for old, new in both) or bool(after.keys() - before.keys())
    if altered and rewritten(noted, now):
        return "The table was rewritten with other columns or types, and what its rows hold now was never in the WAL."
    if any(not _reads_the_same(old, new) for old, new in both):
        return "A column's type changed, and its values read otherwise now."
    if not set(now.labels).issuperset(noted.labels):
        return "A value of an enum was renamed, and rows that held it read otherwise now."
    return _of_composites(noted, now)


def _of_composites(noted: CatalogRows, now: CatalogRows) -> str | None:
    known = {attribute.split()[0] for attribute in noted.attributes}
    if {attribute for attribute in now.attributes if attribute.split()[0] in known} != set(noted.attributes):
        return "A composite type got or lost an attribute, and values of it read otherwise now."
    if not set(now.attribute_names).issuperset(noted.attribute_names):
        return "An attribute of a composite type was renamed."
    return None


def rewritten(noted: CatalogRows, now: CatalogRows) -> bool:
    """Whether some file is neither the noted one nor one that a new partition was made with."""
    before = {file.relation_id: file for file in noted.files}
    return any(not _is_first(file, before.get(file.relation_id)) for file in now.files)


def _is_first(file: HeapFile, before: HeapFile | None) -> bool:
    return file.first if before is None else file.file == before.file


def _reads_the_same(old: ColumnRow, new: ColumnRow) -> bool:
    """Of a type that changed and rewrote nothing: whether the lake's values are what they would be read as now."""
    return old.type_oid == new.type_oid or {old.type_oid, new.type_oid} <= SAME_TEXTS
