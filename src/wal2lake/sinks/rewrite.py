"""MERGE: find the rows that go, mark them in large files or rewrite the files that hold them, append what comes.

Keys are looked up file by file, in the key indexes of large files (key_index.py), else in streams of their key columns
alone: so memory is the batch's, never the table's, and files that hold none of them are not touched. Rows leave in
place and come back at the end: hot rows gather in the newest files, and the old ones are left alone. Rows that are
marked are no rows: positions are those in the file, marked rows counted, and whoever finds or keeps rows leaves those
out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wal2lake.apply.fold import Folded, FoldedRows
from wal2lake.apply.row_index import Ids, Mask, RowIndex, take
from wal2lake.apply.unify import widens
from wal2lake.deltadv.bitmap import Marked
from wal2lake.errors import RESYNC, SchemaChangeError
from wal2lake.sinks.base import FileAction, NotACopyError
from wal2lake.sinks.datafiles import align, read_batches, read_rows
from wal2lake.sinks.dead_rows import NONE_DEAD, DeadRows
from wal2lake.sinks.folder import Folder
from wal2lake.sinks.key_index import Wanted
from wal2lake.sinks.key_indexes import KeyIndexes

Write = Callable[[Iterable[pa.RecordBatch], pa.Schema], list[FileAction]]  # rows of these columns into data files
MOSTLY: Final = 0.5  # a file of which as great a part is dead is rewritten: that costs no more than it frees


@dataclass(frozen=True)
class CommittedFiles:
    """A table's committed files. ``files``: columns path, size_bytes, num_records (those that are marked count), and
    min and max (structs by column). Or files that are about to be committed with it, which have a path alone.

    ``dead``: the rows of each that are marked. ``mark_bytes``: files of so many bytes may be, and have an index of
    ``indexes``; None: none may.
    """

    folder: Folder
    schema: pa.Schema
    files: pa.Table
    dead: DeadRows = NONE_DEAD
    mark_bytes: int | None = None
    indexes: KeyIndexes | None = None

    def after(self, removed: Sequence[str], written: Sequence[str], marked: Mapping[str, Marked]) -> CommittedFiles:
        """The files as they are when some are gone and others, of which nothing else is known, have come, and in those
        of ``marked`` these rows and no others are marked."""
        kind = self.files.schema.field("path").type
        gone = pc.is_in(self.files["path"], pa.array(removed, kind))
        come = pa.table({"path": pa.array(written, kind)})
        files = pa.concat_tables([self.files.filter(pc.invert(gone)), come], promote_options="default")
        return replace(self, files=files, dead=self.dead.after(marked))

    def candidates(self, rows: pa.Table) -> list[str]:
        """The files that may hold a row equal to one of ``rows`` in its first column, by their statistics."""
        column = rows.column_names[0]
        bounds = _bounds_of(self.files, column)
        if bounds is None or rows[column].null_count:
            return list(self.files["path"].to_pylist())
        may = _overlaps(*bounds, rows[column])
        return list(self.files["path"].filter(pa.array(may)).to_pylist())

    def rows_in(self, path: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The file's rows in order, in runs."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        for batch in read_batches(self.folder, path, schema):
            yield pa.Table.from_batches([batch])

    def live_rows(self, path: str) -> Iterator[pa.RecordBatch]:
        """The file's rows in order, in all columns, without those that are marked."""
        return self.rows_without(path, np.empty(0, np.int64))

    def rows_without(self, path: str, positions: Ids) -> Iterator[pa.RecordBatch]:
        """The file's live rows but for those at ``positions``, which rise."""
        gone = self.dead.positions(path, positions)
        start = 0
        for batch in read_batches(self.folder, path, self.schema):
            first, last = np.searchsorted(gone, (start, start + batch.num_rows))
            if first < last:
                stays = np.ones(batch.num_rows, np.bool_)
                stays[gone[first:last] - start] = False
                yield batch.filter(pa.array(stays))
            else:
                yield batch
            start += batch.num_rows

    def large(self) -> dict[str, tuple[int, int]]:
        """The bytes and rows of those that may be marked."""
        if self.mark_bytes is None or "num_records" not in self.files.column_names:
            return {}
        known = (self.files[name].to_pylist() for name in ("path", "size_bytes", "num_records"))
        return {path: (size, rows) for path, size, rows in zip(*known, strict=True)
                if rows and (size or 0) >= self.mark_bytes}  # fmt: skip

    def marks(self, hits: Sequence[Hits]) -> dict[str, Marked]:
        """Those of the files that are marked, and not rewritten, with all rows that are marked in each then."""
        large = self.large()
        marked = {hit.path: self.dead.with_others(hit.path, hit.positions) for hit in hits if hit.path in large}
        return {path: dead for path, dead in marked.items() if len(dead) < large[path][1] * MOSTLY}


