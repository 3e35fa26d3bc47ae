"""One table compared: the same ranges digested on both sides, and the first that differ narrowed to a few rows.

The source is digested before the lake is where it should be, and no lock on it outlives a look at it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from wal2lake.verify.comparison import ComparedColumn, Comparison, Piece, Window
from wal2lake.verify.locations import LakeRows
from wal2lake.verify.report import Key, KeyRange, TableResult
from wal2lake.verify.source_snapshot import SourceSnapshot, TableMovedError
from wal2lake.verify.source_table import source_table

RANGE_ROWS = 25_000
_EXPLAINED = 32  # differing ranges that are looked at more closely
_FEW_ROWS = 16  # what needs no narrowing
_NARROWINGS = 2
_CUTS = 64  # parts a range is cut into each time: 25,000 rows, 400, 6
_NAMED_COLUMNS = 400  # PostgreSQL's limit of 1664 result columns, two sums each

Digests = dict[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class SourceDigest:
    """Every row of a source table digested, in the ranges of ``window``; it took ``seconds``."""

    comparison: Comparison
    window: Window
    digests: Digests
    seconds: float


def digest_source(snapshot: SourceSnapshot, comparison: Comparison, range_rows: int) -> SourceDigest:
    """Read the whole table in one transaction. Raises TableMovedError when the snapshot's rows are gone."""
    began = time.monotonic()
    with source_table(snapshot, comparison) as source:
        window = Window(source.bounds((None, None), range_rows))
        digests = source.digests(window, [comparison.columns])
    return SourceDigest(comparison, window, digests, time.monotonic() - began)


class TableComparison:
    """Both sides of one table, ready to be digested over any window of keys.

    ``note`` says after the run why differing ranges were not narrowed, if so.
    """

    def __init__(self, snapshot: SourceSnapshot, digest: SourceDigest, lake: LakeRows) -> None:
        self.note: str | None = None
        self._comparison = digest.comparison
        self._snapshot = snapshot
        self._digest = digest
        self._lake = lake

    def run(self, version: int) -> TableResult:
        """Compare every row; the result names what differs."""
        began = time.monotonic()
        table, window, source = self._comparison.table, self._digest.window, self._digest.digests
        lake = self._lake.digests(self._comparison, window, [self._comparison.columns])
        missing = ", ".join(self._comparison.missing)
        return TableResult(
            namespace=table.namespace,
            name=table.name,
            lsn=self._snapshot.lsn,
            version=version,
            rows_source=sum(digest[0] for digest in source.values()),
            rows_lake=sum(digest[0] for digest in lake.values()),
            ranges=len(window.bounds) + 1,
            bad_ranges=tuple(self._explain(self._differing(window, source, lake))),
            seconds=self._digest.seconds + time.monotonic() - began,
            problem=f"the lake lacks the published columns {missing}; all others were compared" if missing else None,
        )

    def _differing(self, window: Window, source: Digests, lake: Digests) -> list[KeyRange]:
        column = self._comparison.key[0].name
        return [
            KeyRange(column, *window.range(i), source.get(i, (0,))[0], lake.get(i, (0,))[0])
            for i in sorted(source.keys() | lake.keys())
            if source.get(i) != lake.get(i)
        ]

    def _explain(self, bad: list[KeyRange]) -> list[KeyRange]:
        """The first ranges of ``bad`` narrowed to a few rows each, with the columns that differ; the rest as it is."""
        few, rest = bad[:_EXPLAINED], bad[_EXPLAINED:]
        try:
            for _ in range(_NARROWINGS):
                if all(max(one.rows_source, one.rows_lake) <= _FEW_ROWS for one in few):
                    break
                parts = self._narrow(few)
                if len(parts) > _EXPLAINED:  # the difference is everywhere: many small ranges would say less
                    break
                few = parts
            few = self._name_columns(few) if few else []
        except TableMovedError as error:  # what differs is proven; only a closer look is not to be had any more
            self.note = f"The differing ranges of {error.relation} are as coarse as they were found. {error.message}"
        return few + rest

    def _narrow(self, bad: Sequence[KeyRange]) -> list[KeyRange]:
        """The parts of ``bad`` that differ."""
        columns = self._comparison.columns
        with source_table(self._snapshot, self._comparison) as table:
            inner = [key for one in bad for key in table.bounds(_ends(one), max(1, one.rows_source // _CUTS))]
            window = _window(bad, inner)
            source = table.digests(window, [columns])
        return self._differing(window, source, self._lake.digests(self._comparison, window, [columns]))

    def _name_columns(self, bad: Sequence[KeyRange]) -> list[KeyRange]:
        """Name the columns that differ, each digested together with its row's key; none if the keys themselves do."""
        key, columns = self._comparison.key, self._comparison.columns[:_NAMED_COLUMNS]
        window = _window(bad)
        groups = [key, *([*key, column] for column in columns)]
        with source_table(self._snapshot, self._comparison) as table:
            source = table.digests(window, groups)
        lake = self._lake.digests(self._comparison, window, groups)
        named = {window.range(i): _differing_columns(columns, source[i], lake[i]) for i in source.keys() & lake.keys()}
        return [replace(one, columns=named.get(_ends(one), ())) for one in bad]


def _ends(one: KeyRange) -> Piece:
    return one.lower, one.upper


def _window(ranges: Sequence[KeyRange], inner: Iterable[Key] = ()) -> Window:
    """Just these ranges, cut further at ``inner``. Python orders text by code points, which is UTF-8's byte order."""
    pieces = tuple(map(_ends, ranges))
    ends = (end for piece in pieces for end in piece if end is not None)
    return Window(tuple(sorted({*ends, *inner})), pieces)


def _differing_columns(
    columns: Sequence[ComparedColumn], source: tuple[int, ...], lake: tuple[int, ...]
) -> tuple[str, ...]:
    """``source`` and ``lake``: row count, two sums of the keys, then two of each column."""
    if source[:3] != lake[:3]:
        return ()
    places = range(3, len(source), 2)
    return tuple(c.name for c, i in zip(columns, places, strict=True) if source[i : i + 2] != lake[i : i + 2])
