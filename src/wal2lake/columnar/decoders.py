"""The decoder of a column, by its type and the form its values came in."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from wal2lake.columnar import binary, extensions, moments, structs, text
from wal2lake.columnar.cells import Decoder
from wal2lake.columnar.lists import binary_array, text_array
from wal2lake.columnar.types import ColumnType

_WIDTHS: Final = {
    "bool": 1, "int2": 2, "int4": 4, "oid": 4, "float4": 4, "date": 4, "time": 8, "timetz": 12, "xid8": 8, "money": 8,
    "int8": 8, "float8": 8, "timestamp": 8, "timestamptz": 8, "uuid": 16, "interval": 16,
}  # fmt: skip
_TEXT: Final[Mapping[str, Decoder]] = {
    **text.TEXT,
    "time": moments.text_time,
    "timetz": moments.text_timetz,
    "money": moments.text_money,
    "hstore": extensions.text_hstore,
    "vector": extensions.text_vector,
    "halfvec": extensions.text_vector,
}
_BINARY: Final[Mapping[str, Decoder]] = {
    **binary.BINARY,
    "time": moments.binary_time,
    "timetz": moments.binary_timetz,
    "money": moments.binary_money,
    "hstore": extensions.binary_hstore,
    "vector": extensions.binary_vector("f4"),
    "halfvec": extensions.binary_vector("f2"),
    "geometry": binary.bytea,
}


@cache
def text_decoder(kind: ColumnType) -> Decoder:
    """Of kind 't': the type's output text."""
    if kind.element is not None:
        element = text_decoder(kind.element)
        return (
            structs.text_multirange(element) if kind.codec == "multirange" else text_array(element, kind.element.arrow)
        )
    if kind.codec == "composite":
        return structs.text_composite([text_decoder(part) for part in kind.parts])
    return structs.text_range(text_decoder(kind.parts[0])) if kind.codec == "range" else _TEXT[kind.codec]


@cache
def binary_decoder(kind: ColumnType) -> Decoder:
    """Of kind 'b': what the type's send function writes."""
    if not kind.binary:
        return _BINARY["output"]
    if kind.codec == "array":
        element = kind.element
        assert element is not None
        return binary_array(binary_decoder(element), element.arrow, element.oid, _WIDTHS.get(element.codec))
    if kind.codec == "multirange":
        assert kind.element is not None
        return structs.binary_multirange(binary_decoder(kind.element))
    if kind.codec == "composite":
        decoders = [binary_decoder(part) for part in kind.parts]
        return structs.binary_composite(decoders, [part.oid for part in kind.parts])
    return structs.binary_range(binary_decoder(kind.parts[0])) if kind.codec == "range" else _BINARY[kind.codec]


def copy_width(kind: ColumnType) -> int | None:
    """How many bytes each value has in COPY binary; None: they differ."""
    return _WIDTHS.get(kind.codec) if kind.binary else None


def copy_decoder(kind: ColumnType) -> Decoder:
    """Of COPY binary, which asks the server for the text of what has no decoder of its binary form."""
    return binary_decoder(kind) if kind.binary else text_decoder(kind)