@dataclass(frozen=True)
class Hits:
    """Rows of one file that a batch names: positions (ascending) and the ids of their keys."""

    path: str
    positions: Ids
    ids: Ids


@dataclass(frozen=True)
class Rewrite:
    """What one commit does: the ``removed`` files go; ``batches`` are all the rows of the files that come; in each of
    the ``marked`` files these rows are marked, and no others."""

    removed: list[str]
    batches: Iterator[pa.RecordBatch]
    marked: Mapping[str, Marked]


def merge(target: CommittedFiles, folded: Folded | FoldedRows) -> Rewrite:
    """Plan the commit that applies the fold. Raises NotACopyError when the target lacks a row that it builds on."""
    if isinstance(folded, FoldedRows):
        return _merge_rows(target, folded)
    keys = pa.concat_tables([folded.upserts.select(folded.key), folded.deletes.select(folded.key)])
    index = RowIndex(_cast(keys, target.schema))
    hits = [] if folded.truncated else _find(target, index, keys)
    rows = _fill_from_target(target, folded, index, hits)
    return _rewrite(target, folded.truncated, hits, rows)


def merge_all(
    target: CommittedFiles, pieces: Iterable[Folded | FoldedRows], write: Write, written: dict[str, FileAction]
) -> CommittedFiles:
    """Apply folds, oldest first, each to the files as those before it have left them, and no more than one at once.

    Returns the files as they are then. Those of them that ``write`` made, and nobody names yet, are ``written``, by
    path, also where this fails amid them. Raises as ``merge``.
    """
    for folded in pieces:
        rewrite = merge(target, folded)
        del folded  # while the next one is made
        actions = write(rewrite.batches, target.schema)
        target = target.after(rewrite.removed, [action.path for action in actions], rewrite.marked)
        target.folder.remove(path for path in rewrite.removed if written.pop(path, None))
        written |= {action.path: action for action in actions}
    return target


def without(
    folder: Folder, schema: pa.Schema, actions: Sequence[FileAction], keys: pa.Table, write: Write
) -> list[FileAction]:
    """Files that hold the rows of ``actions`` but for those with one of ``keys``; ``Sink.without``."""
    nothing = schema.empty_table()
    deletes = Folded(tuple(keys.column_names), False, nothing, keys, {}, nothing.select(keys.column_names))
    files = pa.table({"path": pa.array([action.path for action in actions], pa.string())})
    rewrite = merge(CommittedFiles(folder, schema, files), deletes)
    removed = set(rewrite.removed)
    return [*(action for action in actions if action.path not in removed), *write(rewrite.batches, schema)]


def holds(target: CommittedFiles, keys: pa.Table) -> Mask:
    """bool[keys]: the target has a row with these values in these columns, bit for bit."""
    keys = _cast(keys, target.schema)
    index = RowIndex(keys)
    held = np.zeros(index.distinct, np.bool_)
    for hit in _find(target, index, keys):
        held[hit.ids] = True
    found: Mask = held[index.ids]
    return found


