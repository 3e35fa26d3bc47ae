"""Kind 't': what the types' output functions write, under DateStyle ISO, TimeZone UTC, IntervalStyle postgres.

Arrow's casts read it. What they refuse is looked at once more: a value that PostgreSQL has and the lake type has not
(infinity, NaN in a numeric, years outside 1 to 9999) is told from text that is no such value at all.

Source: src/backend/utils/adt/ (int8.c, numeric.c, float.c, date.c, timestamp.c, datetime.c EncodeDateTime and
EncodeInterval, varlena.c).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wal2lake.columnar.buffer import Mask
from wal2lake.columnar.cells import Cells, Decoder, cast, fixed, gather, try_cast
from wal2lake.columnar.decimals import WORD_DIGITS, widen

NO_NUMBER: Final = "it is no number of its type"
NO_TIME: Final = "it is no date or time in ISO form with time zone UTC"
OUT_OF_RANGE: Final = "A date or time outside the years 1 to 9999, or infinity,"
NAN: Final = "NaN in a numeric"
NO_INTERVAL: Final = "it is no interval in style postgres"
INFINITE_INTERVAL: Final = "An infinite interval"
TOO_MANY_DIGITS: Final = "A numeric that is infinite, NaN or of more digits"
TOO_LARGE: Final = "A numeric that is greater than any double"


def _word(text: bytes) -> int:
    return int.from_bytes(text.ljust(8, b"\0"), "little")


_NAN, _INFINITY, _BC, _HEX_PREFIX = _word(b"NaN"), _word(b"infinity"), _word(b" BC"), _word(rb"\x")


def boolean(cells: Cells, arrow: pa.DataType) -> pa.Array:
    """'t' or 'f'."""
    cells.refuse_length(1)
    first = cells.first_byte()
    cells.refuse((first != ord("t")) & (first != ord("f")), "it is no boolean")
    return pa.array(first == ord("t"))


def number(cells: Cells, arrow: pa.DataType) -> pa.Array:
    """A decimal integer, or a float in its shortest exact form, NaN, Infinity, -Infinity."""
    return cast(cells.unchecked_strings(), arrow, NO_NUMBER)


def oid(cells: Cells, arrow: pa.DataType) -> pa.Array:
    """An unsigned 32-bit integer."""
    return number(cells, pa.uint32()).cast(arrow)


def numeric(cells: Cells, arrow: pa.DataType) -> pa.Array:
    """numeric(p, s): always s digits behind the point, so one can leave the point out and read an integer."""
    if arrow.precision > WORD_DIGITS or arrow.scale == 0:
        return _cast_or_missing(cells, arrow, _is_nan, NAN, NO_NUMBER)
    point = cells.end - arrow.scale - 1
    odd = (cells.length < arrow.scale + 2) | (cells.source.byte(point) != ord("."))
    if odd.any():
        missing = cells.missing(_is_nan(cells), NAN)
        cells.refuse(odd if missing is None else odd & ~missing, NO_NUMBER)
        rows, index = np.flatnonzero(~odd), np.cumsum(~odd) - 1
        return (
            numeric(cells.take(rows), arrow).take(pa.array(index, mask=odd)) if len(rows) else pa.nulls(len(odd), arrow)
        )
    offsets, digits = gather(cells.source, (cells.start, point, point + 1, cells.end))
    whole_cells = pa.py_buffer(np.frombuffer(offsets, np.int32)[::2].copy())
    strings = pa.Array.from_buffers(pa.string(), len(cells), [None, whole_cells, digits])
    unscaled = cast(strings, pa.int64(), NO_NUMBER).to_numpy()
    cells.refuse(np.abs(unscaled) >= 10**arrow.precision, NO_NUMBER)
    return fixed(widen(unscaled), arrow)


def any_numeric(cells: Cells, arrow: pa.DataType) -> pa.Array:
    """A numeric of any number of digits, where each has a place in ``arrow``, or is unrepresentable."""
    strings = cells.unchecked_strings()
    few = pa.types.is_floating(arrow) or int(cells.length.max(initial=0)) <= arrow.precision  # of more Arrow makes 0
    array = try_cast(strings, arrow) if few else None
    if array is not None and (pa.types.is_decimal(arrow) or np.isfinite(array.to_numpy()).all()):
        return array
    digits = pc.extract_regex(strings, r"^(?P<s>-?)(?P<i>[0-9]+)(?:\.(?P<f>[0-9]*?)0*)?$")
    special = pc.match_substring_regex(strings, "^(NaN|-?Infinity)$").to_numpy(zero_copy_only=False)
    cells.refuse(digits.is_null().to_numpy(zero_copy_only=False) & ~special, NO_NUMBER)
    if pa.types.is_floating(arrow):
        array = cast(strings, arrow, NO_NUMBER) if array is None else array
        endless = np.isinf(array.to_numpy()) & ~special
        missing = cells.missing(endless, TOO_LARGE)
        return array if missing is None else fixed(array.to_numpy(), arrow, missing)
    sign, whole, fraction = (pc.fill_null(pc.struct_field(digits, name), "") for name in "sif")
    before = np.where(pc.equal(whole, "0").to_numpy(zero_copy_only=False), 0, pc.binary_length(whole).to_numpy())
    odd = special | (before > arrow.precision - arrow.scale) | (pc.binary_length(fraction).to_numpy() > arrow.scale)
    missing = cells.missing(odd, TOO_MANY_DIGITS)
    point = pc.if_else(pc.equal(fraction, ""), "", ".")
    plain = pc.binary_join_element_wise(sign, whole, point, fraction, "")
    kept = plain if missing is None else pc.if_else(pa.array(missing), pa.scalar(None, pa.string()), plain)
    return kept.cast(arrow)


def time(cells: Cells, arrow: pa.DataType) -> pa.Array:
    """YYYY-MM-DD, for timestamps with HH:MM:SS, up to six digits behind the point, and +00 with time zone."""
    return _cast_or_missing(cells, arrow, _is_out_of_range, OUT_OF_RANGE, NO_TIME)


_INTERVAL: Final = (
    r"^(?:(?P<years>[-+]?[0-9]+) years? ?)?(?:(?P<months>[-+]?[0-9]+) mons? ?)?(?:(?P<days>[-+]?[0-9]+) days? ?)?"
    r"(?:(?P<sign>[-+]?)(?P<hours>[0-9]+):(?P<minutes>[0-9]{2}):(?P<seconds>[0-9]{2})(?:\.(?P<fraction>[0-9]{1,6}))?)?$"
)


def interval(cells: Cells, arrow: pa.DataType) -> pa.Array:
    """IntervalStyle postgres: 1 year 2 mons -3 days +04:05:06.789, of which some may be missing."""
    strings = cells.unchecked_strings()
    parts = pc.extract_regex(strings, _INTERVAL)
    endless = pc.match_substring_regex(strings, "^-?infinity$").to_numpy(zero_copy_only=False)
    missing = cells.missing(endless, INFINITE_INTERVAL)
    unread = parts.is_null().to_numpy(zero_copy_only=False) | (cells.length == 0)
    cells.refuse(unread if missing is None else unread & ~missing, NO_INTERVAL)
    found = {field.name: pc.fill_null(pc.struct_field(parts, field.name), "") for field in parts.type}
    number = {name: _integers(found[name]) for name in ("years", "months", "days", "hours", "minutes", "seconds")}
    time = ((number["hours"] * 60 + number["minutes"]) * 60 + number["seconds"]) * 1_000_000
    time += _integers(pc.utf8_rpad(found["fraction"], 6, "0"))
    backwards = pc.equal(found["sign"], "-").to_numpy(zero_copy_only=False)
    return interval_array(number["years"] * 12 + number["months"], number["days"], np.where(backwards, -time, time),
                          arrow, missing)  # fmt: skip


def _integers(texts: pa.StringArray) -> npt.NDArray[np.int64]:
    """Decimal integers with or without a sign; nothing is 0."""
    signed = pc.if_else(pc.equal(texts, ""), "0", pc.utf8_ltrim(texts, "+"))
    numbers: npt.NDArray[np.int64] = cast(signed, pa.int64(), NO_INTERVAL).to_numpy()
    return numbers


def interval_array(
    months: npt.NDArray[np.int64],
    days: npt.NDArray[np.int64],
    microseconds: npt.NDArray[np.int64],
    arrow: pa.DataType,
    missing: Mask | None,
) -> pa.Array:
    """The three parts that an interval has, none of which can be told by another."""
    parts = [fixed(months.astype(np.int32), pa.int32()), fixed(days.astype(np.int32), pa.int32()),
             fixed(microseconds, pa.int64())]  # fmt: skip
    return pa.StructArray.from_arrays(parts, fields=list(arrow), mask=None if missing is None else pa.array(missing))


def _cast_or_missing(
    cells: Cells, arrow: pa.DataType, outside: Callable[[Cells], Mask], what: str, reason: str
) -> pa.Array:
    """Cast; where that fails, the cells that are ``outside`` of the type are unrepresentable, others malformed."""
    array = try_cast(cells.unchecked_strings(), arrow)
    if array is None:
        missing = cells.missing(outside(cells), what)
        array = cast(cells.unchecked_strings(missing), arrow, reason)
    return array


def _is_nan(cells: Cells) -> Mask:
    nan: Mask = (cells.length == 3) & (cells.window() & 0xFFFFFF == _NAN)
    return nan


def _is_out_of_range(cells: Cells) -> Mask:
    """infinity, -infinity, years before 1 and years of five digits and more."""
    last = cells.source.window(cells.end - 8)
    fifth = (cells.window() >> 32) & 0xFF
    infinite = (last == _INFINITY) & (cells.length >= len("infinity")) & (cells.length <= len("-infinity"))
    before_christ = (last >> 40 == _BC) & (cells.length >= len("0001-01-01 BC"))
    five_digits = (fifth - ord("0") <= 9) & (cells.length >= len("10000-01-01"))
    outside: Mask = infinite | before_christ | five_digits
    return outside


_NO_DIGIT: Final = 256


def _pairs(digits: bytes) -> npt.NDArray[np.uint16]:
    """uint16[65536]: the byte that two characters stand for, the first in the lower byte; beyond 255 where none is."""
    one = np.full(256, _NO_DIGIT, np.uint16)
    one[list(digits)] = range(16)
    return (one[np.newaxis, :] << 4 | one[:, np.newaxis]).astype(np.uint16).reshape(-1)


_SMALL: Final = _pairs(b"0123456789abcdef")
_LARGE: Final = _pairs(b"0123456789ABCDEF")
_NO_HEX = "it is no bytea in hex form"


def bytea(cells: Cells, arrow: pa.DataType) -> pa.Array:
    r"""\x and two hexadecimal digits per byte."""
    cells.refuse((cells.length < 2) | (cells.window() & 0xFFFF != _HEX_PREFIX), _NO_HEX)
    return _hexadecimal(cells.without(2), arrow, _SMALL, _NO_HEX)


def geometry(cells: Cells, arrow: pa.DataType) -> pa.Array:
    """EWKB of PostGIS: two hexadecimal digits per byte, the letters large."""
    return _hexadecimal(cells, arrow, _LARGE, "it is no geometry in hex form")


def _hexadecimal(cells: Cells, arrow: pa.DataType, digits: npt.NDArray[np.uint16], reason: str) -> pa.Array:
    cells.refuse(cells.length % 2, reason)
    offsets_buffer, data = cells.gathered()
    offsets, content = np.frombuffer(offsets_buffer, np.int32), digits[np.frombuffer(data, "<u2")]
    if content.max(initial=0) >= _NO_DIGIT:
        cells.refuse(offsets[1:] > 2 * (content >= _NO_DIGIT).argmax(), reason)
    return pa.Array.from_buffers(
        arrow, len(cells), [None, pa.py_buffer(offsets // 2), pa.py_buffer(content.astype(np.uint8))]
    )


def string(cells: Cells, arrow: pa.DataType) -> pa.Array:
    """The text as it is."""
    return cells.strings()


TEXT: Final[Mapping[str, Decoder]] = {
    "bool": boolean,
    "bytea": bytea,
    "int2": number,
    "int4": number,
    "int8": number,
    "oid": oid,
    "float4": number,
    "float8": number,
    "xid8": number,
    "numeric": numeric,
    "any numeric": any_numeric,
    "interval": interval,
    "date": time,
    "timestamp": time,
    "timestamptz": time,
    "text": string,
    "jsonb": string,
    "uuid": string,
    "geometry": geometry,
    "output": string,
}
NULL_AWARE: Final = frozenset((number, oid, time, string))
