"""The lake's side: the Parquet files of exactly one Delta version, printed as PostgreSQL prints and digested in Spark.

Everything runs in a Spark session of its own (UTC, ANSI, names with case), so no setting of the user's can change a
text or hide a file. Nothing here knows how the rows came there.

Source: Delta Transaction Log Protocol; PostgreSQL src/backend/utils/adt/datetime.c (EncodeDateTime,
EncodeInterval), numeric.c.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any
from urllib.parse import unquote

from deltalake import DeltaTable
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from wal2lake.errors import VerifyError
from wal2lake.verify.comparison import RANGE_CHARACTERS, ComparedColumn, Comparison, Window, element_type
from wal2lake.verify.report import Key

_SESSION = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",  # decimals print without an exponent, sums never wrap
    "spark.sql.caseSensitive": "true",
    "spark.sql.shuffle.partitions": "1",  # one row per range
}
_READ = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "__globPaths__": "false",  # a path is a name, whatever characters it has
}
_HALF = (1 << 30) - 1
_INTERVAL = ["months", "days", "microseconds"]


def verify_session(spark: SparkSession) -> SparkSession:
    """A session beside ``spark``, on the same cluster, in the one state that the texts depend on."""
    session = spark.newSession()
    for name, value in _SESSION.items():
        session.conf.set(name, value)
    return session


def lake_types(delta: DeltaTable) -> dict[str, str]:
    """Column name → type in Delta's words; an array is ``array<…>``, a struct of an interval's parts "interval", what
    else is no primitive "nested"."""
    fields = json.loads(delta.schema().to_json())["fields"]
    return {field["name"]: _type_name(field["type"]) for field in fields}


def _type_name(kind: Any) -> str:
    if isinstance(kind, str):
        return kind
    if kind["type"] == "array":
        return f"array<{_type_name(kind['elementType'])}>"
    return "interval" if [field["name"] for field in kind.get("fields", ())] == _INTERVAL else "nested"


class LakeTable:
    """One version of a Delta table. Raises VerifyError when its files alone do not say what its rows are."""

    def __init__(self, session: SparkSession, delta: DeltaTable) -> None:
        _refuse_unreadable(delta)
        schema = json.loads(delta.schema().to_json())
        files = [unquote(uri) for uri in delta.file_uris()]
        reader = session.read.options(**_READ).schema(StructType.fromJson(schema))
        self._rows = reader.parquet(*files) if files else session.createDataFrame([], StructType.fromJson(schema))

    def digests(
        self, comparison: Comparison, window: Window, groups: Sequence[Sequence[ComparedColumn]]
    ) -> dict[int, tuple[int, ...]]:
        """Range index → row count, then two sums for each group of columns; empty ranges are left out."""
        columns = list({column.name: column for group in groups for column in group}.values())
        place = {column.name: f"c{i}" for i, column in enumerate(columns)}
        texts = [_text(column).alias(place[column.name]) for column in columns]
        hashes = [F.md5(_row_text([place[c.name] for c in group])).alias(f"h{i}") for i, group in enumerate(groups)]
        key = _key(comparison)
        inside = reduce(or_, (_inside(key, *piece) for piece in window.pieces))
        rows = self._rows.where(inside).select(key.alias("k"), *texts)
        ranges = rows.select(_bucket(F.col("k"), window.bounds).alias("r"), *hashes).groupBy("r")
        halves = [half for i in range(len(groups)) for start in (1, 16) for half in _sum_halves(f"h{i}", start)]
        return {
            row[0]: (row[1], *(low + (high << 30) for low, high in zip(row[2::2], row[3::2], strict=True)))
            for row in ranges.agg(F.count("*"), *halves).collect()
        }


def _refuse_unreadable(delta: DeltaTable) -> None:
    """Rows that a file has but the table does not, or values that the table has but no file, cannot be seen here."""
    metadata = delta.metadata()
    features = {
        "partition columns": bool(metadata.partition_columns),
        "column mapping": metadata.configuration.get("delta.columnMapping.mode", "none") != "none",
        "deletion vectors": delta.deletion_vectors().read_all().num_rows > 0,
    }
    for feature, present in features.items():
        if present:
            raise VerifyError(
                f"The Delta table {delta.table_uri} uses {feature}, which verify cannot read.",
                hint="wal2lake itself never writes them: rewrite the table without, or snapshot it anew.",
            )


def _inside(key: Column, lower: Key | None, upper: Key | None) -> Column:
    """NULL belongs to an open lower end."""
    below = F.lit(True) if upper is None else key < F.lit(upper)
    return F.coalesce(below, F.lit(True)) if lower is None else below & (key >= F.lit(lower))


def _bucket(key: Column, bounds: Sequence[Key]) -> Column:
    """How many bounds are at or below ``key``: a binary search by falling powers of two, in one expression."""
    if not bounds:
        return F.lit(0)
    array = F.array(*map(F.lit, bounds))
    steps = F.array(*(F.lit(1 << i) for i in reversed(range(len(bounds).bit_length()))))

    def step(below: Column, power: Column) -> Column:
        return F.when(F.get(array, below + power - 1) <= key, below + power).otherwise(below)

    return F.aggregate(steps, F.lit(0), step)


def _row_text(texts: Sequence[str]) -> Column:
    """concat_ws leaves NULLs out, which is just what the row text wants of a NULL's length and value."""
    return F.concat_ws("", *(part for text in texts for part in (F.length(text), F.lit(":"), F.col(text))))


def _sum_halves(digest: str, start: int) -> tuple[Column, Column]:
    """A 60-bit number summed as two halves of 30 bits, which stay below 2^63 for 2^33 rows."""
    number = F.conv(F.substring(digest, start, 15), 16, 10).cast("bigint")
    return F.sum(number.bitwiseAND(_HALF)), F.sum(F.shiftright(number, 30))


def _key(comparison: Comparison) -> Column:
    column = comparison.key[0]
    if comparison.integer:
        return _column(column).cast("bigint")
    return F.substring(_text(column), 1, RANGE_CHARACTERS)


def _column(column: ComparedColumn) -> Column:
    return F.col("`" + column.name.replace("`", "``") + "`")


def _text(column: ComparedColumn) -> Column:
    """The column in PostgreSQL's output form. Raises VerifyError for a type that no PostgreSQL type becomes."""
    kind = "bits" if column.bits else element_type(column.type).partition("(")[0]
    if kind not in _PRINTERS:
        raise VerifyError(f"Verify cannot print a lake column of type {column.type}.", column=column.name)
    return _printed(_column(column), column.type, _PRINTERS[kind])


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
