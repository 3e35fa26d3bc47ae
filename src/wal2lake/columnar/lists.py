"""Arrays as lists: the elements of all cells are found at once, and decoded as one column by their own type's decoder.

A list says neither where its indexes begin nor, when it is empty, how many dimensions it has; PostgreSQL's empty arrays
have none. What a column's list cannot say (another number of dimensions than it has levels, a first index other than
1) is a fault of shape, whatever the policy for values: only output text holds it.

Source: src/backend/utils/adt/arrayfuncs.c, array_out and array_send.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wal2lake.columnar.buffer import MARGIN, ByteBuffer, Mask, Positions
from wal2lake.columnar.cells import CellFault, Cells, Decoder
from wal2lake.columnar.text import NULL_AWARE

_NO_ARRAY: Final = "it is no array of its type"
_SHAPE: Final = "An array of {} dimensions, or with a first index other than 1,"
_MOST_DIMENSIONS: Final = 6
_OPEN, _CLOSE, _COMMA, _QUOTE, _SLASH, _BOUNDS = b'{},"\\['
_PAIRS: Final = [first << 8 | second for first, second in (b"{{", b"},", b",{", b"}}")]
_NULL: Final = int.from_bytes(b"NULL", "little")
_NULL_LENGTH: Final = 0xFFFFFFFF
_FEW: Final = 4  # arrays that are walked one by one, when all others have ended

Offsets = npt.NDArray[np.int32]


def depth_of(arrow: pa.DataType, element: pa.DataType) -> int:
    """How many levels of list ``arrow`` has above ``element``."""
    return 0 if arrow == element else 1 + depth_of(arrow.value_type, element)


def text_array(element: Decoder, kind: pa.DataType) -> Decoder:
    """A decoder of ``{1,NULL,"a b"}``; ``element`` decodes the elements, which become ``kind``."""

    def decode(cells: Cells, arrow: pa.DataType) -> pa.Array:
        levels, elements = _split(cells, depth_of(arrow, kind))
        return nested(levels, elements, element, arrow, kind)

    return decode


def binary_array(element: Decoder, kind: pa.DataType, oid: int, width: int | None) -> Decoder:
    """A decoder of what array_send writes; ``width``: of an element, in bytes, where all have the same."""

    def decode(cells: Cells, arrow: pa.DataType) -> pa.Array:
        depth = depth_of(arrow, kind)
        sizes = _sizes(cells, depth, oid)
        levels = _levels(sizes)
        elements = _walk(cells, np.prod(sizes, axis=0), depth, width)
        return nested(levels, elements, element, arrow, kind)

    return decode


def nested(
    levels: Sequence[Offsets], elements: Cells, element: Decoder, arrow: pa.DataType, kind: pa.DataType
) -> pa.Array:
    """The elements decoded, below as many lists; a fault is the array's that has the element."""
    try:
        values = decode_among_nulls(elements, element, kind)
    except CellFault as fault:
        of_cell = levels[0]  # of each array, its first element
        for offsets in levels[1:]:
            of_cell = offsets[of_cell]
        fault.index = int(np.searchsorted(of_cell, fault.index, "right")) - 1
        raise
    kinds = [arrow]
    while len(kinds) < len(levels):
        kinds.append(kinds[-1].value_type)
    for offsets, list_kind in zip(reversed(levels), reversed(kinds), strict=True):
        content = pa.py_buffer(np.ascontiguousarray(offsets))
        values = pa.Array.from_buffers(list_kind, len(offsets) - 1, [None, content], children=[values])
    return values


def decode_among_nulls(cells: Cells, decoder: Decoder, arrow: pa.DataType) -> pa.Array:
    """Decode cells of which some may be NULL (``cells.null``), by a decoder that may not know of NULLs."""
    null = cells.null
    if not len(cells):
        return pa.nulls(0, arrow)
    if null is None or not null.any():
        return decoder(replace(cells, null=None), arrow)
    if decoder in NULL_AWARE:
        return decoder(cells, arrow)
    rows = np.flatnonzero(~null)
    if not len(rows):
        return pa.nulls(len(cells), arrow)
    try:
        array = decoder(cells.take(rows), arrow)
    except CellFault as fault:
        fault.index = int(rows[fault.index])
        raise
    return array.take(pa.array(np.cumsum(~null) - 1, mask=null))


