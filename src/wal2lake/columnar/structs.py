"""Composites and ranges as structs, multiranges as lists: the fields of all cells are found at once, and each field is
decoded as one column by its own type's decoder.

What stands in quotes has no meaning, and what is written between them is doubled where it is a quote or a backslash;
so whether a comma divides two fields is told by the number of quotes before it, whatever the depth.

A composite that got attributes since a value was sent has NULL in them, as on the server; one that has more than its
column's struct is of a type that was changed, and no policy for values lets it pass.

Source: src/backend/utils/adt/ (rowtypes.c record_out and record_send, rangetypes.c range_out and range_send,
multirangetypes.c multirange_out and multirange_send).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wal2lake.columnar.buffer import Mask, Positions
from wal2lake.columnar.cells import CellFault, Cells, Decoder
from wal2lake.columnar.lists import decode_among_nulls, nested, one_after_another, pieces

Texts = npt.NDArray[np.uint8]

_NO_COMPOSITE: Final = "it is no composite of its type"
_NO_RANGE: Final = "it is no range of its type"
_NO_MULTIRANGE: Final = "it is no multirange of its type"
_ATTRIBUTES: Final = "A composite has other attributes than when its table was read."
_OPEN, _CLOSE, _IN, _OUT, _COMMA, _QUOTE, _SLASH, _BRACE, _UNBRACE = b'()[],"\\{}'
_EMPTY: Final = int.from_bytes(b"empty", "little")
_NULL_LENGTH: Final = 0xFFFFFFFF
_IS_EMPTY, _LOWER_INC, _UPPER_INC, _NO_LOWER, _NO_UPPER = 1, 2, 4, 8, 16


def text_composite(decoders: Sequence[Decoder]) -> Decoder:
    """A decoder of ``(1,"a b",)``; ``decoders``: of the attributes."""

    def decode(cells: Cells, arrow: pa.DataType) -> pa.Array:
        cells.refuse(cells.length < len("()"), _NO_COMPOSITE)
        cells.refuse((cells.first_byte() != _OPEN) | (cells.source.byte(cells.end - 1) != _CLOSE), _NO_COMPOSITE)
        return _struct(_fields(cells, len(decoders), _NO_COMPOSITE), decoders, arrow)

    return decode


def binary_composite(decoders: Sequence[Decoder], oids: Sequence[int]) -> Decoder:
    """A decoder of what record_send writes: Int32 count, then OID, length and value of each attribute."""

    def decode(cells: Cells, arrow: pa.DataType) -> pa.Array:
        cells.refuse(cells.length < 4, _NO_COMPOSITE)
        count = cells.source.lengths(cells.start)
        _refuse_attributes(count > len(oids))
        position, fields = cells.start + 4, []  # int64[cells]: where each one's next attribute begins
        odd = np.zeros(len(cells), np.bool_)
        for place, oid in enumerate(oids):
            there = place < count
            odd |= there & (cells.source.lengths(position) != oid)
            length = cells.source.lengths(position, 4)
            null = ~there | (length == _NULL_LENGTH)
            length[null] = 0
            fields.append(Cells(cells.source, position + 8 * there, length, cells.unrepresentable, null))
            position = position + 8 * there + length
        cells.refuse(position != cells.end, _NO_COMPOSITE)
        _refuse_attributes(odd)
        return _struct(fields, decoders, arrow)

    return decode


def _struct(fields: Sequence[Cells], decoders: Sequence[Decoder], arrow: pa.DataType) -> pa.StructArray:
    children = [
        decode_among_nulls(cells, decoder, field.type)
        for cells, decoder, field in zip(fields, decoders, arrow, strict=True)
    ]
    return pa.StructArray.from_arrays(children, fields=list(arrow))


def _refuse_attributes(odd: Mask) -> None:
    if odd.any():
        raise CellFault(int(odd.argmax()), _ATTRIBUTES, changed=True)


def text_range(bound: Decoder) -> Decoder:
    """A decoder of ``[1,10)``, ``(,5]`` and ``empty``."""

    def decode(cells: Cells, arrow: pa.DataType) -> pa.Array:
        cells.refuse(cells.length < len("(,)"), _NO_RANGE)
        empty = (cells.length == len("empty")) & (cells.window() & 0xFFFFFFFFFF == _EMPTY)
        return _among_empty(cells, empty, whole, arrow)

    def whole(cells: Cells, arrow: pa.DataType) -> pa.Array:
        opens, closes = cells.first_byte(), cells.source.byte(cells.end - 1)
        cells.refuse(((opens != _OPEN) & (opens != _IN)) | ((closes != _CLOSE) & (closes != _OUT)), _NO_RANGE)
        bounds = _fields(cells, 2, _NO_RANGE, exactly=True)
        return _range(bounds, bound, (opens == _IN, closes == _OUT), arrow)

    return decode


def binary_range(bound: Decoder) -> Decoder:
    """A decoder of what range_send writes: a byte of flags, then length and value of each bound that there is."""

    def decode(cells: Cells, arrow: pa.DataType) -> pa.Array:
        cells.refuse(cells.length < 1, _NO_RANGE)
        flags = cells.first_byte()
        cells.refuse(flags > (_NO_UPPER << 1) - 1, _NO_RANGE)
        empty = (flags & _IS_EMPTY) != 0
        cells.refuse(empty & (cells.length != 1), _NO_RANGE)
        return _among_empty(cells, empty, whole, arrow)

    def whole(cells: Cells, arrow: pa.DataType) -> pa.Array:
        flags, position, bounds = cells.first_byte(), cells.start + 1, []
        for without in (_NO_LOWER, _NO_UPPER):
            there = (flags & without) == 0
            length = cells.source.lengths(position) * there
            bounds.append(Cells(cells.source, position + 4 * there, length, cells.unrepresentable, ~there))
            position = position + 4 * there + length
        cells.refuse(position != cells.end, _NO_RANGE)
        return _range(bounds, bound, ((flags & _LOWER_INC) != 0, (flags & _UPPER_INC) != 0), arrow)

    return decode


def _range(bounds: Sequence[Cells], bound: Decoder, inclusive: tuple[Mask, Mask], arrow: pa.DataType) -> pa.Array:
    """Ranges of which none is empty."""
    ends = [decode_among_nulls(cells, bound, arrow.field("lower").type) for cells in bounds]
    flags = [pa.array(flag) for flag in (*inclusive, np.zeros(len(inclusive[0]), np.bool_))]
    return pa.StructArray.from_arrays([*ends, *flags], fields=list(arrow))


def _among_empty(cells: Cells, empty: Mask, whole: Decoder, arrow: pa.DataType) -> pa.Array:
    if not empty.any():
        return whole(cells, arrow)
    found = decode_among_nulls(replace(cells, null=empty), whole, arrow)
    lower, upper, *inclusive, _ = found.flatten()
    flags = [pc.fill_null(flag, False) for flag in inclusive]
    return pa.StructArray.from_arrays([lower, upper, *flags, pa.array(empty)], fields=list(arrow))


def text_multirange(element: Decoder) -> Decoder:
    """A decoder of ``{[1,3),[5,7)}``; ``element`` decodes the ranges."""

    def decode(cells: Cells, arrow: pa.DataType) -> pa.Array:
        cells.refuse(cells.length < len("{}"), _NO_MULTIRANGE)
        braces = (cells.first_byte() != _BRACE) | (cells.source.byte(cells.end - 1) != _UNBRACE)
        cells.refuse(braces, _NO_MULTIRANGE)
        text, start, end, quotes = _quoted(cells, _NO_MULTIRANGE)
        first = _outside(quotes, np.flatnonzero((text == _OPEN) | (text == _IN)))
        after = _outside(quotes, np.flatnonzero((text == _CLOSE) | (text == _OUT))) + 1
        many = np.searchsorted(first, end) - np.searchsorted(first, start)
        cells.refuse(many != np.searchsorted(after, end) - np.searchsorted(after, start), _NO_MULTIRANGE)
        backwards = np.flatnonzero(after <= first)
        if len(backwards):
            raise CellFault(int(np.searchsorted(end, first[backwards[0]], "right")), _NO_MULTIRANGE)
        # of each cell: braces, ranges and the commas between them are all there is
        inside = np.append(0, np.cumsum(after - first))
        length = inside[np.searchsorted(first, end)] - inside[np.searchsorted(first, start)]
        cells.refuse(length + np.maximum(many - 1, 0) + 2 != end - start, _NO_MULTIRANGE)
        offsets = np.append(np.searchsorted(first, start), len(first)).astype(np.int32)
        source, at, size = pieces(cells, text, np.empty(0, np.int64), first, after)
        ranges = Cells(source, at, size, cells.unrepresentable)
        return nested([offsets], ranges, element, arrow, arrow.value_type)

    return decode


def binary_multirange(element: Decoder) -> Decoder:
    """A decoder of what multirange_send writes: Int32 count, then length and bytes of each range."""

    def decode(cells: Cells, arrow: pa.DataType) -> pa.Array:
        cells.refuse(cells.length < 4, _NO_MULTIRANGE)
        count = cells.source.lengths(cells.start)
        cells.refuse(4 * count > cells.length, _NO_MULTIRANGE)
        ranges = one_after_another(cells, cells.start + 4, count, _NO_MULTIRANGE)
        offsets = np.append(0, np.cumsum(count)).astype(np.int32)
        if ranges.null is not None:
            raise CellFault(int(np.searchsorted(offsets, ranges.null.argmax(), "right")) - 1, _NO_MULTIRANGE)
        return nested([offsets], ranges, element, arrow, arrow.value_type)

    return decode


# -- text


def _quoted(cells: Cells, reason: str) -> tuple[Texts, Positions, Positions, Positions]:
    """The cells' bytes back to back, where each begins and ends in them, and where the quotes stand."""
    offsets, data = cells.gathered()
    text: Texts = np.frombuffer(data or b"", np.uint8)
    at = np.frombuffer(offsets, np.int32).astype(np.int64)
    quotes = np.flatnonzero(text == _QUOTE)
    cells.refuse((np.searchsorted(quotes, at[1:]) - np.searchsorted(quotes, at[:-1])) % 2, reason)
    return text, at[:-1], at[1:], quotes


