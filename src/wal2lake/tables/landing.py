"""A snapshot's files become the table: one commit when one snapshot read them all, else a few, each done once.

The rule: every commit carries an LSN of its own, the last of them the log's start, so whoever dies in between is
continued by doing all of it again: a sink passes over what it has applied. Newer chunks win: rows of their keys are
deleted from what older snapshots read before their files are committed. That goes in parts of so many rows, for their
keys are held in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from wal2lake.apply.envelope import envelope_schema
from wal2lake.apply.fold import Folded
from wal2lake.columnar.types import TableSchema
from wal2lake.postgres.snapshot import SnapshotIdentity
from wal2lake.sinks.base import FileAction, Sink, TargetError
from wal2lake.tables.chunks import planned_schema
from wal2lake.tables.state import DoneChunk, Landed, SnapshotPlan
from wal2lake.tables.table import Table
from wal2lake.tables.target import Target

PART_ROWS = 4_000_000


@dataclass(frozen=True, slots=True)
class SnapshotFiles:
    """Files that one snapshot read."""

    snapshot: SnapshotIdentity
    actions: list[FileAction]


def land_snapshot(table: Table, name: tuple[str, str], lsn: int) -> None:
    """Commit the finished chunks of the table's plan so that it stands at ``lsn``; doing it again changes nothing."""
    plan, target = table.plan, table.target
    chunks = sorted(table.folder.chunks(plan.plan_id).values(), key=lambda chunk: chunk.number)
    stages = stages_of(chunks)
    schema = planned_schema(plan, *name)
    parts = [part for stage in stages[1:] for part in parts_of(stage)]
    commit_stages(target.sink(), [stages[0], *parts], plan, target_schema(schema, target), lsn)
    converges = max(stage.snapshot.bound_lsn for stage in stages) if len(stages) > 1 else 0
    table.land(Landed(plan.plan_id, lsn, tuple(stage.snapshot for stage in stages), converges))


def target_schema(schema: TableSchema, target: Target) -> pa.Schema:
    """The lake table's columns: the source table's, in append mode behind the envelope's."""
    return envelope_schema(schema) if target.mode == "append" else schema.arrow_schema


def stages_of(chunks: Sequence[DoneChunk]) -> list[SnapshotFiles]:
    """The chunks' files by the snapshot that read them, oldest first."""
    stages: dict[SnapshotIdentity, SnapshotFiles] = {}
    for chunk in chunks:
        stage = stages.setdefault(chunk.snapshot, SnapshotFiles(chunk.snapshot, []))
        stage.actions.extend(chunk.actions)
    return sorted(stages.values(), key=lambda stage: (stage.snapshot.bound_lsn, stage.snapshot.xmax))


def parts_of(stage: SnapshotFiles) -> list[SnapshotFiles]:
    """The stage in parts of about PART_ROWS rows. No two rows of a snapshot have one key, so any order will do."""
    parts, rows = [SnapshotFiles(stage.snapshot, [])], 0
    for action in stage.actions:
        if rows >= PART_ROWS:
            parts.append(SnapshotFiles(stage.snapshot, []))
            rows = 0
        parts[-1].actions.append(action)
        rows += action.rows
    return parts


def commit_stages(sink: Sink, stages: Sequence[SnapshotFiles], plan: SnapshotPlan, schema: pa.Schema, lsn: int) -> None:
    """Commit the oldest files, then for each later stage delete the keys it read, and commit its files.

    The first bears the plan's id: a table that stands at the same LSN by another snapshot is replaced like any other.
    The 2n − 1 commits of n stages take the last LSNs up to ``lsn``: below the log's start, where nothing else is.
    """
    assert plan.key or len(stages) == 1, "rows without a key cannot come from several snapshots"
    at = lsn - 2 * (len(stages) - 1)
    standing = _standing(sink, lsn)
    sink.commit_files(stages[0].actions, at, schema, standing, replace=standing is not None, plan_id=plan.plan_id)
    for stage in stages[1:]:
        sink.merge(_deletes(sink, stage, plan.key, schema), at + 1, at)
        sink.commit_files(stage.actions, at + 2, schema, at + 1)
        at += 2


def _standing(sink: Sink, lsn: int) -> int | None:
    """Where the target stands: nowhere, within these commits, or where an earlier log left it, to be replaced."""
    state = sink.state()
    if state is not None and state.applied_lsn > lsn:
        raise TargetError(
            f"The table at {sink.uri} is ahead of this change log: another log's changes are in it.",
            hint="Move it away, or choose another lake.path or pipeline.name.",
            lsn=state.applied_lsn,
        )
    return None if state is None else state.applied_lsn


def _deletes(sink: Sink, stage: SnapshotFiles, key: Sequence[str], schema: pa.Schema) -> Folded:
    keys = pa.schema([schema.field(name) for name in key])
    deletes = pa.Table.from_batches(sink.read_files(stage.actions, keys), keys)
    return Folded(tuple(key), False, schema.empty_table(), deletes, {}, keys.empty_table())