def _merge_rows(target: CommittedFiles, folded: FoldedRows) -> Rewrite:
    come = np.flatnonzero(folded.net > 0)
    go = np.flatnonzero(folded.net < 0)
    hits = []
    if len(go) and not folded.truncated:
        gone = _cast(take(folded.rows, go), target.schema)
        hits = _find(target, RowIndex(gone), gone, -folded.net[go])
    rows = take(folded.rows, np.repeat(come, folded.net[come]))
    return _rewrite(target, folded.truncated, hits, _conform(rows, target.schema))


def _rewrite(target: CommittedFiles, truncated: bool, hits: list[Hits], rows: pa.Table) -> Rewrite:
    marked = target.marks(hits)
    rewritten = [hit for hit in hits if hit.path not in marked]
    kept = chain.from_iterable(target.rows_without(hit.path, hit.positions) for hit in rewritten)
    removed = target.files["path"].to_pylist() if truncated else [hit.path for hit in rewritten]
    return Rewrite(removed, chain(kept, rows.to_batches()), marked)


def _find(target: CommittedFiles, index: RowIndex, rows: pa.Table, copies: Ids | None = None) -> list[Hits]:
    """Where the target has the rows of ``index``; of the i-th row no more than ``copies[i]`` (None: all there are)."""
    left = None
    if copies is not None:
        left = np.zeros(index.distinct, np.int64)
        left[index.ids] = copies
    lookup = _Lookup(target, index, rows) if left is None else None
    found = []
    for path in target.candidates(rows) if rows.num_rows else []:
        hit = None if lookup is None else lookup.find_in(path)
        hit = hit or find_in_columns(target, path, index, rows.column_names, left)
        if len(hit.positions):
            found.append(hit)
    if left is not None and left.any():
        raise NotACopyError(
            "A row that the source deleted or updated is not in the target, so the target is not a copy.",
            hint=RESYNC,
        )
    return found


class _Lookup:
    """Looks for the rows of ``index`` in the files' key indexes; where one of them has a NULL, in none."""

    def __init__(self, target: CommittedFiles, index: RowIndex, rows: pa.Table) -> None:
        self._target = target
        self._columns = rows.column_names
        self._key = [target.schema.field(name) for name in rows.column_names]
        self._large = target.large() if target.indexes and not any(part.null_count for part in rows.columns) else {}
        self._wanted = Wanted(index, rows, target.indexes.seed) if target.indexes and self._large else None

    def find_in(self, path: str) -> Hits | None:
        """None: the file has no index."""
        if self._target.indexes is None or self._wanted is None or path not in self._large:
            return None
        read = partial(self._target.rows_in, path, self._columns)
        runs = self._target.indexes.runs(path, *self._large[path], self._key, read)
        if runs is None:
            return None
        positions, ids = self._wanted.find_in(runs)
        alive = self._target.dead.live(path, positions, 0)
        return Hits(path, alive, ids[np.searchsorted(positions, alive)])


