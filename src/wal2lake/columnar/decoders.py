"""The decoder of a column, by its type and the form its values came in."""

from __future__ import annotations

from functools import cache
from typing import Final

from wal2lake.columnar.binary import BINARY
from wal2lake.columnar.cells import Decoder
from wal2lake.columnar.lists import binary_array, text_array
from wal2lake.columnar.text import TEXT
from wal2lake.columnar.types import ColumnType

_WIDTHS: Final = {
    "bool": 1, "int2": 2, "int4": 4, "oid": 4, "float4": 4, "date": 4,
    "int8": 8, "float8": 8, "timestamp": 8, "timestamptz": 8, "uuid": 16, "interval": 16,
}  # fmt: skip


@cache
def text_decoder(kind: ColumnType) -> Decoder:
    """Of kind 't': the type's output text."""
    if kind.element is not None:
        return text_array(text_decoder(kind.element), kind.element.arrow)
    return TEXT[kind.codec]


@cache
def binary_decoder(kind: ColumnType) -> Decoder:
    """Of kind 'b': what the type's send function writes."""
    if kind.element is not None and kind.binary:
        element = kind.element
        return binary_array(binary_decoder(element), element.arrow, element.oid, _WIDTHS.get(element.codec))
    return BINARY[kind.codec if kind.binary else "output"]


def copy_decoder(kind: ColumnType) -> Decoder:
    """Of COPY binary, which asks the server for the text of what has no decoder of its binary form."""
    return binary_decoder(kind) if kind.binary else text_decoder(kind)