def _shape_fault(odd: Mask, dimensions: Positions) -> CellFault:
    index = int(odd.argmax())
    return CellFault(index, _SHAPE.format(int(dimensions[index])), unrepresentable=True, shape=True)


# -- text


def _split(cells: Cells, depth: int) -> tuple[list[Offsets], Cells]:
    """The offsets of each level's lists, the outermost first, and the elements without quotes and backslashes."""
    cells.refuse(cells.length < len("{}"), _NO_ARRAY)
    offsets, data = cells.gathered()
    text = np.frombuffer(data or b"", np.uint8)
    at = np.frombuffer(offsets, np.int32).astype(np.int64)
    start, end = at[:-1], at[1:]
    escaping = escaping_slashes(text)
    quotes = np.setdiff1d(np.flatnonzero(text == _QUOTE), escaping + 1, assume_unique=True)
    cells.refuse((np.searchsorted(quotes, end) - np.searchsorted(quotes, start)) % 2, _NO_ARRAY)
    _refuse_at(cells, end, escaping[np.searchsorted(quotes, escaping) % 2 == 0])
    # the braces and commas outside of quotes, and how deep it is behind each
    marks = np.flatnonzero((text == _OPEN) | (text == _CLOSE) | (text == _COMMA))
    if len(quotes):
        marks = marks[np.searchsorted(quotes, marks) % 2 == 0]
    mark = text[marks]
    level = np.cumsum((mark == _OPEN).astype(np.int8) - (mark == _CLOSE), dtype=np.int32)
    _require_shape(cells, text, (start, end), (marks, level), depth)
    inner = level == depth
    if depth > 1:  # a comma between two arrays, and nothing else
        empty = (mark[:-1] == _OPEN) & (mark[1:] == _CLOSE) & (level[:-1] == 1)
        outer = (level[:-1] > 0) & (level[:-1] < depth) & ~empty
        pairs = np.isin(mark[:-1].astype(np.int32) << 8 | mark[1:], _PAIRS)
        _refuse_at(cells, end, marks[:-1][outer & ~pairs])
    first = marks[inner & (mark != _CLOSE)] + 1
    after = marks[(inner & (mark == _COMMA)) | ((level == depth - 1) & (mark == _CLOSE))]
    if len(marks) + (after - first).sum() != len(text):  # something else stands between two of them
        own = np.bincount(np.searchsorted(end, marks, "right"), minlength=len(end))
        own += np.bincount(np.searchsorted(end, first, "right"), after - first, minlength=len(end)).astype(np.int64)
        cells.refuse(own != cells.length, _NO_ARRAY)
    said = first < after
    if not said.all():  # nothing between braces or commas: only {} may have that
        nothing = first[~said]
        _refuse_at(cells, end, nothing[cells.length[np.searchsorted(end, nothing, "right")] != len("{}")])
        first, after = first[said], after[said]
    opens = [marks[(level == deep) & (mark == _OPEN)] for deep in range(1, depth + 1)]
    levels = [_offsets(lists, inside) for lists, inside in zip(opens, [*opens[1:], first], strict=True)]
    return levels, _elements(cells, text, (first, after), quotes, escaping, end)


def _refuse_at(cells: Cells, end: Positions, positions: Positions) -> None:
    """Raise CellFault for the cell that has the first of these positions; ``end`` of each cell."""
    if len(positions):
        raise CellFault(int(np.searchsorted(end, positions[0], "right")), _NO_ARRAY)


def escaping_slashes(text: npt.NDArray[np.uint8]) -> Positions:
    """Where a backslash stands for what follows it: every other one of a run."""
    slashes = np.flatnonzero(text == _SLASH)
    places = np.arange(len(slashes))
    begins = np.append(True, np.diff(slashes) != 1)[: len(slashes)]
    found: Positions = slashes[(places - np.maximum.accumulate(np.where(begins, places, 0))) % 2 == 0]
    return found


