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

from wal2lake.apply.packed import is_nested, one_nan, packed

Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

TAKE_BYTES = 1 << 30  # Arrow's strings have 32-bit offsets: no array holds 2 GiB or more


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
    wide = _wide(column.type)
    if wide == column.type or column.nbytes < TAKE_BYTES:
        return column.take(places)
    whole = column.cast(wide).combine_chunks()
    # int64[places]: bytes up to and with each; cut where the next TAKE_BYTES are full
    size = np.cumsum(pa.array(_sizes(whole)).take(places).fill_null(0).to_numpy())
    cuts = np.searchsorted(size, np.arange(TAKE_BYTES, size[-1] if len(size) else 0, TAKE_BYTES))
    bounds = pairwise([0, *np.unique(cuts).tolist(), len(places)])
    pieces = [_narrow(whole.take(places.slice(start, stop - start)), column.type) for start, stop in bounds]
    return pa.chunked_array(pieces, column.type)


def _wide(kind: pa.DataType) -> pa.DataType:
    """The type with offsets of 64 bits, where it has any; of a map the list of its pairs."""
    if pa.types.is_map(kind):
        pair = [pa.field("key", _wide(kind.key_type), nullable=False), ("value", _wide(kind.item_type))]
        return pa.large_list(pa.struct(pair))
    if pa.types.is_list(kind):
        return pa.large_list(_wide(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _wide(field.type)) for field in kind])
    return {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(kind, kind)


def _narrow(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The reverse; Arrow makes no map of a list."""
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        below = pa.struct([kind.key_field, kind.item_field]) if pa.types.is_map(kind) else kind.value_type
        lists = array.cast(pa.list_(array.type.value_type))
        elements = _narrow(lists.values, below)
        return pa.Array.from_buffers(kind, len(lists), lists.buffers()[:2], offset=lists.offset, children=[elements])
    if pa.types.is_struct(kind):
        fields = [_narrow(array.field(place), field.type) for place, field in enumerate(kind)]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=array.is_null())
    return array.cast(kind)


def _sizes(array: pa.Array) -> Ids:
    """int64[values]: bytes of the strings in each, and about those of what else there is."""
    kind = array.type
    if pa.types.is_large_list(kind):
        inner = np.append(0, np.cumsum(_sizes(array.flatten())))
        ends = np.cumsum(pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False))
        of_lists: Ids = np.diff(inner[np.append(0, ends)]) + 8
        return of_lists
    if pa.types.is_struct(kind):
        of_structs: Ids = np.sum([_sizes(field) for field in array.flatten()], axis=0, dtype=np.int64)
        return of_structs
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        sizes: Ids = pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False)
        return sizes
    return np.full(len(array), 16, np.int64)


def _bits(column: Any) -> pa.Array:
    """One array that Arrow compares bit for bit."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return packed(array) if is_nested(array.type) else one_nan(array)
