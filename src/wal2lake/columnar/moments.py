"""Times of day as microseconds since midnight, with time zone beside its offset; money by the digits of its text.

No type of Delta's is a time of day. The number is what PostgreSQL keeps: it is compared and subtracted as it is, and
24:00:00 has one.

Source: src/backend/utils/adt/ (date.c time_out, time_send, timetz_out, timetz_send; datetime.c EncodeTimezone; cash.c
cash_out, cash_send).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wal2lake.columnar.binary import integers
from wal2lake.columnar.buffer import Mask, Positions
from wal2lake.columnar.cells import Cells, cast, fixed
from wal2lake.columnar.decimals import widen

_NO_TIME: Final = "it is no time of day"
_NO_MONEY: Final = "it is no amount of money"
_DAY_US: Final = 86_400_000_000
_MOST_OFFSET: Final = 16 * 3600  # MAX_TZDISP_HOUR, exclusive
Integers = npt.NDArray[np.int64]


def text_time(cells: Cells, arrow: pa.DataType) -> pa.Array:
    """HH:MM:SS, and up to six digits behind the point."""
    return fixed(_clock(cells, cells.length), arrow)


def binary_time(cells: Cells, arrow: pa.DataType) -> pa.Array:
    """µs since midnight."""
    return fixed(_in_a_day(cells, integers(cells, "i8").astype(np.int64, copy=False)), arrow)


def text_timetz(cells: Cells, arrow: pa.DataType) -> pa.Array:
    """A time, then the offset from UTC: a sign, HH, and :MM and :SS where they are not 0."""
    zone = np.zeros(len(cells), np.int64)  # of each cell, how many characters its offset has
    for length in (9, 6, 3):
        sign = cells.source.byte(np.maximum(cells.end - length, cells.start))
        zone = np.where(((sign == ord("+")) | (sign == ord("-"))) & (cells.length > length), length, zone)
    cells.refuse(zone == 0, _NO_TIME)
    at, offset = cells.end - zone, np.zeros(len(cells), np.int64)
    for place, seconds in ((1, 3600), (4, 60), (7, 1)):
        there = place < zone
        tens, ones = _digit(cells, at + place * there), _digit(cells, at + (place + 1) * there)
        colon = cells.source.byte(at + (place - 1) * there) == ord(":")
        cells.refuse(there & ((tens > 9) | (ones > 9) | ((place > 1) & (~colon | (tens > 5)))), _NO_TIME)
        offset += there * (10 * tens + ones) * seconds
    offset = np.where(cells.source.byte(at) == ord("-"), -offset, offset)
    return _with_zone(cells, _clock(cells, cells.length - zone), offset, arrow)


def binary_timetz(cells: Cells, arrow: pa.DataType) -> pa.Array:
    """µs since midnight, then Int32 seconds west of UTC."""
    cells.refuse_length(12)
    microseconds = _in_a_day(cells, cells.window().byteswap().view(np.int64))
    west = cells.window(8).astype(np.uint32).byteswap().view(np.int32).astype(np.int64)
    return _with_zone(cells, microseconds, -west, arrow)


def _with_zone(cells: Cells, microseconds: Integers, offset: Integers, arrow: pa.DataType) -> pa.StructArray:
    cells.refuse(np.abs(offset) >= _MOST_OFFSET, _NO_TIME)
    parts = [fixed(microseconds, pa.int64()), fixed(offset.astype(np.int32), pa.int32())]
    return pa.StructArray.from_arrays(parts, fields=list(arrow))


def _in_a_day(cells: Cells, microseconds: Integers) -> Integers:
    cells.refuse((microseconds < 0) | (microseconds > _DAY_US), _NO_TIME)
    return microseconds


def _digit(cells: Cells, position: Positions) -> Integers:
    """What the character stands for; more than 9 where it is no digit."""
    return (cells.source.byte(position) - np.uint8(ord("0"))).astype(np.int64)


def _clock(cells: Cells, length: Positions) -> Integers:
    """The time in the first ``length`` characters of each cell, in µs."""
    odd: Mask = (length < len("00:00:00")) | (length == len("00:00:00.")) | (length > len("00:00:00.000000"))
    odd |= (cells.source.byte(cells.start, 2) != ord(":")) | (cells.source.byte(cells.start, 5) != ord(":"))
    digits = [_digit(cells, cells.start + place) for place in (0, 1, 3, 4, 6, 7)]
    hours, minutes, seconds = (10 * tens + ones for tens, ones in zip(digits[::2], digits[1::2], strict=True))
    odd |= np.logical_or.reduce([digit > 9 for digit in digits]) | (minutes > 59) | (seconds > 60)
    odd |= (length > len("00:00:00")) & (cells.source.byte(cells.start, 8) != ord("."))
    fraction = np.zeros(len(cells), np.int64)
    for place in range(9, 15):
        there = place < length
        digit = _digit(cells, cells.start + place * there) * there
        odd |= digit > 9
        fraction = 10 * fraction + digit
    cells.refuse(odd, _NO_TIME)
    return _in_a_day(cells, ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + fraction)


def text_money(cells: Cells, arrow: pa.DataType) -> pa.Array:
    """An amount as the server's locale writes it, always with all digits of the least unit: without what stands between
    them they are the number that PostgreSQL keeps."""
    strings = cells.strings()
    digits = pc.replace_substring_regex(strings, "[^0-9]+", "")
    cells.refuse((pc.binary_length(digits).to_numpy() == 0) | (pc.binary_length(digits).to_numpy() > 19), _NO_MONEY)
    whole = cast(digits, pa.decimal128(19, 0), _NO_MONEY)
    amounts = pc.if_else(pc.match_substring_regex(strings, r"[-(]"), pc.negate(whole), whole)
    return pa.Array.from_buffers(arrow, len(cells), amounts.buffers(), offset=amounts.offset)


def binary_money(cells: Cells, arrow: pa.DataType) -> pa.Array:
    """The number of least units."""
    return fixed(widen(integers(cells, "i8").astype(np.int64, copy=False)), arrow)
