"""A batch becomes one last state per key: values known by the batch, and a mask of those that stay the target's.

An update may leave TOASTed columns unsaid. Its row's earlier value is then that of the update or insert before it
on the same key; an update that changed the key goes back to the old key. These backward pointers form chains, and a
column's value is at the nearest link that says it (pointer doubling, never a loop over rows). What no link says, the
target knows, under the key that the chain's first row had before the batch: its source key. Never NULL, never a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wal2lake.apply.row_index import Ids, Mask, RowIndex, take, take_values
from wal2lake.apply.unify import DELETE, INSERT, OLD, UPDATE, Events, Fill, unify

if TYPE_CHECKING:
    from wal2lake.columnar.changes import Changes
    from wal2lake.columnar.types import TableSchema


@dataclass(frozen=True)
class Folded:
    """What a keyed target must do, in one commit: truncate if so, delete, then upsert.

    Keys of ``deletes`` and ``upserts`` are distinct. ``unknown`` has a bool[upserts] for each column of which some
    value stays what the target has (NULL in ``upserts``). ``source_key``, aligned with ``upserts``, is the key that
    the row had in the target before this batch; NULL for rows that are new in it.
    """

    key: tuple[str, ...]
    truncated: bool
    upserts: pa.Table
    deletes: pa.Table
    unknown: dict[str, Mask]
    source_key: pa.Table

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.truncated or self.upserts.num_rows or self.deletes.num_rows)


@dataclass(frozen=True)
class FoldedRows:
    """What a keyless target must do: ``net[i]`` more (or, negative, fewer) copies of ``rows[i]``; never 0."""

    truncated: bool
    rows: pa.Table
    net: Ids

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.truncated or self.rows.num_rows)


@dataclass(frozen=True)
class _Keys:
    """Ids of the keys that N events name. ``source``: before the event; ``target``: after it; −1: none."""

    table: pa.Table  # one row per id
    source: Ids
    target: Ids
    moved: Mask  # updates that changed the key


def key_columns(schema: TableSchema, primary_key: Sequence[str]) -> tuple[str, ...]:
    """The columns that name a row of this table in its changes; () when only whole rows do, or nothing does.

    Old tuples carry the replica identity, so that is the key; under REPLICA IDENTITY FULL they carry every column and
    the primary key (which must not be DEFERRABLE: such a key may hold duplicates inside a transaction) will do.
    """
    if schema.replica_identity == "f":
        return tuple(primary_key)
    return tuple(column.name for column in schema.columns if column.key)


def fold(
    changes: Sequence[Changes], key: Sequence[str], fill: Fill | None = None, versions: Sequence[TableSchema] = ()
) -> Folded:
    """Fold one relation's changes, oldest first and of one or several schema versions, to the last state per key.

    ``fill``: for columns that earlier versions lack, the value that the server gave existing rows (none: NULL).
    ``versions``: all that there are, where the changes are a part of more; what comes is in the newest one's columns.
    Raises ProtocolError when a change names no key, SchemaChangeError when versions cannot be unified.
    """
    events = unify(changes, fill, key, versions)
    keys = _find_keys(events, list(key))
    previous, last = _chain(events, keys)
    # int64[upserts]: the events that leave a key with a row; int64[deletes]: the keys that the others leave without one
    final = np.sort(last[last % 2 == 1] // 2)
    upserts, unknown = _values(events, previous, final, take(keys.table, keys.target[final]))
    gone = np.empty(0, np.int64) if events.truncated else keys.source[np.sort(last[last % 2 == 0] // 2)]
    return Folded(
        key=tuple(key),
        truncated=events.truncated,
        upserts=upserts,
        deletes=take(keys.table, gone),
        unknown=unknown,
        source_key=take(keys.table, _source(events, keys, previous, final)),
    )


def fold_rows(changes: Sequence[Changes], fill: Fill | None = None, versions: Sequence[TableSchema] = ()) -> FoldedRows:
    """Fold the changes of a table without a key to a net count per distinct row; ``fill``, ``versions`` as in ``fold``.

    Raises ProtocolError when an update or delete does not carry the whole old row (REPLICA IDENTITY FULL does).
    """
    events = unify(changes, fill, None, versions)
    bare = np.flatnonzero((events.kind != INSERT) & (events.old_kind != OLD))
    unsaid = np.flatnonzero(np.logical_or.reduce(list(events.unknown.values()))) if events.unknown else bare
    for rows in (bare, unsaid):
        if len(rows):
            raise events.fail(
                "A change of a table without a key does not carry the whole old row.",
                rows,
                hint="ALTER TABLE … REPLICA IDENTITY FULL (of a root that is published whole: each of its partitions),"
                " or give the table a primary key.",
            )
    added = events.new.filter(pa.array(events.upserts))
    removed = events.old.filter(pa.array(events.kind != INSERT))
    if not removed.num_rows:
        return FoldedRows(events.truncated, added, np.ones(added.num_rows, np.int64))
    rows = pa.concat_tables([added, removed])
    index = RowIndex(rows)
    # int64[distinct]: how often a row was added, less how often it was removed
    net = np.bincount(index.ids[: added.num_rows], minlength=index.distinct)
    net -= np.bincount(index.ids[added.num_rows :], minlength=index.distinct)
    kept = np.flatnonzero(net)
    return FoldedRows(events.truncated, take(rows, index.representatives()[kept]), net[kept])


def _find_keys(events: Events, key: list[str]) -> _Keys:
    """Give every key that the events name an id; raise ProtocolError for an event that names none."""
    with_old = np.flatnonzero(events.old_kind)  # int64[old]
    old = take(events.old.select(key), with_old)
    new = _new_key(events, key)
    _refuse_null(events, new, np.flatnonzero(events.upserts))
    _refuse_null(events, old, np.arange(len(with_old)), with_old)
    keyless = np.flatnonzero((events.kind == DELETE) & (events.old_kind == 0))
    if len(keyless):
        raise events.fail("A delete carries no key.", keyless)
    table = pa.concat_tables([new, old])  # N new keys, then those of the old tuples
    index = RowIndex(table)
    target = np.where(events.upserts, index.ids[: len(events.kind)], -1)
    source = target.copy()  # without an old tuple the key is the same before and after
    source[with_old] = index.ids[len(events.kind) :]
    moved = (events.kind == UPDATE) & (source != target)
    return _Keys(take(table, index.representatives()), source, target, moved)


def _new_key(events: Events, key: list[str]) -> pa.Table:
    """The new tuples' keys; a key column that is unchanged TOAST stands in the old key, which then always travels."""
    return pa.table(
        {
            name: pc.if_else(pa.array(events.unknown[name]), events.old[name], events.new[name])
            if name in events.unknown
            else events.new[name]
            for name in key
        }
    )


