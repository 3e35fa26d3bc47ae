"""The rows of an extent by relation: sorted once, so that each relation's are read without a look at all others'."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wal2lake.columnar.headers import DELETE, INSERT, TRUNCATE, UPDATE

GROUPED_SINCE: Final = 4  # relations: fewer are as soon picked out of all rows, each by itself

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RelationRows:
    """Rows of an extent, in order; ``row``: where in the extent each was, None: they are all of its rows."""

    batch: pa.RecordBatch
    row: Positions | None

    def between(self, first: int, stop: int) -> tuple[int, int]:
        """Which of them are rows ``first`` … ``stop`` (exclusive) of the extent, in the same manner."""
        if self.row is None:
            return first, stop
        start, end = np.searchsorted(self.row, (first, stop))
        return int(start), int(end)


class Grouped:
    """The changes in ``batch``, rows of SEGMENT_SCHEMA, by relation, in the log's order.

    With a Truncate among them nothing is sorted: it is of all the relations that it names.
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        tag, relation_id = (batch.column(name).to_numpy() for name in ("tag", "relation_id"))
        self._whole = RelationRows(batch, None) if (tag == TRUNCATE).any() else None
        if self._whole is not None:
            return
        changes = np.flatnonzero((tag == INSERT) | (tag == UPDATE) | (tag == DELETE))
        self._row: Positions = changes[np.argsort(relation_id[changes], kind="stable")]
        self._batch = batch.take(pa.array(self._row))
        found = zip(*np.unique(relation_id[self._row], return_index=True, return_counts=True), strict=True)
        self._places = {int(of): (int(start), int(start + count)) for of, start, count in found}

    def of(self, relation_id: int) -> RelationRows:
        """The relation's rows, which it has none of where it has no changes; or all rows, where a Truncate is."""
        if self._whole is not None:
            return self._whole
        start, stop = self._places.get(relation_id, (0, 0))
        return RelationRows(self._batch.slice(start, stop - start), self._row[start:stop])
