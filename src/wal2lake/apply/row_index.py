"""Two rows are one when their bits are: the equality by which PostgreSQL's logical decoding itself names rows.

heap_update compares key columns bytewise (datumIsEqual) to decide whether an old key must travel, so every
later message names a row by the very bits that it was last given: −0.0 is not 0.0, NaN is NaN, NULL is NULL.
The type's own equality (citext, numeric 1.0 = 1.00) would join rows that the stream tells apart.

Source: src/backend/access/heap/heapam.c, HeapDetermineColumnsInfo and ExtractReplicaIdentity.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

TAKE_BYTES = 1 << 30  # Arrow's strings have 32-bit offsets: no array holds 2 GiB or more
_WIDE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}


class RowIndex:
    """The distinct rows of a table, each with an id; finds other rows' ids by value.

    ``ids``: int64[N], the id (0 … distinct − 1) of each row the index was built from. Columns are matched by
    position and must have the same types. Built column by column: a row's id is that of the pair (id of its
    columns so far, code of this column's value).
    """

    def __init__(self, rows: pa.Table) -> None:
        self._levels: list[tuple[pa.Array, Ids]] = []
        self.ids: Ids = np.zeros(rows.num_rows, np.int64)
        for column in rows.columns:
            encoded = _bits(column).dictionary_encode(null_encoding="encode")
            values, codes = encoded.dictionary, encoded.indices.to_numpy().astype(np.int64)
            pairs: Ids = np.arange(len(values))  # int64[distinct so far], sorted: (id so far) * len(values) + code
            if self._levels:
                pairs, codes = np.unique(self.ids * len(values) + codes, return_inverse=True)
            self.ids = codes
            self._levels.append((values, pairs))
        self.distinct = len(self._levels[-1][1])

    def representatives(self) -> Ids:
        """int64[distinct]: for each id one row that has it."""
        rows = np.empty(self.distinct, np.int64)
        rows[self.ids] = np.arange(len(self.ids))
        return rows

    def find(self, rows: pa.Table) -> Ids:
        """int64[rows]: the id of each row, −1 where the index does not have it."""
        ids = np.zeros(rows.num_rows, np.int64)
        if not self.distinct:
            return ids - 1
        found = np.ones(rows.num_rows, np.bool_)
        for level, (column, (values, pairs)) in enumerate(zip(rows.columns, self._levels, strict=True)):
            known = pc.fill_null(pc.index_in(_bits(column), value_set=values), -1)
            codes: Ids = known.to_numpy(zero_copy_only=False).astype(np.int64)
            found &= codes >= 0
            if level == 0:
                ids = codes
                continue
            pair = ids * len(values) + codes
            ids = np.minimum(np.searchsorted(pairs, pair), len(pairs) - 1)
            found &= pairs[ids] == pair
        return np.where(found, ids, -1)


def take(rows: pa.Table, places: Ids | pa.Array) -> pa.Table:
    """The rows at ``places`` (NULL: NULLs), however large they are together: a huge transaction is one batch."""
    columns = [take_values(column, pa.array(places)) for column in rows.columns]
    return pa.table(columns, schema=rows.schema)


def take_values(column: pa.ChunkedArray, places: pa.Array) -> pa.ChunkedArray:
    """As ``take``, one column. Arrow would lay a string column end to end, and fails at 2 GiB of it."""
    wide = _WIDE.get(column.type)
    if wide is None or column.nbytes < TAKE_BYTES:
        return column.take(places)
    whole = column.cast(wide).combine_chunks()
    # int64[places]: bytes up to and with each; cut where the next TAKE_BYTES are full
    size = np.cumsum(pc.fill_null(pc.binary_length(whole), 0).take(places).fill_null(0).to_numpy())
    cuts = np.searchsorted(size, np.arange(TAKE_BYTES, size[-1] if len(size) else 0, TAKE_BYTES))
    bounds = pairwise([0, *np.unique(cuts).tolist(), len(places)])
    pieces = [whole.take(places.slice(start, stop - start)).cast(column.type) for start, stop in bounds]
    return pa.chunked_array(pieces, column.type)


def _bits(column: Any) -> pa.Array:
    """One array that Arrow compares bit for bit: floats as integers, every NaN as the one that PostgreSQL writes."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if not pa.types.is_floating(array.type):
        return array
    one_nan = pc.if_else(pc.is_nan(array), pa.scalar(float("nan"), array.type), array)
    return one_nan.view(pa.int64() if pa.types.is_float64(array.type) else pa.int32())
