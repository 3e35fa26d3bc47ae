"""The lake's values as PostgreSQL prints them: by nothing that the decoders use.

Source: PostgreSQL src/backend/utils/adt/datetime.c (EncodeDateTime, EncodeInterval, EncodeTimezone), numeric.c;
contrib/hstore/hstore_io.c (hstore_out).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F

from wal2lake.errors import VerifyError
from wal2lake.verify.comparison import ComparedColumn, element_type
from wal2lake.verify.shapes import Shape


def quoted(column: ComparedColumn) -> str:
    """Its name in Spark SQL."""
    return "`" + column.name.replace("`", "``") + "`"


def lake_text(column: ComparedColumn) -> Column:
    """The column in PostgreSQL's output form, or part by part. Raises VerifyError for a type that nothing becomes."""
    if column.shape is not None:
        return _shaped(F.col(quoted(column)), column.shape)
    kind = "bits" if column.bits else element_type(column.type).partition("(")[0]
    if kind not in _PRINTERS:
        raise VerifyError(f"Verify cannot print a lake column of type {column.type}.", column=column.name)
    return _printed(F.col(quoted(column)), column.type, _PRINTERS[kind])


def _printed(value: Column, kind: str, scalar: Callable[[Column], Column]) -> Column:
    """An array as array_out writes it: elements in quotes where they would not be read as themselves without."""
    if not kind.startswith("array<"):
        return scalar(value)
    inner = kind.removeprefix("array<").removesuffix(">")

    def element(value: Column) -> Column:
        text = _printed(value, inner, scalar)
        text = text if inner.startswith("array<") else F.when(_needs_quotes(text), _in_quotes(text)).otherwise(text)
        return F.coalesce(text, F.lit("NULL"))

    return F.concat(F.lit("{"), F.array_join(F.transform(value, element), ","), F.lit("}"))


def _needs_quotes(text: Column) -> Column:
    return (text == "") | (F.upper(text) == "NULL") | text.rlike(r'[{}",\\\s]')


def _in_quotes(text: Column) -> Column:
    return F.concat(F.lit('"'), F.regexp_replace(text, r'(["\\])', r"\\$1"), F.lit('"'))


def _as_string(value: Column) -> Column:
    return value.cast("string")


def _boolean(value: Column) -> Column:
    return F.when(value, "t").when(~value, "f")


def _hexadecimal(value: Column) -> Column:
    return F.concat(F.lit("\\x"), F.lower(F.hex(value)))


def _bits(value: Column) -> Column:
    """The IEEE 754 double in hexadecimal; no SQL function shows it, so Java's own is called."""
    number = F.java_method(F.lit("java.lang.Double"), F.lit("doubleToLongBits"), value.cast("double"))
    return F.when(value.isNotNull(), F.lpad(F.lower(F.hex(number.cast("bigint"))), 16, "0"))


def _date(value: Column) -> Column:
    """Also a timestamp without zone: Spark prints both as PostgreSQL does, the fraction's trailing zeros left out."""
    return _dated(value, "")


def _timestamptz(value: Column) -> Column:
    return _dated(value, "+00")


def _dated(value: Column, zone: str) -> Column:
    """Spark signs years outside 1 to 9999; PostgreSQL counts years before 1 as BC, the year 0 being 1 BC."""
    text, year = value.cast("string"), F.year(value)
    rest = F.regexp_extract(text, r"^[+-]?\d+(-.*)$", 1)
    before = F.format_string("%04d%s%s BC", 1 - year, rest, F.lit(zone))
    after = F.concat(F.ltrim(text, F.lit("+")), F.lit(zone))
    return F.when(year < 1, before).otherwise(after)


def _interval(value: Column) -> Column:
    """IntervalStyle postgres: what is 0 is left out, and what follows a negative part has its plus."""
    months, days = value["months"], value["days"]
    parts = [((months - months % 12) / 12, "year"), (months % 12, "mon"), (days, "day")]
    texts, negative, nothing = [], F.lit(False), F.lit(True)
    for number, unit in parts:
        whole = number.cast("bigint")
        plus = F.when(negative & (whole > 0), "+").otherwise("")
        text = F.concat(plus, whole.cast("string"), F.lit(f" {unit}"), F.when(whole == 1, "").otherwise("s"))
        texts.append(F.when(whole != 0, text))
        negative = F.when(whole != 0, whole < 0).otherwise(negative)
        nothing = nothing & (whole == 0)
    microseconds = value["microseconds"].cast("decimal(20,0)")
    sign = F.when(microseconds < 0, "-").when(negative, "+").otherwise("")
    texts.append(F.when(nothing | (microseconds != 0), F.concat(sign, _clock(F.abs(microseconds)))))
    return F.when(value.isNotNull(), F.concat_ws(" ", *texts))