def _refuse_null(events: Events, table: pa.Table, rows: Ids, places: Ids | None = None) -> None:
    """Raise ProtocolError for a NULL in ``rows`` of the keys; ``places``: each row's event, where that is another."""
    for column in table.columns:
        if column.null_count:
            null = rows[column.is_null().to_numpy()[rows]]
            if len(null):
                hint = (
                    "The table's key and its REPLICA IDENTITY must be the same columns; name a key column whose values"
                    " have no place in the lake's type (infinity) in text_columns, then `wal2lake resync` the table."
                )
                raise events.fail("A change's key is NULL.", null if places is None else places[null], hint)


def _chain(events: Events, keys: _Keys) -> tuple[Ids, Ids]:
    """Each event's predecessor (int64[N], −1: none in this batch), and the last step on each key.

    Event i is up to two steps: 2i takes the row away from its source key, 2i + 1 puts it under its target key.
    """
    size = len(events.kind)
    # an update in place only puts: it leaves nothing behind under another key
    taken, put = np.flatnonzero((events.kind == DELETE) | keys.moved), np.flatnonzero(events.upserts)
    step = np.concatenate([2 * taken, 2 * put + 1])  # int64[steps], and the key that each is on
    on = np.concatenate([keys.source[taken], keys.target[put]])
    # by key, and on each key in the stream's order: no step is as great as 2 * size
    order = np.argsort(on * (2 * size) + step)
    step, on = step[order], on[order]
    follows = on[1:] == on[:-1]  # bool[steps - 1]: the next step is on the same key
    # int64[2 * size]: by step, the one before it on its key
    before = np.full(2 * size, -1)
    before[step[1:][follows]] = step[:-1][follows]
    # int64[N]: an event finds its row at the step that takes it away, or in place at the one that puts it
    first_step = 2 * np.arange(size) + ~keys.moved
    previous = before[first_step]
    # only an update goes on from an earlier row, and only an odd step put one there; behind a delete there is none
    linked = (events.kind == UPDATE) & (previous % 2 == 1) & (previous >= 0)
    # a key's last step is the one that the next does not follow; without any step there is none
    return np.where(linked, previous // 2, -1), step[np.append(~follows, True)[: len(step)]]


def _values(events: Events, previous: Ids, final: Ids, keys: pa.Table) -> tuple[pa.Table, dict[str, Mask]]:
    """The rows of the ``final`` events under their ``keys``, each other column taken where its chain says it.

    Also, for each column that no link says somewhere, bool[final]: where.
    """
    columns, unknown = [], {}
    every = len(final) == len(events.kind)  # each event's row is left, as of new rows only: nothing is to be moved
    for name in events.new.column_names:
        if name in keys.column_names:
            columns.append(keys[name])
            continue
        places = final  # int64[final]: the events that say this column's values
        if name in events.unknown:
            places = _follow(events.unknown[name], previous)[final]
            unsaid = events.unknown[name][places]
            if unsaid.any():
                unknown[name] = unsaid
        same = every and places is final
        columns.append(events.new[name] if same else take_values(events.new[name], pa.array(places)))
    return pa.table(columns, schema=events.new.schema), unknown


def _follow(unsaid: Mask, previous: Ids) -> Ids:
    """int64[N]: for each event the nearest one back along its chain that is not ``unsaid``, or the chain's first."""
    # one link back where the event itself does not say; an event that points to itself is where to stay
    pointer = np.where(unsaid & (previous >= 0), previous, np.arange(len(previous)))
    while True:
        further = pointer[pointer]  # twice as far each round: a chain of n links takes log2(n) of them
        if np.array_equal(further, pointer):
            return pointer
        pointer = further


def _source(events: Events, keys: _Keys, previous: Ids, final: Ids) -> pa.Array:
    """The ids of the keys that the final rows had before the batch, NULL where their chain begins with an insert."""
    root = _follow(np.ones(len(previous), np.bool_), previous)[final]
    return pa.array(keys.source[root], mask=events.kind[root] == INSERT)
