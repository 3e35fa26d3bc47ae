"""A batch of the log into the tables: planned once, by the driver; done by one task per table (append: several).

The rule: what a task does depends on its part of the plan and the target's applied LSN alone. It passes over what is
applied already, so a batch that is run again, or overlaps what is applied, applies nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wal2lake.apply.envelope import Commits, envelope
from wal2lake.apply.fold import Folded, FoldedRows, fold, fold_rows
from wal2lake.apply.unify import TRUNCATE
from wal2lake.apply.visibility import select, visible
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.plan import Extent
from wal2lake.columnar.changes import Changes
from wal2lake.columnar.headers import truncated_relations
from wal2lake.columnar.types import TableSchema
from wal2lake.errors import RESYNC
from wal2lake.lsn import LSN
from wal2lake.names import qualified
from wal2lake.pipeline.control import control_rows
from wal2lake.postgres.snapshot import SnapshotIdentity
from wal2lake.sinks.base import FileAction, NotACopyError, Sink, SinkState
from wal2lake.tables.committed import CommittedChanges, DecodeRules, open_log, read_extent
from wal2lake.tables.evolve import Fill, SourceRelation
from wal2lake.tables.failures import reading_log
from wal2lake.tables.reread import complete, orphans, read_again
from wal2lake.tables.target import Target
from wal2lake.urls import shown

Xids = npt.NDArray[np.uint32]


PIECE_OF_BATCH = 2  # the bytes of a piece of decoded changes, in batches: only what one transaction makes larger is cut
SMALL_BYTES = 4 << 20  # of a batch's messages: as much as the driver applies itself, at most
_CHANGE_BYTES = 200  # of a change, by and large
APPEND_TASK_ROWS = 400_000  # changes; enough for the data files to be large, few enough to use all cores


@dataclass(frozen=True, slots=True)
class TableBatch:
    """One relation's part of a batch: all its changes in transactions with ``start`` < end LSN ≤ ``end``.

    ``parts``: where they lie, in order: (extent, schema digest, number of changes); ``truncates``: how many are.
    """

    relation_id: int
    namespace: str
    name: str
    start: int
    end: int
    parts: tuple[tuple[Extent, str, int], ...]
    truncates: int = 0

    def __str__(self) -> str:
        return qualified(self.namespace, self.name)

    @property
    def changes(self) -> int:
        return sum(count for _, _, count in self.parts)


@dataclass(frozen=True, slots=True)
class ApplyTask:
    """A table's part of a batch and all it takes to apply it, as it travels to an executor.

    ``snapshot``: the oldest that read the table, while it may have seen some of the batch. In append mode several tasks
    share a table: ``parts`` are those of the batch that this one does, ``standing`` is where all of them found the
    target, and where the commit of what they wrote must find it. ``converges_lsn``: as in Landed. ``versions``: the
    schemas of its changes, in order. ``piece_bytes``: of decoded changes that it may hold at once.
    """

    log_path: str
    batch: TableBatch
    parts: tuple[tuple[Extent, str, int], ...]
    key: tuple[str, ...]
    target: Target
    source: SourceRelation
    snapshot: SnapshotIdentity | None
    fill: Fill
    converges_lsn: int
    versions: tuple[TableSchema, ...]
    piece_bytes: int
    standing: SinkState | None = None

    def __str__(self) -> str:
        return str(self.batch)

    @property
    def weight(self) -> int:
        """About how many bytes there are to apply."""
        return _CHANGE_BYTES * sum(count for _, _, count in self.parts)

    @property
    def rules(self) -> DecodeRules:
        return self.target.rules


def plan_batch(log: ChangeLog, start: int, end: int, rules: DecodeRules) -> list[TableBatch]:
    """What the transactions in (start, end] hold of each relation, by name, from the log's index."""
    return by_relation(control_rows(log, start, end, rules))


def by_relation(rows: Iterable[Mapping[str, Any]]) -> list[TableBatch]:
    """Control rows (CONTROL_SCHEMA) of one batch, in the log's order, as one item per relation, by name.

    A relation that has several names in it is one all the same, by the last of them.
    """
    identity = itemgetter("relation_id")
    items = [_table_batch(list(own)) for _, own in groupby(sorted(rows, key=identity), key=identity)]
    return sorted(items, key=lambda item: (item.namespace, item.name, item.relation_id))


