"""A snapshot's files become the table, in one commit: the table is made, or all that it was is exchanged.

The rule: nobody ever sees a table that is missing or half-filled, and whoever dies is continued by doing it again: a
table that holds the plan's rows already is left alone. Newer chunks win: rows of their keys are left out of what older
snapshots read. That goes in parts of so many rows, for their keys are held in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from wal2lake.apply.envelope import envelope_schema
from wal2lake.columnar.types import TableSchema
from wal2lake.postgres.catalog import PublishedTable
from wal2lake.postgres.snapshot import SnapshotIdentity
from wal2lake.sinks.base import FileAction, Sink, SinkState, TargetError
from wal2lake.tables.chunks import planned_schema
from wal2lake.tables.description import described
from wal2lake.tables.state import DoneChunk, Landed, SnapshotPlan
from wal2lake.tables.table import Table
from wal2lake.tables.target import Target

PART_ROWS = 4_000_000


@dataclass(frozen=True, slots=True)
class SnapshotFiles:
    """Files that one snapshot read."""

    snapshot: SnapshotIdentity
    actions: list[FileAction]


def land_snapshot(table: Table, published: PublishedTable, lsn: int) -> None:
    """Commit the finished chunks of the table's plan; doing it again changes nothing.

    The table stands at ``lsn``, where the log begins, then; if it is read anew, where it fell out of the stream. Its
    LSN goes back only where that is of another history, of a server that was left behind or taken back: what ended up
    to an LSN at which the snapshots were settled they have seen, what ends above would be passed over unseen.
    """
    plan, target = table.plan, table.target
    chunks = sorted(table.folder.chunks(plan.plan_id).values(), key=lambda chunk: chunk.number)
    stages = stages_of(chunks)
    sink = target.sink()
    state = sink.state()
    if state is None or state.plan_id != plan.plan_id:
        if table.state.anew is not None:
            lsn = max(lsn, table.state.needs_lsn or 0)
            settled = min(stage.snapshot.settled_lsn for stage in stages)
            lsn = state.applied_lsn if state and lsn < state.applied_lsn <= settled else lsn
        _require_replaceable(sink, state, target, lsn, anew=table.state.anew is not None)
        planned = planned_schema(plan, published.namespace, published.name, target.types)
        schema = target_schema(planned, target)
        actions = joined(sink, stages, plan, schema)
        schema = described(schema, published, plan.key if target.mode == "mirror" else ())
        if state is None:
            sink.commit_files(actions, lsn, schema, None, plan.plan_id)
        else:
            sink.replace_files(actions, lsn, schema, state.applied_lsn, plan.plan_id)
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


def joined(sink: Sink, stages: Sequence[SnapshotFiles], plan: SnapshotPlan, schema: pa.Schema) -> list[FileAction]:
    """Files with the rows of all stages, of each key the one that the newest snapshot read."""
    assert plan.key or len(stages) == 1, "rows without a key cannot come from several snapshots"
    keys = pa.schema([schema.field(name) for name in plan.key])
    actions = stages[0].actions
    for part in (part for stage in stages[1:] for part in parts_of(stage)):
        read = pa.Table.from_batches(sink.read_files(part.actions, keys), keys)
        actions = [*sink.without(actions, read, schema), *part.actions]
    return actions


def _require_replaceable(sink: Sink, state: SinkState | None, target: Target, lsn: int, *, anew: bool) -> None:
    """What stands there is what this log brought, or an earlier one, or is to be read ``anew``, whatever it is; and it
    is a mirror, for a history stays."""
    if state is not None and target.mode == "append":
        raise TargetError(
            f"The table at {sink.uri} is a history, of which nothing is replaced, and what comes next does not follow.",
            hint="Move it away: the table is read into a new one then.",
            lsn=state.applied_lsn,
        )
    if state is not None and state.applied_lsn > lsn and not anew:
        raise TargetError(
            f"The table at {sink.uri} is ahead of this change log:"
            " another log's changes are in it, or what was known of it here is lost.",
            hint="If that is lost, `wal2lake resync` it; or move it away, or choose another lake.path.",
            lsn=state.applied_lsn,
        )