def _require_shape(
    cells: Cells,
    text: npt.NDArray[np.uint8],
    bounds: tuple[Positions, Positions],
    marks: tuple[Positions, npt.NDArray[np.int32]],
    depth: int,
) -> None:
    """Each cell is one whole array, of ``depth`` dimensions or of none."""
    (start, end), (at, level) = bounds, marks
    bounded = text[start] == _BOUNDS
    if bounded.any():
        raise _shape_fault(bounded, np.full(len(cells), depth))
    cells.refuse((text[start] != _OPEN) | (text[end - 1] != _CLOSE), _NO_ARRAY)
    first = np.searchsorted(at, start)  # of each cell, its first brace
    ends = at[level <= 0]
    if len(ends) != len(end) or not np.array_equal(ends, end - 1):
        inside = np.minimum.reduceat(level, first) < 0
        early = np.bincount(np.searchsorted(end, ends, "right"), minlength=len(end)) != 1
        cells.refuse(inside | early | ~np.isin(end - 1, ends), _NO_ARRAY)
    deepest = np.maximum.reduceat(level, first) if len(first) else np.zeros(0, np.int32)
    odd = (deepest != depth) & (cells.length != len("{}"))
    if odd.any():
        raise _shape_fault(odd, deepest.astype(np.int64))


def _offsets(lists: Positions, inside: Positions) -> Offsets:
    """int32[lists + 1]: which of the things inside are each list's, by where lists and things begin."""
    return np.append(np.searchsorted(inside, lists), len(inside)).astype(np.int32)


def _elements(
    cells: Cells,
    text: npt.NDArray[np.uint8],
    bounds: tuple[Positions, Positions],
    quotes: Positions,
    escaping: Positions,
    end: Positions,
) -> Cells:
    """The texts between ``bounds`` as cells of a buffer of their own."""
    first, after = bounds
    quoted = text[first] == _QUOTE
    count = np.searchsorted(quotes, after) - np.searchsorted(quotes, first)
    wrong = (count != 2 * quoted) | (quoted & ((text[after - 1] != _QUOTE) | (after - first < 2)))
    _refuse_at(cells, end, first[wrong])
    source, start, length = pieces(cells, text, escaping, first + quoted, after - quoted)
    found = Cells(source, start, length, cells.unrepresentable)
    null = ~quoted & (found.length == len("NULL")) & (found.window() & 0xFFFFFFFF == _NULL)
    return replace(found, length=found.length * ~null, null=null) if null.any() else found


def pieces(
    cells: Cells, text: npt.NDArray[np.uint8], removed: Positions, first: Positions, after: Positions
) -> tuple[ByteBuffer, Positions, Positions]:
    """A buffer of ``text`` without the bytes at ``removed``; in it, where what stood at ``first`` … ``after`` begins,
    and how long it is."""
    if len(removed):
        kept = np.ones(len(text), np.bool_)
        kept[removed] = False
        text = text[kept]
        first, after = first - np.searchsorted(removed, first), after - np.searchsorted(removed, after)
    padded = np.zeros(len(text) + 2 * MARGIN, np.uint8)
    padded[MARGIN:-MARGIN] = text
    source = ByteBuffer(pa.py_buffer(padded))
    source.ascii = cells.source.ascii
    return source, first + MARGIN, after - first


# -- binary