def _clock(microseconds: Column) -> Column:
    """HH:MM:SS and as many digits of a second as there are, of a number that is not negative; hours may be many."""
    whole, rest = [], microseconds
    for unit in (3_600_000_000, 60_000_000, 1_000_000):
        left = rest % unit
        number = ((rest - left) / unit).cast("bigint").cast("string")
        whole.append(F.when(F.length(number) < 2, F.concat(F.lit("0"), number)).otherwise(number))
        rest = left
    fraction = F.rtrim(F.lpad(rest.cast("bigint").cast("string"), 6, "0"), F.lit("0"))
    return F.concat(F.concat_ws(":", *whole), F.when(fraction == "", "").otherwise(F.concat(F.lit("."), fraction)))


_PRINTERS: Mapping[str, Callable[[Column], Column]] = {
    **dict.fromkeys(("byte", "short", "integer", "long", "decimal", "string"), _as_string),
    "boolean": _boolean,
    "binary": _hexadecimal,
    "bits": _bits,
    "date": _date,
    "timestamp_ntz": _date,
    "timestamp": _timestamptz,
    "interval": _interval,
}


def _shaped(value: Column, shape: Shape) -> Column:
    """A value made of others, as ``shapes.source_text`` has the source print it."""
    if shape.kind == "array":
        return _listed(value, shape.parts[0], shape.depth)
    if shape.kind == "composite":
        fields = [_part(value.getField(name), part) for part, name in zip(shape.parts, shape.names, strict=True)]
        return _if_any(value, fields)
    if shape.kind == "range":
        flags = [value[name].cast("int").cast("string") for name in ("lower_inc", "upper_inc", "empty")]
        return _if_any(value, [*flags, *(_part(value[end], shape.parts[0]) for end in ("lower", "upper"))])
    if shape.kind == "multirange":
        return _listed(value, shape.parts[0], 1)
    if shape.kind == "vector":
        return _listed(value, Shape("scalar", "", "float", bits=True), 1)
    if shape.kind != "scalar":
        return _OTHERS[shape.kind](value)
    kind = "bits" if shape.bits else shape.lake.partition("(")[0]
    if kind not in _PRINTERS:
        raise VerifyError(f"Verify cannot print a lake value of type {shape.lake}.")
    return _PRINTERS[kind](value)


def _listed(values: Column, element: Shape, depth: int) -> Column:
    def printed(value: Column) -> Column:
        return _listed(value, element, depth - 1) if depth > 1 else _part(value, element)

    return F.concat(F.lit("{"), F.array_join(F.transform(values, printed), ","), F.lit("}"))


def _part(value: Column, shape: Shape) -> Column:
    text = F.replace(_shaped(value, shape), F.lit('"'), F.lit('""'))
    return F.coalesce(F.concat(F.lit('"'), text, F.lit('"')), F.lit("-"))


def _if_any(value: Column, texts: Iterable[Column]) -> Column:
    return F.when(value.isNotNull(), F.concat(*texts))


def _geometry(value: Column) -> Column:
    return F.hex(value)


def _time(value: Column) -> Column:
    return _clock(value.cast("decimal(20,0)"))


def _timetz(value: Column) -> Column:
    """The offset's minutes and seconds only where they are not 0."""
    offset = value["utc_offset"]
    seconds = F.abs(offset)
    parts = [F.lpad(part.cast("string"), 2, "0")
             for part in (F.floor(seconds / 3600), F.floor(seconds / 60) % 60, seconds % 60)]  # fmt: skip
    shown = F.when(seconds % 60 != 0, F.concat_ws(":", *parts)).when(seconds % 3600 != 0, F.concat_ws(":", *parts[:2]))
    sign = F.when(offset < 0, "-").otherwise("+")
    return F.concat(_time(value["microseconds"]), sign, F.coalesce(shown, parts[0]))


def _hstore(value: Column) -> Column:
    """In the order in which the map has them, which is the server's."""

    def pair(entry: Column) -> Column:
        item = F.coalesce(_in_quotes(entry["value"]), F.lit("NULL"))
        return F.concat(_in_quotes(entry["key"]), F.lit("=>"), item)

    return F.array_join(F.transform(F.map_entries(value), pair), ", ")


_OTHERS: Mapping[str, Callable[[Column], Column]] = {
    "money": _as_string,
    "time": _time,
    "timetz": _timetz,
    "interval": _interval,
    "hstore": _hstore,
    "geometry": _geometry,
}