def _outside(quotes: Positions, places: Positions) -> Positions:
    return places[np.searchsorted(quotes, places) % 2 == 0] if len(quotes) else places


def _fields(cells: Cells, count: int, reason: str, *, exactly: bool = False) -> list[Cells]:
    """The texts between commas, of each cell without its brackets, NULL where there is nothing, not even quotes.

    ``exactly`` so many there must be; else what is missing at the end is NULL.
    """
    text, start, end, quotes = _quoted(cells, reason)
    commas = _outside(quotes, np.flatnonzero(text == _COMMA))
    place = np.searchsorted(commas, start)  # of each cell, its first comma
    many = np.searchsorted(commas, end) - place + 1
    if exactly:
        cells.refuse(many != count, reason)
    _refuse_attributes(many > count)
    bounded = np.append(commas, 0)  # where there is none, it is not looked at
    # int64[count, cells]: where each field begins and ends, which is where its cell does if there is none
    begin, stop = np.empty((2, count, len(cells)), np.int64)
    for field in range(count):
        comma = np.minimum(place + field, len(commas))
        stop[field] = np.where(field + 1 < many, bounded[comma], end - 1)
        begin[field] = start + 1 if field == 0 else np.where(field < many, bounded[comma - 1] + 1, end - 1)
    quoted = (text[begin] == _QUOTE) & (begin < stop)
    odd = quoted & ((stop - begin < 2) | (text[stop - 1] != _QUOTE))
    cells.refuse(odd.any(axis=0), reason)
    removed = _doubles(cells, text, end, np.setdiff1d(quotes, np.append(begin[quoted], stop[quoted] - 1)), reason)
    source, first, length = pieces(cells, text, removed, begin + quoted, stop - quoted)
    found = zip(first, length, ~quoted & (begin == stop), strict=True)
    return [Cells(source, at, size, cells.unrepresentable, null) for at, size, null in found]


def _doubles(cells: Cells, text: Texts, end: Positions, quotes: Positions, reason: str) -> Positions:
    """Of all that is doubled the second ones, in order; ``quotes``: those that stand for themselves."""
    seconds = []
    for marks in (quotes, np.flatnonzero(text == _SLASH)):
        alone = marks[: len(marks) // 2 * 2 : 2][marks[0::2][: len(marks) // 2] + 1 != marks[1::2]]
        alone = np.append(alone, marks[len(marks) // 2 * 2 :])
        if len(alone):
            raise CellFault(int(np.searchsorted(end, alone[0], "right")), reason)
        seconds.append(marks[1::2])
    return np.sort(np.concatenate(seconds))
