"""Kind 'b' and COPY binary: what the types' send functions write, integers in network order.

Source: src/backend/utils/adt/ (numeric.c numeric_send, date.c, timestamp.c, uuid.c, jsonb.c jsonb_send).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wal2lake.columnar.buffer import Mask, Positions, Words
from wal2lake.columnar.cells import CellFault, Cells, Decoder, fixed
from wal2lake.columnar.decimals import Unscaled
from wal2lake.columnar.text import INFINITE_INTERVAL, NAN, NO_NUMBER, OUT_OF_RANGE, interval_array, string
from wal2lake.epoch import EPOCH_DAYS
from wal2lake.errors import RESYNC

_DAY_US: Final = 86_400_000_000
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # 0001-01-01, 9999-12-31
_NEGATIVE, _NUMERIC_NAN = 0x4000, 0xC000
_DIGIT = 10_000
_WORD_DIGITS: Final = 4  # in eight bytes
_JSONB_VERSION = 1
_LOW_32: Final = 0xFFFFFFFF
_HYPHEN: Final = ord("-")


def integers(cells: Cells, dtype: str) -> npt.NDArray[Any]:
    """Big-endian values of numpy ``dtype``, each as wide as its cell must be."""
    size = np.dtype(dtype).itemsize
    cells.refuse_length(size)
    # uint64[cells] with a value's first byte on top; what follows the cell is shifted out below it
    return (cells.window().byteswap() >> (64 - 8 * size)).astype(f"u{size}").view(dtype)


def boolean(cells: Cells, arrow: pa.DataType) -> pa.Array:
    """One byte, 0 or 1."""
    values = integers(cells, "u1")
    cells.refuse(values > 1, "it is no boolean")
    return pa.array(values.astype(bool))


def number(dtype: str) -> Decoder:
    """A decoder of two's complement or IEEE 754 numbers."""

    def decode(cells: Cells, arrow: pa.DataType) -> pa.Array:
        return fixed(integers(cells, dtype), arrow)

    return decode


def oid(cells: Cells, arrow: pa.DataType) -> pa.Array:
    """Unsigned 32 bits."""
    return fixed(integers(cells, "u4").astype(np.int64), arrow)


def xid8(cells: Cells, arrow: pa.DataType) -> pa.Array:
    """Unsigned 64 bits."""
    values = integers(cells, "u8")
    return fixed(np.column_stack([values, np.zeros_like(values)]), arrow)


def date(cells: Cells, arrow: pa.DataType) -> pa.Array:
    """Days since 2000-01-01; the smallest and greatest are -infinity and infinity."""
    days = integers(cells, "i4").astype(np.int64) + EPOCH_DAYS
    missing = cells.missing((days < _FIRST_DAY) | (days > _LAST_DAY), OUT_OF_RANGE)
    return fixed(days.astype(np.int32), arrow, missing)


def timestamp(cells: Cells, arrow: pa.DataType) -> pa.Array:
    """µs since 2000-01-01; the smallest and greatest are -infinity and infinity."""
    micros = integers(cells, "i8").astype(np.int64, copy=False)
    first, after = (_FIRST_DAY - EPOCH_DAYS) * _DAY_US, (_LAST_DAY + 1 - EPOCH_DAYS) * _DAY_US
    missing = cells.missing((micros < first) | (micros >= after), OUT_OF_RANGE)
    return fixed(micros + EPOCH_DAYS * _DAY_US, arrow, missing)


_ENDLESS: Final = {  # both ends, since PostgreSQL 17: months, days, microseconds
    (2**31 - 1, 2**31 - 1, 2**63 - 1),
    (-(2**31), -(2**31), -(2**63)),
}


def interval(cells: Cells, arrow: pa.DataType) -> pa.Array:
    """µs, Int32 days, Int32 months."""
    cells.refuse_length(16)
    microseconds = cells.window().byteswap().view(np.int64)
    rest = cells.window(8).byteswap().view(np.int64)
    days, months = rest >> 32, rest.astype(np.int32).astype(np.int64)
    endless = np.zeros(len(cells), np.bool_)
    for end in _ENDLESS:
        endless |= (months == end[0]) & (days == end[1]) & (microseconds == end[2])
    return interval_array(months, days, microseconds, arrow, cells.missing(endless, INFINITE_INTERVAL))


def numeric(cells: Cells, arrow: pa.DataType) -> pa.Array:
    """Int16 ndigits, weight, sign, dscale; then ndigits base-10000 digits, the first worth 10000 ** weight."""
    cells.refuse(cells.length < 8, NO_NUMBER)
    header = cells.window().byteswap()  # uint64[cells]: ndigits | weight | sign | dscale, 16 bits each
    count, sign = (header >> 48).view(np.int64), header >> 16 & 0xFFFF
    weight = (header >> 32).astype(np.uint16).view(np.int16).astype(np.int64)
    missing = cells.missing(sign == _NUMERIC_NAN, NAN)
    number = Unscaled(len(cells), arrow.precision)
    wrong = (cells.length != 8 + 2 * count) | ((sign != 0) & (sign != _NEGATIVE) & (sign != _NUMERIC_NAN))
    wrong |= _append_digits(number, cells, count, weight, arrow)
    cells.refuse(wrong, NO_NUMBER)
    return number.decimal(arrow, sign == _NEGATIVE, missing)


