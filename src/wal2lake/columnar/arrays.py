"""Numbers between NumPy and Arrow without pandas, which Arrow's own ways import: it takes a second."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[Any]


def to_numpy(column: pa.Array) -> Numbers:
    """A number column without NULLs as a view."""
    kind = np.dtype(column.type.to_pandas_dtype())
    if not len(column):
        return np.empty(0, kind)
    return np.frombuffer(column.buffers()[1], kind, len(column), column.offset * kind.itemsize)


def gather(data: bytes | bytearray | pa.Buffer, kind: str, at: Numbers) -> Numbers:
    """The field of ``kind``, as '>u4', at each position of ``data``, which is known to reach that far; native."""
    size = np.dtype(kind).itemsize
    anywhere: Numbers = np.ndarray((max(0, len(data) - size + 1),), kind, data, strides=(1,))
    return anywhere[at].astype(np.dtype(kind).newbyteorder("="))


def to_arrow(values: Numbers, kind: pa.DataType | None = None) -> pa.Array:
    """A number array as Arrow."""
    kind = kind or pa.from_numpy_dtype(values.dtype)
    data = np.ascontiguousarray(values, kind.to_pandas_dtype())
    return pa.Array.from_buffers(kind, len(data), [None, pa.py_buffer(data)])