def find_in_columns(target: CommittedFiles, path: str, index: RowIndex, columns: list[str], left: Ids | None) -> Hits:
    """The rows of ``index`` in the file; of each id no more than ``left`` says, which is counted off."""
    start, positions, ids = 0, [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for rows in target.rows_in(path, columns):
        of = index.find(rows)
        at = target.dead.live(path, np.flatnonzero(of >= 0), start)
        if left is not None:
            at = at[_take_at_most(of[at], left)]
        positions.append(at + start)
        ids.append(of[at])
        start += rows.num_rows
    return Hits(path, np.concatenate(positions), np.concatenate(ids))


def _take_at_most(ids: Ids, left: Ids) -> Mask:
    """Which of these rows to take so that none is taken more than ``left`` times; counts them off."""
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    rank = np.arange(len(ids)) - np.searchsorted(ordered, ordered)
    taken = np.zeros(len(ids), np.bool_)
    taken[order] = rank < left[ordered]
    left -= np.bincount(ids[taken], minlength=len(left))
    return taken


def _fill_from_target(target: CommittedFiles, folded: Folded, index: RowIndex, hits: list[Hits]) -> pa.Table:
    """The upserts in the target's columns, with the values that stay the target's filled in from there.

    Those are the unknown ones, which must be there, and the columns that are not published (any more).
    """
    unpublished = [name for name in target.schema.names if name not in folded.upserts.column_names]
    rows = _conform(folded.upserts, target.schema)
    needed = [*folded.unknown, *unpublished]
    if not needed or not rows.num_rows:
        return rows
    found = index.find(_cast(folded.source_key, target.schema))
    held, place = _read_hits(target, hits, needed, index.distinct)
    place = np.where(found >= 0, place[found], -1)
    for name, mask in folded.unknown.items():
        if (place[mask] < 0).any():
            raise NotACopyError(
                "An update leaves a TOASTed value unchanged in a row that the target does not have.",
                hint=RESYNC,
                column=name,
            )
    held = take(held, pa.array(place, mask=place < 0))
    for name in needed:
        mask = pa.array(folded.unknown.get(name, np.ones(rows.num_rows, np.bool_)))
        filled = pc.if_else(mask, held[name], rows[name])
        rows = rows.set_column(rows.schema.get_field_index(name), target.schema.field(name), filled)
    return rows


def _read_hits(target: CommittedFiles, hits: list[Hits], columns: list[str], ids: int) -> tuple[pa.Table, Ids]:
    """The target's values in the rows hit, and for each id its row there, −1: none."""
    schema = pa.schema([target.schema.field(name) for name in columns])
    pieces, place, count = [schema.empty_table()], np.full(ids, -1), 0
    for hit in hits:
        place[hit.ids] = count + np.arange(len(hit.ids))
        count += len(hit.ids)
        pieces.append(read_rows(target.folder, hit.path, schema, hit.positions))
    return pa.concat_tables(pieces), place


def _cast(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows' own columns in the target's types; raises as ``_conform`` does."""
    return _conform(rows, pa.schema([schema.field(name) for name in rows.column_names if name in schema.names]))


def _conform(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows in the target's columns (NULL where they have none) and types; raises SchemaChangeError."""
    for field in rows.schema:
        place = schema.get_field_index(field.name)
        if place < 0 or (field.type != schema.types[place] and not widens(field.type, schema.types[place])):
            raise SchemaChangeError(
                f"The target has no such column of type {field.type}.",
                hint="Evolve the target before it is written.",
                column=field.name,
            )
    return pa.Table.from_batches([align(batch, schema) for batch in rows.to_batches()], schema)


def _bounds_of(files: pa.Table, column: str) -> tuple[pa.Array, pa.Array] | None:
    """The files' least and greatest values of the column, if the log has any."""
    sides = [files[side].combine_chunks() for side in ("min", "max") if side in files.column_names]
    places = [side.type.get_field_index(column) if pa.types.is_struct(side.type) else -1 for side in sides]
    if len(sides) < 2 or min(places) < 0:
        return None
    low, high = (pc.struct_field(side, [place]) for side, place in zip(sides, places, strict=True))
    return low, high


def _overlaps(low: pa.Array, high: pa.Array, values: Any) -> Mask:
    """Which of the ranges [low, high] hold one of the values; NULL bounds hold anything."""
    known = pc.and_(low.is_valid(), high.is_valid()).to_numpy(zero_copy_only=False)
    if pa.types.is_integer(values.type) or pa.types.is_temporal(values.type):
        ordered = np.sort(_integers(values.drop_null()))
        last = _integers(high) + (999 if pa.types.is_timestamp(values.type) else 0)  # Spark cuts to milliseconds
        may = np.searchsorted(ordered, _integers(low)) < np.searchsorted(ordered, last, "right")
    elif pa.types.is_string(values.type):
        ends = pc.min_max(values)
        overlap = pc.and_(pc.less_equal(low, ends["max"]), pc.greater_equal(high, ends["min"]))
        may = pc.fill_null(overlap, True).to_numpy(zero_copy_only=False)
    else:
        return np.ones(len(low), np.bool_)
    found: Mask = may | ~known
    return found


def _integers(values: Any) -> Ids:
    """Integers, dates and timestamps as int64 (0 for NULL)."""
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_date32(array.type):
        array = array.cast(pa.int32())
    found: Ids = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return found
