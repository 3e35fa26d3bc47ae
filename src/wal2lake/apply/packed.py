"""Lists, structs and maps as bytes: two values are the same bytes exactly when they are the same value, bit for bit.

Arrow cannot index nested values. Each value tells its length, and NULL is a length of its own, so none runs into the
next.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_NULL: Final = -1


def is_nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_struct(kind) or pa.types.is_map(kind))


def packed(array: pa.Array) -> pa.BinaryArray:
    """Each value as bytes; NULL stays NULL."""
    missing = array.is_null()
    whole = _packed(array)
    return pc.if_else(missing, pa.scalar(None, pa.binary()), whole) if array.null_count else whole


def _packed(array: pa.Array) -> pa.BinaryArray:
    """Length and bytes of each value; a map is the list of its pairs, in the order in which they come."""
    if pa.types.is_map(array.type):
        array = array.cast(pa.list_(pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])))
    kind = array.type
    if pa.types.is_list(kind):
        body = _joined(array)
    elif pa.types.is_struct(kind):
        fields = [_packed(field) for field in array.flatten()]
        body = pc.binary_join_element_wise(*fields, b"") if fields else pa.array([b""] * len(array), pa.binary())
    else:
        body = one_nan(array).cast(pa.string()) if not pa.types.is_binary(kind) else array
        body = body.cast(pa.binary())
    body = pc.fill_null(body, b"")
    length: Any = pc.binary_length(body).to_numpy(zero_copy_only=False).astype("<i4")
    length[array.is_null().to_numpy(zero_copy_only=False)] = _NULL
    head = pa.Array.from_buffers(pa.binary(4), len(array), [None, pa.py_buffer(length)]).cast(pa.binary())
    return pc.binary_join_element_wise(head, body, b"")


def _joined(lists: pa.ListArray) -> pa.BinaryArray:
    """The elements of each list, one behind the other: they lie so already, so only offsets are made."""
    elements = _packed(lists.flatten())
    count = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    _, offsets, data = elements.buffers()
    bounds = np.frombuffer(offsets, np.int32)[elements.offset :][: len(elements) + 1]
    ends = np.append(0, np.cumsum(count))
    content = pa.py_buffer(np.ascontiguousarray(bounds[ends]))
    return pa.Array.from_buffers(pa.binary(), len(lists), [None, content, data])


def one_nan(array: pa.Array) -> pa.Array:
    """Floats as the integers of their bits, every NaN as the one that PostgreSQL writes; other numbers as they are."""
    if not pa.types.is_floating(array.type):
        return array
    single = pc.if_else(pc.is_nan(array), pa.scalar(float("nan"), array.type), array)
    return single.view(pa.int64() if pa.types.is_float64(array.type) else pa.int32())
