"""A column's values as Debezium's JSON has them, made from PostgreSQL's output text.

Numbers, booleans and strings are themselves. By default numeric is the base64 of its unscaled number, as in Kafka
Connect's Decimal (where the column has no scale, beside its scale), dates are days and times and timestamps ms or µs
since 1970, timestamptz is ISO 8601 in UTC, bytea and bit strings are base64, intervals µs, arrays arrays. What has no
such form, because it is infinite or before our era, and every other type is PostgreSQL's text.

Source: Debezium documentation, "Debezium connector for PostgreSQL", Data type mappings.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, Final

from wal2lake.decoding.plugins.debezium.options import DebeziumOptions
from wal2lake.decoding.relation import Attribute
from wal2lake.decoding.types import ELEMENTS

Convert = Callable[[str], Any]

_BOOL, _BYTEA, _BIT, _VARBIT, _NUMERIC, _MONEY, _POINT = 16, 17, 1560, 1562, 1700, 790, 600
_DATE, _TIME, _TIMESTAMP, _TIMESTAMPTZ, _TIMETZ, _INTERVAL = 1082, 1083, 1114, 1184, 1266, 1186
_BOX_ARRAY: Final = 1020  # the one whose elements are separated by semicolons
_INTEGERS: Final = frozenset((20, 21, 23, 26))
_FLOATS: Final = frozenset((700, 701))
_NOT_IN_JSON: Final = frozenset(("NaN", "Infinity", "-Infinity"))
_EPOCH: Final = datetime(1970, 1, 1)
_HEADER: Final = 4
_EXACT: Final = Context(prec=300_000)  # numeric has up to 131,072 digits before the point and 16,383 behind it
_PLAIN: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_MONTH_DAYS: Final = 365.25 / 12
_DAY_MICROS: Final = 86_400_000_000
_INTERVAL_PART: Final = re.compile(r"(-?\+?\d+) (year|mon|day)s?")
_CLOCK: Final = re.compile(r"(-?)(\d+):(\d+):(\d+)(?:\.(\d+))?$")


def converter(attribute: Attribute, options: DebeziumOptions) -> Convert:
    """What makes a JSON value of a column's text."""
    return _converter(attribute.type_oid, attribute.typmod, options)


def _converter(type_oid: int, typmod: int, options: DebeziumOptions) -> Convert:
    if type_oid in ELEMENTS and type_oid != _BOX_ARRAY:
        element = _converter(ELEMENTS[type_oid], typmod, options)
        return lambda text: _array(text, element)
    if type_oid in _INTEGERS:
        return int
    if type_oid in _FLOATS:
        return lambda text: text if text in _NOT_IN_JSON else float(text)
    if type_oid in (_NUMERIC, _MONEY):
        return _decimal(type_oid, typmod, options)
    if type_oid == _BYTEA:
        return _bytea(options)
    if type_oid in (_TIME, _TIMESTAMP):
        return _of_precision(type_oid, typmod, options)
    if type_oid == _INTERVAL and options.interval_handling_mode == "numeric":
        return _interval
    if type_oid == _BIT and typmod == 1:
        return lambda text: text == "1"
    return _BY_OID.get(type_oid, str)


def unavailable(attribute: Attribute, options: DebeziumOptions) -> Any:
    """What stands for an unchanged TOAST value: the placeholder in the column's own form."""
    placeholder = options.unavailable_value_placeholder
    if attribute.type_oid == _BYTEA:
        return _bytea(options)("\\x" + placeholder.encode().hex())
    return [placeholder] if attribute.type_oid in ELEMENTS else placeholder


def _boolean(text: str) -> bool:
    return text == "t"


def _decimal(type_oid: int, typmod: int, options: DebeziumOptions) -> Convert:
    scale = 2 if type_oid == _MONEY else None if typmod < 0 else (((typmod - _HEADER) & 0x7FF) ^ 0x400) - 0x400
    mode = options.decimal_handling_mode

    def convert(text: str) -> Any:
        if text in _NOT_IN_JSON or mode == "string":
            return text
        plain = re.sub(r"[^0-9.-]", "", text) if type_oid == _MONEY else text
        if not _PLAIN.fullmatch(plain):  # numeric_out never writes another, least of all an exponent
            return text
        if mode == "double":
            return float(plain)
        number = Decimal(plain)
        if scale is not None:
            return _unscaled(number, scale)
        own = max(-int(number.as_tuple().exponent), 0)
        return {"scale": own, "value": _unscaled(number, own)}

    return convert


