"""Types of extensions: hstore as map, pgvector's vectors as lists.

Source: contrib/hstore/hstore_io.c (hstore_out, hstore_send); pgvector src/vector.c and src/halfvec.c (vector_out,
vector_send, halfvec_send).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wal2lake.columnar.buffer import Positions
from wal2lake.columnar.cells import CellFault, Cells, Decoder, cast, gather
from wal2lake.columnar.lists import escaping_slashes, one_after_another, pieces

_NO_HSTORE: Final = "it is no hstore"
_NO_VECTOR: Final = "it is no vector"
_QUOTE, _EQUAL, _GREATER = b'"=>'
_ARROW: Final = len("=>")
_COMMA: Final = len(", ")


def text_hstore(cells: Cells, arrow: pa.DataType) -> pa.Array:
    r"""``"a"=>"1", "b"=>NULL``: all stands in quotes but NULL, and a backslash before quotes and backslashes."""
    offsets, data = cells.gathered()
    text = np.frombuffer(memoryview(data or b"").tobytes() + bytes(_ARROW + 1), np.uint8)
    at = np.frombuffer(offsets, np.int32).astype(np.int64)
    escaping = escaping_slashes(text)
    quotes = np.setdiff1d(np.flatnonzero(text == _QUOTE), escaping + 1, assume_unique=True)
    strings = np.diff(np.searchsorted(quotes, at))
    cells.refuse(strings % 2, _NO_HSTORE)
    opens, closes = quotes[0::2], quotes[1::2] + 1
    keys = np.flatnonzero((text[closes] == _EQUAL) & (text[closes + 1] == _GREATER))
    begin, stop = opens[keys], closes[keys]
    value = stop + _ARROW
    quoted = text[value] == _QUOTE
    after = np.where(quoted, closes[np.minimum(keys + 1, len(opens) - 1)], value + len("NULL"))
    cell = np.searchsorted(at[1:], begin, "right")
    count = np.bincount(cell, minlength=len(cells))
    # pairs and what stands between them are all there is, and no string is neither key nor value
    used = np.bincount(cell, after - begin, minlength=len(cells)) + _COMMA * np.maximum(count - 1, 0)
    values = np.bincount(cell, quoted, minlength=len(cells))
    cells.refuse((used != cells.length) | (count + values != strings // 2), _NO_HSTORE)
    first = np.append(begin + 1, value + quoted)  # of the keys, then of the values
    last = np.append(stop - 1, np.where(quoted, after - 1, value))
    source, first, length = pieces(cells, text, escaping, first, last)
    halves = [Cells(source, first[half], length[half], cells.unrepresentable, null)
              for half, null in ((slice(len(keys)), None), (slice(len(keys), None), ~quoted))]  # fmt: skip
    return _map(count, halves[0], halves[1], arrow)


def binary_hstore(cells: Cells, arrow: pa.DataType) -> pa.Array:
    """Int32 count; then keys and values by turns, each behind its length."""
    cells.refuse(cells.length < 4, _NO_HSTORE)
    count = cells.source.lengths(cells.start)
    cells.refuse(8 * count > cells.length, _NO_HSTORE)
    found = one_after_another(cells, cells.start + 4, 2 * count, _NO_HSTORE)
    keys = found.take(np.arange(0, len(found), 2))
    values = found.take(np.arange(1, len(found), 2))
    null = found.null
    if null is not None:
        if null[0::2].any():
            raise CellFault(int(np.searchsorted(np.cumsum(count), null[0::2].argmax(), "right")), _NO_HSTORE)
        values = replace(values, null=null[1::2])
    return _map(count, keys, values, arrow)


def _map(count: Positions, keys: Cells, values: Cells, arrow: pa.DataType) -> pa.MapArray:
    """The pairs of each cell, ``count`` of them."""
    offsets = np.append(0, np.cumsum(count)).astype(np.int32)
    try:
        found = [keys.strings(), values.strings()]
    except CellFault as fault:
        fault.index = int(np.searchsorted(offsets, fault.index, "right")) - 1
        raise
    return pa.MapArray.from_arrays(pa.array(offsets), *found).cast(arrow)


def text_vector(cells: Cells, arrow: pa.DataType) -> pa.Array:
    """``[1,2.5,3]``."""
    brackets = (cells.first_byte() != ord("[")) | (cells.source.byte(cells.end - 1) != ord("]"))
    cells.refuse(brackets | (cells.length < len("[0]")), _NO_VECTOR)
    inner = Cells(cells.source, cells.start + 1, cells.length - 2, cells.unrepresentable)
    lists = pc.split_pattern(inner.unchecked_strings(), ",")
    try:
        floats = cast(lists.values, arrow.value_type, _NO_VECTOR)
    except CellFault as fault:
        fault.index = int(np.searchsorted(lists.offsets, fault.index, "right")) - 1
        raise
    return pa.ListArray.from_arrays(lists.offsets, floats).cast(arrow)


def binary_vector(kind: str) -> Decoder:
    """A decoder of Int16 dimensions, two bytes of no use, then so many floats of numpy's ``kind`` in network order."""
    size = np.dtype(kind).itemsize

    def decode(cells: Cells, arrow: pa.DataType) -> pa.Array:
        cells.refuse(cells.length < 4, _NO_VECTOR)
        count = cells.window().astype(np.uint16).byteswap().astype(np.int64)
        cells.refuse(cells.length != 4 + size * count, _NO_VECTOR)
        _, data = gather(cells.source, (cells.start + 4, cells.end))
        floats = np.frombuffer(data or b"", f">{kind}").astype(np.float32)
        offsets = pa.array(np.append(0, np.cumsum(count)).astype(np.int32))
        return pa.ListArray.from_arrays(offsets, pa.array(floats)).cast(arrow)

    return decode