def _sizes(cells: Cells, depth: int, oid: int) -> Positions:
    """int64[depth, cells]: how many there are in each dimension, all 0 of an empty array."""
    cells.refuse(cells.length < 12, _NO_ARRAY)
    head = cells.window().byteswap()  # uint64[cells]: number of dimensions, whether there are NULLs
    dimensions = (head >> 32).astype(np.int64)
    found = cells.window(8).astype(np.uint32).byteswap()
    cells.refuse((dimensions > _MOST_DIMENSIONS) | ((head & 0xFFFFFFFF) > 1) | (found != oid), _NO_ARRAY)
    empty = dimensions == 0
    odd = ~empty & (dimensions != depth)
    cells.refuse(cells.length < 12 + 8 * dimensions, _NO_ARRAY)
    if odd.any():
        raise _shape_fault(odd, dimensions)
    sizes = np.zeros((depth, len(cells)), np.int64)
    count = np.ones(len(cells), np.int64)
    for level in range(depth):
        bound = cells.window(12 + 8 * level).byteswap()  # uint64[cells]: size, first index
        sizes[level] = np.where(empty, 0, bound >> 32)
        shifted = ~empty & ((bound & 0xFFFFFFFF) != 1)
        if shifted.any():
            raise _shape_fault(shifted, dimensions)
        count *= sizes[level]
        # each element takes four bytes at least, so no hostile size makes more of them than there are bytes
        cells.refuse(~empty & ((count == 0) | (4 * count > cells.length)), _NO_ARRAY)
    return sizes


def _levels(sizes: Positions) -> list[Offsets]:
    levels, lists = [], np.ones(sizes.shape[1], np.int64)
    for size in sizes:
        each = np.repeat(size, lists)
        levels.append(np.append(0, np.cumsum(each)).astype(np.int32))
        lists = lists * size
    return levels


def _walk(cells: Cells, count: Positions, depth: int, width: int | None) -> Cells:
    """The elements; raise CellFault where they do not end with their array."""
    begin = cells.start + np.where(count > 0, 12 + 8 * depth, 12)
    found = None if width is None else _of_one_width(cells, begin, count, width)
    if found is None:
        found = one_after_another(cells, begin, count)
    return found


def _of_one_width(cells: Cells, begin: Positions, count: Positions, width: int) -> Cells | None:
    """The elements where all have ``width`` bytes, and none is NULL; else None."""
    if not np.array_equal(begin + count * (4 + width), cells.end):
        return None
    first = np.cumsum(count) - count
    at = np.repeat(begin - first * (4 + width), count) + np.arange(count.sum()) * (4 + width)
    length = cells.source.lengths(at)
    if (length != width).any():
        return None
    return Cells(cells.source, at + 4, length, cells.unrepresentable)


def one_after_another(cells: Cells, begin: Positions, count: Positions, reason: str = _NO_ARRAY) -> Cells:
    """Values behind their lengths (−1: NULL), ``count`` in each cell from ``begin`` on, and nothing else.

    The n-th of all cells together, for n from 0 on, while there are more than a few."""
    first, position = np.cumsum(count) - count, begin.copy()
    start, length = np.zeros((2, count.sum()), np.int64)
    null = np.zeros(len(start), np.bool_)
    going, place = np.flatnonzero(count), 0
    while len(going) > _FEW:
        at = position[going]
        size = cells.source.lengths(at)
        absent = size == _NULL_LENGTH
        size[absent] = 0
        index = first[going] + place
        start[index], length[index], null[index] = at + 4, size, absent
        position[going] = at + 4 + size
        place += 1
        going = going[count[going] > place]
    for cell in going.tolist():
        position[cell] = _alone(cells, int(position[cell]), slice(first[cell] + place, first[cell] + count[cell]),
                                (start, length, null), int(cells.end[cell]))  # fmt: skip
    cells.refuse(position != cells.end, reason)
    return Cells(cells.source, start, length, cells.unrepresentable, null if null.any() else None)


def _alone(cells: Cells, at: int, places: slice, found: tuple[Positions, Positions, Mask], end: int) -> int:
    """One array's elements, one by one; where they end, or beyond ``end`` if they do not fit."""
    data = memoryview(cells.source.data)
    starts: list[int] = []
    lengths: list[int] = []
    nulls: list[bool] = []
    for _ in range(places.start, places.stop):
        if at + 4 > end:
            return end + 1
        size = int.from_bytes(data[at : at + 4], "big")
        absent = size == _NULL_LENGTH
        size = 0 if absent else size
        starts.append(at + 4)
        lengths.append(size)
        nulls.append(absent)
        at += 4 + size
    found[0][places], found[1][places], found[2][places] = starts, lengths, nulls
    return at