def _unscaled(number: Decimal, scale: int) -> str:
    """Big-endian two's complement, as short as it goes: java.math.BigInteger.toByteArray."""
    value = int(number.scaleb(scale, _EXACT))
    length = (value if value >= 0 else ~value).bit_length() // 8 + 1
    return b64encode(value.to_bytes(length, "big", signed=True)).decode()


def _bytea(options: DebeziumOptions) -> Convert:
    if options.binary_handling_mode == "hex":
        return lambda text: text[2:]
    return lambda text: b64encode(bytes.fromhex(text[2:])).decode()


def _bits(text: str) -> str:
    """Little-endian bytes of the number that the bits are."""
    return b64encode(int(text or "0", 2).to_bytes((len(text) + 7) // 8, "little")).decode()


def _date(text: str) -> int | str:
    try:
        return (date.fromisoformat(text) - _EPOCH.date()).days
    except ValueError:
        return text


def _of_precision(type_oid: int, typmod: int, options: DebeziumOptions) -> Convert:
    """ms where the column has up to three digits of a second, else µs."""
    fine = type_oid == _TIME and options.time_precision_mode == "adaptive_time_microseconds"
    unit = 1000 if 0 <= typmod <= 3 and not fine else 1

    def convert(text: str) -> int | str:
        try:
            moment = datetime.fromisoformat(f"1970-01-01 {text}" if type_oid == _TIME else text)
        except ValueError:
            return _DAY_MICROS // unit if type_oid == _TIME and text == "24:00:00" else text
        return (moment - _EPOCH) // timedelta(microseconds=unit)

    return convert


def _zoned_timestamp(text: str) -> str:
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return text
    return f"{moment:%Y-%m-%dT%H:%M:%S}{_fraction(moment)}Z".rjust(20, "0")


def _zoned_time(text: str) -> str:
    try:
        moment = datetime.fromisoformat(f"2000-01-01 {text}").astimezone(UTC)
    except ValueError:
        return text
    return f"{moment:%H:%M:%S}{_fraction(moment)}Z"


def _fraction(moment: datetime) -> str:
    return f".{moment.microsecond:06}".rstrip("0") if moment.microsecond else ""


def _interval(text: str) -> int:
    """µs; a month is 365.25 / 12 days."""
    micros = 0.0
    for number, unit in _INTERVAL_PART.findall(text):
        days = {"year": 12 * _MONTH_DAYS, "mon": _MONTH_DAYS, "day": 1}[unit]
        micros += int(number) * days * _DAY_MICROS
    if clock := _CLOCK.search(text):
        sign, hours, minutes, seconds, fraction = clock.groups()
        part = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000 + int((fraction or "").ljust(6, "0"))
        micros += -part if sign else part
    return round(micros)


def _point(text: str) -> dict[str, Any]:
    x, y = (float(part) for part in text.strip("()").split(","))
    return {"x": x, "y": y}


def _array(text: str, convert: Convert) -> list[Any]:
    """array_out's text; bounds that are not 1 stand before an equals sign and do not count."""
    body = text.partition("=")[2] if text.startswith("[") else text
    stack: list[list[Any]] = [[]]
    for quoted, plain, brace in _ARRAY_TOKEN.findall(body):
        if brace == "{":
            stack.append([])
        elif brace == "}":
            done = stack.pop()
            stack[-1].append(done)
        elif quoted:
            stack[-1].append(convert(_ESCAPED.sub(r"\1", quoted[1:-1])))
        else:
            stack[-1].append(None if plain == "NULL" else convert(plain))
    result: list[Any] = stack[0][0]
    return result


_ARRAY_TOKEN: Final = re.compile(r'("(?:[^"\\]|\\.)*")|([^{},"]+)|([{}])', re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_BY_OID: Final[dict[int, Convert]] = {
    _BOOL: _boolean,
    _BIT: _bits,
    _VARBIT: _bits,
    _DATE: _date,
    _TIMESTAMPTZ: _zoned_timestamp,
    _TIMETZ: _zoned_time,
    _POINT: _point,
}
