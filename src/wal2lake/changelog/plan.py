"""Which rows are the transactions of a range: pure functions over segment metadata, and one index at either edge.

A range is (start, end] of end LSNs. Segments are in order and their ``end_lsn`` never falls, so a range begins by
bisection; a segment wholly inside it is planned from its ``runs`` alone, unless a streamed transaction ends there,
whose rows the index lists.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
import pyarrow as pa

from wal2lake.changelog.builder import list_sizes, merge_runs
from wal2lake.changelog.format import Run, SegmentInfo
from wal2lake.columnar.arrays import to_arrow, to_numpy
from wal2lake.lsn import LSN_MAX

Index = Callable[[int], pa.RecordBatch]  # segment number → its TRANSACTIONS_SCHEMA rows


@dataclass(frozen=True, slots=True)
class Extent:
    """Rows [row_start, row_stop) of segment ``seq``."""

    seq: int
    row_start: int
    row_stop: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a batch: payload bytes, messages, and a commit record that it must stay before. None: no bound."""

    max_bytes: int | None = None
    max_rows: int | None = None
    before_commit_lsn: int | None = None

    def hold(self, rows: int, size: int) -> bool:
        return (self.max_rows is None or rows <= self.max_rows) and (self.max_bytes is None or size <= self.max_bytes)


def plan(segments: Sequence[SegmentInfo], index: Index, start: int, end: int) -> list[Extent]:
    """The rows of all transactions in the range, in order; adjoining extents of a segment are one."""
    rows = {s.seq: s.rows for s in segments}
    extents: list[Extent] = []
    for segment in _commits_in(segments, start, end):
        for part in _parts(segment, index, start, end):
            for extent in [part] if isinstance(part, Extent) else _of_run(part, segment.seq, rows):
                _append(extents, extent)
    return extents


def _of_run(run: Run, last_seq: int, rows: Mapping[int, int]) -> Iterator[Extent]:
    """A run may have begun in an earlier segment: its rows, segment by segment, up to the one of its Commit."""
    for seq in range(run.first_seq, last_seq + 1):
        first = run.first_row if seq == run.first_seq else 0
        # a segment that retention has removed counts as without rows
        yield Extent(seq, first, run.stop if seq == last_seq else rows.get(seq, first))


def transactions(segments: Sequence[SegmentInfo], index: Index, start: int, end: int) -> list[pa.RecordBatch]:
    """The index rows in the range, with ``last_seq``, the segment of the Commit, as one more column."""
    found = []
    field = pa.field("last_seq", pa.uint64(), nullable=False)
    for s in _commits_in(segments, start, end):
        rows = _in_range(index(s.seq), start, end)
        if rows.num_rows:
            found.append(rows.append_column(field, to_arrow(np.full(rows.num_rows, s.seq, np.uint64))))
    return found


def end_lsn_within(segments: Sequence[SegmentInfo], index: Index, start: int, limits: Limits) -> int:
    """The farthest end LSN such that ``limits`` hold for (start, it]; one transaction at least; ``start`` if none."""
    barrier = LSN_MAX if limits.before_commit_lsn is None else limits.before_commit_lsn
    best, rows, size = start, 0, 0
    for s in _commits_in(segments, start, LSN_MAX):
        # wholly inside the range: its sums are enough, where all of it still fits
        whole = start < s.first_commit_end_lsn and s.last_commit_end_lsn <= barrier
        if whole and limits.hold(rows + s.commit_rows, size + s.commit_bytes):
            best, rows, size = s.last_commit_end_lsn, rows + s.commit_rows, size + s.commit_bytes
            continue
        # commits are in the order of their LSNs, so those before the barrier are a prefix
        found = _in_range(index(s.seq), start, LSN_MAX)
        found = found.slice(0, int((to_numpy(found.column("final_lsn")) < barrier).sum()))
        best, rows, size, took_all = _take(found, best, rows, size, limits, first=best == start)
        if not took_all or s.last_commit_end_lsn > barrier:
            break
    return best


def _take(
    found: pa.RecordBatch, best: int, rows: int, size: int, limits: Limits, *, first: bool
) -> tuple[int, int, int, bool]:
    """Go on through ``found`` while the limits hold; the very first transaction goes in whatever its size."""
    if not found.num_rows:
        return best, rows, size, True
    # int64[transactions]: what the batch would hold if it ended behind each; both only grow, so what fits is a prefix
    all_rows = rows + np.cumsum(to_numpy(found.column("rows")).astype(np.int64))
    all_bytes = size + np.cumsum(to_numpy(found.column("bytes")).astype(np.int64))
    fits = np.ones(found.num_rows, bool)
    if limits.max_rows is not None:
        fits &= all_rows <= limits.max_rows
    if limits.max_bytes is not None:
        fits &= all_bytes <= limits.max_bytes
    count = max(int(fits.sum()), int(first))
    if not count:
        return best, rows, size, False
    end = found.column("end_lsn")[count - 1].as_py()
    return end, int(all_rows[count - 1]), int(all_bytes[count - 1]), count == found.num_rows


def _commits_in(segments: Sequence[SegmentInfo], start: int, end: int) -> Iterator[SegmentInfo]:
    """The segments with a commit in the range."""
    for at in range(bisect_right(segments, start, key=attrgetter("end_lsn")), len(segments)):
        if segments[at].previous_end_lsn >= end:
            return
        if segments[at].commits and segments[at].first_commit_end_lsn <= end:
            yield segments[at]


def _parts(segment: SegmentInfo, index: Index, start: int, end: int) -> Iterator[Run | Extent]:
    """What the transactions in the range that end in the segment consist of, in their order."""
    if not segment.streamed and start < segment.first_commit_end_lsn and segment.last_commit_end_lsn <= end:
        yield from segment.runs
        return
    found = _in_range(index(segment.seq), start, end)
    since = 0
    for at in np.flatnonzero(list_sizes(found)).tolist():
        yield from merge_runs(found.slice(since, at - since))
        for extent in found.column("extents")[at].as_py():
            yield Extent(extent["seq"], extent["row_start"], extent["row_stop"])
        since = at + 1
    yield from merge_runs(found.slice(since))


def _in_range(index: pa.RecordBatch, start: int, end: int) -> pa.RecordBatch:
    ends = to_numpy(index.column("end_lsn"))
    # end LSNs ascend within a segment; side right, for the range is open at its start and closed at its end
    first, stop = (int(np.searchsorted(ends, np.uint64(lsn), side="right")) for lsn in (start, end))
    return index.slice(first, stop - first)


def _append(extents: list[Extent], extent: Extent) -> None:
    last = extents[-1] if extents else None
    if last and last.seq == extent.seq and last.row_stop == extent.row_start:
        extents[-1] = Extent(last.seq, last.row_start, extent.row_stop)
    else:
        extents.append(extent)