def _table_batch(rows: Sequence[Mapping[str, Any]]) -> TableBatch:
    first, last = rows[0], rows[-1]
    parts = tuple(
        (
            Extent(row["seq"], row["row_start"], row["row_stop"]),
            row["schema_digest"],
            row["inserts"] + row["updates"] + row["deletes"] + row["truncates"],
        )
        for row in rows
    )
    truncates = sum(row["truncates"] for row in rows)
    named = first["relation_id"], last["namespace"], last["table"]
    return TableBatch(*named, first["start_lsn"], first["end_lsn"], parts, truncates)


def split(batch: TableBatch) -> list[tuple[tuple[Extent, str, int], ...]]:
    """The batch's parts, in order, in groups of about APPEND_TASK_ROWS changes."""
    groups: list[list[tuple[Extent, str, int]]] = []
    size = APPEND_TASK_ROWS
    for part in batch.parts:
        if size >= APPEND_TASK_ROWS:
            groups.append([])
            size = 0
        groups[-1].append(part)
        size += part[2]
    return [tuple(group) for group in groups]


def schema_versions(
    log: ChangeLog, batch: TableBatch, snapshot: SnapshotIdentity | None, rules: DecodeRules
) -> list[TableSchema]:
    """The schemas of the batch's changes in order, without those of changes that the snapshot has seen.

    None is the one before it, but one may come back.
    """
    versions: list[TableSchema] = []
    newest = ""  # the digest of the last one in the batch's plan, which knows nothing of the table's own rules
    for extent, digest, _ in batch.parts:
        if newest == digest:
            continue
        with reading_log(log.storage.where):
            run = log.relation_runs(extent, batch.relation_id)[-1]
            seen = snapshot is not None and bool(visible(_change_xids(log, extent, batch.relation_id), snapshot).all())
        if not seen:
            versions.append(rules.schema(run))
            newest = digest
    return versions


def truncating(log: ChangeLog, batch: TableBatch, *, of_root: bool) -> set[int]:
    """The xids of the relation's Truncates; ``of_root``: of those after which their transactions say no more of it.

    Where the publication speaks of the root, another TRUNCATE in such a transaction, of a partition, leaves no trace.
    """
    found: set[int] = set()
    for extent, _, _ in batch.parts if batch.truncates else ():
        with reading_log(log.storage.where):
            tag, relation_id, xid = (log.heads(extent)[name].to_numpy() for name in ("tag", "relation_id", "xid"))
            mine = np.zeros(len(tag), np.bool_)
            for row in np.flatnonzero(tag == TRUNCATE):
                mine[row] = batch.relation_id in truncated_relations(log.read(extent)["payload"][row].as_py())
        said = np.flatnonzero(mine | (relation_id == batch.relation_id) if of_root else mine)[::-1]
        xids, newest = np.unique(xid[said], return_index=True)  # what each transaction says last, as it is reversed
        is_truncate = mine[said[newest]]
        found = found.difference(xids[~is_truncate].tolist()).union(xids[is_truncate].tolist())
    return found


def _change_xids(log: ChangeLog, extent: Extent, relation_id: int) -> Xids:
    """Of the extent's changes of the relation, and of its Truncates, whatever they name."""
    heads = log.heads(extent)
    mine = (heads["relation_id"].to_numpy() == relation_id) | (heads["tag"].to_numpy() == TRUNCATE)
    found: Xids = heads["xid"].to_numpy()[mine]
    return found


class Merged(NamedTuple):
    """How many changes a merge has applied, and whether ``maintain`` is due."""

    changes: int
    due: bool


def apply_mirror(task: ApplyTask) -> Merged:
    """Fold the table's changes and merge them in one commit. Runs on an executor."""
    sink = task.target.sink()
    state = standing(sink, str(task.batch))
    if state.applied_lsn >= task.batch.end:
        return Merged(0, due=False)
    pieces = _Pieces(task, state)
    if pieces.whole:
        due = _merge_whole(task, state, pieces)
    else:
        due = sink.merge_pieces(pieces, task.batch.end, state.applied_lsn)
    return Merged(pieces.changes, due)


