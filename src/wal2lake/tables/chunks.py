"""How a table is cut into chunks, and which are left to read: pure functions over the word of catalog and log.

A chunk is a range of heap blocks. Ranges hold as long as the heap is the same one: TRUNCATE, VACUUM FULL, CLUSTER and
rewriting ALTERs give the table a new file and move rows without an event, so they make the plan void (``heap``), as a
change of columns does (``shape``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from wal2lake.apply.fold import key_columns
from wal2lake.columnar.types import FIRST_RULES, TableSchema, TypeRules
from wal2lake.errors import RESYNC, SchemaChangeError
from wal2lake.names import qualified
from wal2lake.tables.doubt import key_unsent
from wal2lake.tables.state import Chunk, PlannedColumn, SnapshotPlan, new_plan_id

if TYPE_CHECKING:
    from wal2lake.postgres.catalog import CatalogColumn, PublishedTable
    from wal2lake.postgres.catalog_rows import CatalogRows

BLOCK_BYTES = 8192


def plan_chunks(blocks: int, chunk_bytes: int, parallelism: int) -> tuple[Chunk, ...]:
    """Equal ranges of about ``chunk_bytes``, the last one open-ended, so blocks that come later are read too.

    More than one are rounded up to a multiple of ``parallelism``: no core waits for another's last chunk.
    """
    wanted = -(-blocks * BLOCK_BYTES // chunk_bytes)
    count = 1 if wanted <= 1 else min(blocks, -(-wanted // parallelism) * parallelism)
    starts = [blocks * number // count for number in range(count)]
    ends: list[int | None] = [*starts[1:], None]
    return tuple(Chunk(number, start, end) for number, (start, end) in enumerate(zip(starts, ends, strict=True)))


def plan_snapshot(
    table: PublishedTable,
    heap: str,
    chunk_bytes: int,
    parallelism: int,
    text_columns: Collection[str] = (),
    types: TypeRules = FIRST_RULES,
) -> SnapshotPlan:
    """A new plan for ``table``, whose heap files are ``heap`` now, and whose columns land by ``types``."""
    return SnapshotPlan(
        plan_id=new_plan_id(),
        relation_id=table.relation_id,
        replica_identity=table.replica_identity,
        shape=table_shape(table, text_columns, types),
        heap=heap,
        digest=table_schema(table, types).digest,
        key=mirror_key(table),
        columns=tuple(
            PlannedColumn(c.name, c.attnum, c.type_oid, c.typmod, c.base_oid, c.key)
            for c in columns_as_read(table, text_columns, types)
        ),
        chunks=plan_chunks(table.blocks, chunk_bytes, parallelism),
        attributes=table.attributes,
        blocks=table.blocks,
    )


def chunk_bytes(plan: SnapshotPlan, chunk: Chunk) -> int:
    """Of a plan made before sizes were noted, nothing is known of the last one."""
    end = plan.blocks if chunk.block_to is None else chunk.block_to
    return max(0, end - chunk.block_from) * BLOCK_BYTES


def still_holds(
    plan: SnapshotPlan,
    table: PublishedTable,
    heap: str,
    text_columns: Collection[str] = (),
    types: TypeRules = FIRST_RULES,
) -> bool:
    """Whether chunks read under ``plan`` may be kept beside chunks read now."""
    return (plan.relation_id, plan.shape, plan.heap) == (
        table.relation_id,
        table_shape(table, text_columns, types),
        heap,
    )


def mirror_key(table: PublishedTable) -> tuple[str, ...]:
    """The columns that identify a row in the mirror; () when only whole rows do."""
    return key_columns(table_schema(table), table.primary_key) if table.key_published else ()


def columns_as_read(
    table: PublishedTable, text_columns: Collection[str], types: TypeRules = FIRST_RULES
) -> tuple[CatalogColumn, ...]:
    """The columns as COPY shall select them: by their output function ``text_columns`` (schema.table.column), which
    have no type then, and what ``types`` knows no binary form of."""
    return tuple(
        replace(column, type_oid=0, base_oid=0, as_text=True)
        if qualified(table.namespace, table.name, column.name) in text_columns
        else replace(
            column, as_text=not types.column(column.name, column.type_oid, column.typmod, column.base_oid).binary
        )
        for column in table.columns
    )


def require_columns(schema: TableSchema) -> None:
    """Raise SchemaChangeError for a table of rows of nothing: no lake table can hold them, nothing tells them apart."""
    if not schema.columns:
        raise SchemaChangeError(
            "The table has no column that is published, and a lake table cannot hold rows without columns.",
            hint=f"Give it a column, or take it out of the publication. {RESYNC}",
            relation=schema.qualified_name,
        )


def require_sent_keys(plan: SnapshotPlan, rows: CatalogRows) -> None:
    """Raise SchemaChangeError where keys of the table may change unheard."""
    if (why := key_unsent(rows, plan.key)) is not None:
        raise SchemaChangeError(
            f"{why} Where only those change, the stream does not say which row it was.",
            hint="Give the partition the root's replica identity, or FULL (ALTER TABLE … REPLICA IDENTITY; of a root it"
            f" does not reach the partitions). {RESYNC}",
            relation=rows.name,
        )


def planned_schema(plan: SnapshotPlan, namespace: str, name: str, types: TypeRules = FIRST_RULES) -> TableSchema:
    """The columns that the snapshot's files have."""
    described = ((c.name, c.type_oid, c.typmod, c.base_oid, c.key) for c in plan.columns)
    return TableSchema.build(plan.relation_id, namespace, name, described, plan.replica_identity, rules=types)


def table_schema(table: PublishedTable, types: TypeRules = FIRST_RULES) -> TableSchema:
    """The table as the log announces it."""
    described = ((c.name, c.type_oid, c.typmod, c.base_oid, c.key) for c in table.columns)
    identity = table.replica_identity
    return TableSchema.build(table.relation_id, table.namespace, table.name, described, identity, rules=types)


def table_shape(table: PublishedTable, text_columns: Collection[str] = (), types: TypeRules = FIRST_RULES) -> str:
    """Changes exactly when the columns, by names and attnums, the key or the rows that are published do, or what the
    columns become."""
    read = replace(table, columns=columns_as_read(table, text_columns, types))
    attnums = [column.attnum for column in table.columns]
    content = (table_schema(read, types).digest, attnums, mirror_key(table), table.row_filter)
    return hashlib.sha256(repr(content).encode()).hexdigest()[:16]