def _append_digits(number: Unscaled, cells: Cells, count: Positions, weight: Positions, arrow: pa.DataType) -> Mask:
    """Every base-10000 digit that numeric(p, s) has room for; returns where there are others, or no digits."""
    # the digit groups that p - s digits before the point and s behind it need, rounded up: weights highest … -lowest
    highest, lowest = -(-(arrow.precision - arrow.scale) // 4) - 1, -(-arrow.scale // 4)
    wrong: Mask = (count > 0) & ((weight > highest) | (count - weight - 1 > lowest))
    words = cells.window(8).byteswap() if int(count.max(initial=0)) <= _WORD_DIGITS else None  # all that there are
    # one round per place, from the highest that any cell of use has: the same place of all numbers at once
    top = int(weight.max(initial=0, where=(count > 0) & ~wrong))
    for place in range(top, -lowest - 1, -1):
        index = weight - place  # int64[cells]: which of a cell's digits stands here; outside of 0 … count: none
        there = (index >= 0) & (index < count)
        if words is not None:
            shift = (np.where(there, _WORD_DIGITS - 1 - index, 0) << 4).view(np.uint64)
            digit = (words >> shift & 0xFFFF) * there
        else:
            # behind the header of 8 bytes; where there is none the cell's own start, which is safe to read, times 0
            window = cells.source.window(np.where(there, cells.start + 8 + 2 * index, cells.start))
            digit = (window.astype(np.uint16).byteswap() * there).astype(np.uint64)
        wrong |= digit >= _DIGIT
        # the last group behind the point may reach beyond s: what it has there must be zeros (dscale is at most s)
        digits_kept = min(arrow.scale + 4 * (place + 1), 4)
        if digits_kept < 4:
            cut = 10 ** (4 - digits_kept)
            wrong |= digit % cut != 0
            digit //= cut
        number.append(digit, 10**digits_kept)
    return wrong


# 36 characters in five words: 0-7, 8-15 (-4444-66), 16-23 (88-aaaa-), 24-31, 32-35.
_UUID_TEXT: Final = np.dtype([(name, "<u8") for name in "abcd"] + [("e", "<u4")])


def uuid(cells: Cells, arrow: pa.DataType) -> pa.Array:
    """16 bytes, as 36 characters."""
    cells.refuse_length(16)
    early, late = cells.window(), cells.window(8)
    first, second, third, last = hex_digits(early), hex_digits(early >> 32), hex_digits(late), hex_digits(late >> 32)
    # each word of 8 characters, first in the lowest byte; the hyphens shift what follows them
    text = np.empty(len(cells), _UUID_TEXT)
    text["a"] = first
    text["b"] = (second & _LOW_32) << 8 | second >> 32 << 48 | (_HYPHEN | _HYPHEN << 40)
    text["c"] = second >> 48 | (third & _LOW_32) << 24 | (_HYPHEN << 16 | _HYPHEN << 56)
    text["d"] = third >> 32 | last << 32
    text["e"] = last >> 32
    offsets = np.arange(0, 36 * len(cells) + 1, 36, dtype=np.int32)
    return pa.Array.from_buffers(arrow, len(cells), [None, pa.py_buffer(offsets), pa.py_buffer(text)])


def hex_digits(words: Words) -> Words:
    """The low four bytes of each word as eight characters; the lowest byte first, in each as text."""
    lanes = words & _LOW_32  # uint64[words]: four bytes side by side …
    lanes = (lanes | lanes << 16) & 0x0000FFFF0000FFFF  # … two and two, 32 bits apart …
    lanes = (lanes | lanes << 8) & 0x00FF00FF00FF00FF  # … each in 16 bits of its own
    nibbles = (lanes >> 4 | lanes << 8) & 0x0F0F0F0F0F0F0F0F  # the high one first: it is the first character
    letters = (nibbles + 0x0606060606060606) >> 4 & 0x0101010101010101  # 1 where a nibble is 10 or more
    text: Words = nibbles + letters * (ord("a") - ord("9") - 1) + 0x3030303030303030
    return text


def jsonb(cells: Cells, arrow: pa.DataType) -> pa.Array:
    """A version byte, then the text."""
    wrong = (cells.length < 1) | (cells.first_byte() != _JSONB_VERSION)
    cells.refuse(wrong, "it is no jsonb of version 1")
    return cells.without(1).strings()


def bytea(cells: Cells, arrow: pa.DataType) -> pa.Array:
    """The bytes."""
    return cells.binary()


def no_text(cells: Cells, arrow: pa.DataType) -> pa.Array:
    """Only the server knows the output text of a type that the table does not hold."""
    raise CellFault(0, "A value in binary form, of a type that lands as text,", RESYNC, unrepresentable=True)


BINARY: Final[Mapping[str, Decoder]] = {
    "bool": boolean,
    "bytea": bytea,
    "int2": number("i2"),
    "int4": number("i4"),
    "int8": number("i8"),
    "oid": oid,
    "xid8": xid8,
    "float4": number("f4"),
    "float8": number("f8"),
    "numeric": numeric,
    "interval": interval,
    "date": date,
    "timestamp": timestamp,
    "timestamptz": timestamp,
    "text": string,
    "jsonb": jsonb,
    "uuid": uuid,
    "output": no_text,
}