class _Pieces:
    """A task's changes, folded in pieces, oldest first: what a task holds at once is bounded, however much it is.

    They are one piece (``whole``) where rows may be in none of several snapshots' chunks. Each piece has the columns of
    the newest of all their schema versions. ``changes``: how many there were so far.
    """

    def __init__(self, task: ApplyTask, state: SinkState) -> None:
        self._task = task
        self._applied = state.applied_lsn
        self.whole = bool(task.key) and task.batch.start < max(task.converges_lsn, state.converges_lsn)
        self.changes = 0

    def __iter__(self) -> Iterator[Folded | FoldedRows]:
        gathered: list[Changes] = []
        size = 0
        for kept in _read(self._task, self._applied):
            if not len(kept.changes):
                continue
            gathered.append(kept.changes)
            size += kept.changes.nbytes
            self.changes += len(kept.changes)
            if size >= self._task.piece_bytes and not self.whole:
                yield self._fold(gathered)
                size = 0
        if gathered:
            yield self._fold(gathered)

    def _fold(self, gathered: list[Changes]) -> Folded | FoldedRows:
        changes = list(gathered)
        gathered.clear()
        key, fill, versions = self._task.key, self._task.fill, self._task.versions
        return fold(changes, key, fill, versions) if key else fold_rows(changes, fill, versions)


def _merge_whole(task: ApplyTask, state: SinkState, pieces: _Pieces) -> bool:
    sink, folded = task.target.sink(), next(iter(pieces), None)
    if folded is None:
        return sink.commit_files([], task.batch.end, state.schema, state.applied_lsn)
    converges_lsn = None
    if task.batch.start < max(task.converges_lsn, state.converges_lsn) and isinstance(folded, Folded):
        folded, converges_lsn = _reread_orphans(task, folded, state.converges_lsn)
    return sink.merge(folded, task.batch.end, state.applied_lsn, converges_lsn)


def _read(task: ApplyTask, applied: int) -> Iterator[CommittedChanges]:
    """The task's parts, without what is applied and what the snapshot's rows hold."""
    log = open_log(task.log_path)
    with reading_log(shown(task.log_path)):
        transactions = log.transactions(task.batch.start, task.batch.end)
    for extent, _, _ in task.parts:
        for found in read_extent(log, extent, task.batch.relation_id, transactions, task.rules):
            yield not_yet_applied(found, applied, task.snapshot)


def maintain(target: Target) -> float | None:
    """``Sink.maintain``, on an executor."""
    return target.sink().maintain()


def write_changes(task: ApplyTask) -> list[FileAction]:
    """Write the task's parts as envelope rows in data files, for the driver to commit. Runs on an executor."""
    assert task.standing is not None
    rows = (
        batch
        for kept in _read(task, task.standing.applied_lsn)
        for batch in envelope(kept.changes, kept.commits, task.key).to_batches()
    )
    return task.target.sink().write_files(rows, task.standing.schema)


def not_yet_applied(found: CommittedChanges, applied: int, snapshot: SnapshotIdentity | None) -> CommittedChanges:
    """Those of transactions that end above ``applied`` and that the snapshot's rows do not hold yet."""
    commits = found.commits
    keep = commits.end_lsn > applied
    if snapshot is not None:
        keep &= (commits.final_lsn >= snapshot.bound_lsn) | ~visible(found.changes.xid, snapshot)
    if keep.all():
        return found
    rows = np.flatnonzero(keep)
    kept = Commits(commits.final_lsn[rows], commits.end_lsn[rows], commits.commit_ts[rows])
    return CommittedChanges(select(found.changes, rows), kept)


def standing(sink: Sink, relation: str) -> SinkState:
    """How a table that was read into the lake stands there. Raises NotACopyError when it is gone."""
    state = sink.state()
    if state is None:
        raise lost_error(sink.uri, relation)
    return state


def lost_error(uri: str, relation: str) -> NotACopyError:
    """What had been read into the lake is not there."""
    return NotACopyError(f"The lake has lost the table at {uri}.", hint=RESYNC, relation=relation)


def _reread_orphans(task: ApplyTask, folded: Folded, known: int) -> tuple[Folded, LSN | None]:
    """What the target cannot say is read again; how long that may go on belongs into the same commit."""
    orphaned = orphans(folded, task.target.sink().holds)
    if not orphaned.any():
        return folded, None
    keys = folded.upserts.select(list(folded.key)).filter(pa.array(orphaned))
    rows, bound = read_again(keys, task.source, task.target)
    return complete(folded, orphaned, rows), LSN(bound) if bound > known else None
