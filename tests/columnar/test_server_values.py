"""Value by value: text tuples, binary tuples and COPY binary must say what the server's output functions say."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from tests.columnar.catalog import ARRAYS_OF_SERVER
from tests.columnar.stream import SESSION, LogRow, batch, peek, schemas
from wal2lake.columnar.changes import decode_changes
from wal2lake.columnar.copy_rows import decode_copy_rows
from wal2lake.columnar.type_table import ARRAY_TYPES, EDITION, FIRST_EDITION
from wal2lake.columnar.types import TableSchema, TypeRules
from wal2lake.errors import UnrepresentableError
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.server

TIMES = [
    "0001-01-01 00:00:00", "0099-12-31 23:59:59.999999", "1582-10-10 12:00:00", "1969-12-31 23:59:59.9",
    "1970-01-01 00:00:00", "1999-12-31 23:59:59.99", "2000-01-01 00:00:00.000001", "2000-02-29 01:02:03.456",
    "2024-02-29 10:20:30.4567", "2024-12-31 23:59:59.12345", "9999-12-31 23:59:59.999999",
]  # fmt: skip
FLOATS = ["0", "-0", "1", "-1.5", "0.1", "1e-5", "1e15", "1e16", "123456789.125", "NaN", "Infinity", "-Infinity"]
TEXTS = ["", " ", "a", "ä€😀", "NULL", "\\N", "quote\"'", "line\nbreak\ttab\r", "x" * 300, "\x01\x7f", "%s", "é" * 100]
VALUES: dict[str, list[str]] = {
    "boolean": ["t", "f"],
    "smallint": ["0", "1", "-1", "32767", "-32768"],
    "integer": ["0", "7", "-7", "2147483647", "-2147483648"],
    "bigint": ["0", "10", "-10", "99999999", "100000000", "9223372036854775807", "-9223372036854775808"],
    "oid": ["0", "1", "2147483648", "4294967295"],
    "real": [*FLOATS, "3.4028235e38", "1e-45", "1.17549435e-38", "16777217"],
    "double precision": [*FLOATS, "1.7976931348623157e308", "5e-324", "0.30000000000000004", "9007199254740993"],
    "numeric(12,2)": ["0", "0.01", "-0.01", "0.1", "1", "99.99", "9999999999.99", "-9999999999.99", "10000", "1e8"],
    "numeric(18,0)": ["0", "1", "-1", "999999999999999999", "-999999999999999999", "10000", "99999999"],
    "numeric(18,18)": ["0", "0.000000000000000001", "-0.999999999999999999", "0.1", "0.0001", "0.00001"],
    "numeric(3,1)": ["0", "0.1", "-99.9", "5"],
    "numeric(7,5)": ["0", "0.00001", "99.99999", "-1.2", "0.1234"],
    "numeric(19,4)": ["0", "0.0001", "-0.0001", "999999999999999.9999", "-123456789012345.6789", "1e12"],
    "numeric(38,0)": ["0", "1", "-1", "9" * 38, "-" + "9" * 38, "1" + "0" * 37, "18446744073709551616"],
    "numeric(38,10)": ["0", "0.0000000001", "-" + "9" * 28 + "." + "9" * 10, "18446744073709551616.5"],
    "numeric(38,38)": ["0", "0." + "9" * 38, "-0." + "0" * 37 + "1", "0.5"],
    "text": TEXTS,
    "varchar(300)": TEXTS,
    "char(5)": ["", "a", "abcde", "é"],
    "name": ["", "a", "b" * 63],
    "json": ['{"a": 1}', "[]", '  {"b" : [1, 2]} ', "null", '"ü"'],
    "jsonb": ['{"a": 1, "b": [1.50, null, "x"]}', "[]", "null", "{}", '"ü"', "123456789012345678901234567890.5"],
    "uuid": ["0" * 8 + "-0000" * 3 + "-" + "0" * 12, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    "bytea": ["", "\\x00", "\\xdeadbeef", "\\x" + "ff" * 500, "\\x5c78"],
    "date": [time[:10] for time in TIMES],
    "timestamp": TIMES,
    "timestamptz": [time + "+00" for time in TIMES],
}  # fmt: skip
TEXT_ONLY: dict[str, list[str]] = {  # not in the type table
    "numeric": ["0", "1.50", "NaN", "Infinity", "-Infinity", "1e100", "-0.000000000000000000000000000000000000000001"],
    "numeric(50,3)": ["1" * 47 + ".125"],
    "interval": ["1 day", "-1 mon +02:03:04.5", "0"],
    "time": ["00:00:00", "23:59:59.999999", "24:00:00"],
    "integer[]": ["{}", "{1,NULL,-3}", "{{1,2},{3,4}}", "[0:1]={1,2}"],
    "text[]": ["{}", '{"a,b","","NULL",NULL}'],
    "int4range": ["empty", "[1,10)", "(,)"],
    "inet": ["10.0.0.1/8", "::1"],
    "mood": ["happy", "très sad"],
    "pair": ['(1,"a b")', "(,)"],
    "money_like": ["12.34", "0"],
}
QUOTED = '{"",NULL,"NULL",null,"a b","a,b","{}","}","q\\"q","back\\\\slash","\\\\","\\"",é😀,"tab\there"}'
INTERVALS = [
    "0",
    "1 day",
    "-1 day",
    "-1 mon +02:03:04.5",
    "1 year 2 mons -3 days -04:05:06.789",
    "-1 year +3 days",
    "-1 mon +1 day -00:00:00.000001",
    "178000000 years",
    "-178000000 years",
    "100:00:00",
    "2562047788:00:54.775807",
    "-2562047788:00:54.775807",
    "2147483647 days",
]
ARRAYS: dict[str, list[str]] = {
    "integer[]": ["{}", "{1,NULL,-3}", "{7}", "{NULL}", "{2147483647,-2147483648}", "{" + ",".join("123456789") + "}"],
    "smallint[]": ["{}", "{1,2,3}", "{-32768,32767}"],
    "bigint[]": ["{}", "{9223372036854775807,NULL}"],
    "boolean[]": ["{t,f,NULL}", "{}", "{t}"],
    "oid[]": ["{0,4294967295}"],
    "real[]": ["{NaN,Infinity,-Infinity,-0,1.5,NULL}", "{3.4028235e38,1e-45}"],
    "double precision[]": ["{NaN,-Infinity,-0,0.1,NULL}", "{5e-324,1.7976931348623157e308}", "{}"],
    "numeric(12,2)[]": ["{0,0.01,-9999999999.99,NULL}", "{}", "{5}"],
    "numeric(38,10)[]": ["{18446744073709551616.5,NULL}"],
    "numeric[]": ["{1.50,NaN,Infinity,1e100,NULL}", "{}"],
    "text[]": [QUOTED, "{}", "{NULL}", '{""}', "{a}", "{ünï,ä}"],
    "varchar(300)[]": [QUOTED, "{a,b}"],
    "char(5)[]": ["{a,'b'}", "{}"],
    "name[]": ["{a,NULL}"],
    "bytea[]": ['{"\\\\x00ff",NULL,"\\\\x"}', "{}"],
    "uuid[]": ["{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,NULL}", "{}"],
    "date[]": ["{2024-02-29,NULL,0001-01-01,9999-12-31}", "{}"],
    "timestamp[]": ['{"2024-02-29 01:02:03.456",NULL}', '{"0001-01-01 00:00:00","9999-12-31 23:59:59.999999"}'],
    "timestamptz[]": ['{"2024-02-29 01:02:03.456+00",NULL}', "{}"],
    "jsonb[]": ['{"{\\"a\\": [1, \\"x,y\\"]}",NULL,"null"}', "{}"],
    "json[]": ['{"{\\"a\\":  1}",NULL}'],
    "interval": INTERVALS,
    "interval[]": ["{1 day,-1 mon +02:03:04.5,NULL}", "{}"],
    "inet[]": ["{10.0.0.1/8,::1}"],
    "numbers": ["{1,2,NULL}", "{}"],
}
DOMAINS = {"whole": ("integer", ["1", "-1"]), "label": ("text", ["", "ok"]), "moment": ("timestamptz", TIMES[:3])}
UNREPRESENTABLE = {
    "date": ["infinity", "-infinity", "0001-12-31 BC", "10000-01-01", "5874897-12-31", "4713-01-01 BC"],
    "timestamp": ["infinity", "-infinity", "0044-03-15 12:00:00 BC", "294276-12-31 23:59:59.999999"],
    "timestamptz": ["infinity", "-infinity", "0044-03-15 12:00:00+00 BC", "10000-01-01 00:00:00+00"],
    "numeric(12,2)": ["NaN"],
    "numeric(18,0)": ["NaN"],
    "numeric(38,10)": ["NaN"],
}  # fmt: skip
PREPARE = """
DROP SCHEMA IF EXISTS vals CASCADE; CREATE SCHEMA vals; SET search_path TO vals;
CREATE TYPE mood AS ENUM ('happy', 'très sad'); CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN money_like AS numeric(10,2); CREATE DOMAIN whole AS integer; CREATE DOMAIN label AS text;
CREATE DOMAIN moment AS timestamptz; CREATE DOMAIN numbers AS integer[];
CREATE PUBLICATION vals FOR TABLES IN SCHEMA vals;
"""


def cases() -> dict[str, tuple[str, list[str]]]:
    """Table name → (type, values): every list once as it is, in order, with NULLs between."""
    named: dict[str, tuple[str, list[str]]] = {}
    for prefix, group in (("k", VALUES), ("x", TEXT_ONLY), ("u", UNREPRESENTABLE)):
        named |= {f"{prefix}{place}": case for place, case in enumerate(group.items())}
    named |= {f"a{place}": case for place, case in enumerate(ARRAYS.items())}
    return named | {f"d{place}": (name, values) for place, (name, (_, values)) in enumerate(DOMAINS.items())}


CASES = cases()
OUTPUT_TEXT = "CASE WHEN c IS DISTINCT FROM NULL THEN format('%s', c) END"


@dataclass(frozen=True)
class Source:
    """What the server sent, both ways, and where it runs."""

    dsn: str
    text: list[LogRow]
    binary: list[LogRow]

    def truth(self, table: str) -> list[str | None]:
        """What the type's output function says (a cast to text does not always), in insertion order."""
        query = f"SELECT {OUTPUT_TEXT} FROM vals.{table} ORDER BY id"
        with psycopg.connect(self.dsn, options=SESSION) as connection:
            return [row[0] for row in connection.execute(query)]

    def copied(self, table: str, column: str) -> list[bytes]:
        """COPY binary rows of (id, column), without header and trailer."""
        query = f'COPY (SELECT id, {column} FROM vals."{table}" ORDER BY id) TO STDOUT (FORMAT binary)'
        with psycopg.connect(self.dsn, options=SESSION) as connection, connection.cursor().copy(query) as copy:
            rows = [bytes(row) for row in copy]
        return [rows[0][19:], *rows[1:-1]]


@pytest.fixture(scope="module")
def source(server: EmbeddedPostgres) -> Iterator[Source]:
    with psycopg.connect(server.dsn, autocommit=True, options=SESSION) as connection:
        connection.execute("SET synchronous_commit TO on")
        connection.execute(PREPARE)
        connection.execute("SELECT pg_create_logical_replication_slot('vals', 'pgoutput')")
        for table, (sql_type, values) in CASES.items():
            connection.execute(f'CREATE TABLE vals."{table}" (id int PRIMARY KEY, c {sql_type})')
            rows = [(place, value) for place, value in enumerate([None, *values, None, *values])]
            with connection.cursor() as cursor:
                cursor.executemany(f'INSERT INTO vals."{table}" VALUES (%s, %s::text::{sql_type})', rows)
        try:
            yield Source(server.dsn, peek(server.dsn, "vals", "vals"), peek(server.dsn, "vals", "vals", binary=True))
        finally:
            connection.execute(
                "SELECT pg_drop_replication_slot('vals'); DROP PUBLICATION vals; DROP SCHEMA vals CASCADE"
            )


def decoded(rows: list[LogRow], table: str, **options: Any) -> tuple[pa.Array, TableSchema]:
    schema = schema_of(rows, table)
    changes = decode_changes(batch(rows), schema, **options)
    assert changes.new[0].to_pylist() == list(range(len(changes)))
    for array in changes.new:
        array.validate(full=True)
    return changes.new[1], schema


def schema_of(rows: list[LogRow], table: str) -> TableSchema:
    """Arrays are lists since edition 2."""
    return schemas(rows, TypeRules(EDITION if table[0] == "a" else FIRST_EDITION))[table]


def as_text(value: Any, arrow: pa.DataType) -> str | None:
    """The value as PostgreSQL writes it."""
    match value:
        case None | str():
            return value
        case bool():
            return "t" if value else "f"
        case Decimal():
            return f"{value:f}"
        case list():
            return "{" + ",".join(as_element(element, arrow.value_type) for element in value) + "}"
        case dict():
            return as_interval(value)
        case bytes():
            return "\\x" + value.hex()
        case dt.datetime():
            text = value.replace(tzinfo=None).isoformat(" ")
            return (text.rstrip("0") if "." in text else text) + ("+00" if arrow.tz else "")
        case _:
            return str(value)


def as_interval(value: dict[str, int]) -> str:
    """IntervalStyle postgres."""
    sign = -1 if value["months"] < 0 else 1
    years, months = (sign * part for part in divmod(abs(value["months"]), 12))
    texts, before = [], 0
    for number, unit in ((years, "year"), (months, "mon"), (value["days"], "day")):
        if number:
            texts.append(f"{'+' if before < 0 < number else ''}{number} {unit}{'' if number == 1 else 's'}")
            before = number
    if value["microseconds"] or not texts:
        seconds, fraction = divmod(abs(value["microseconds"]), 10**6)
        plus = "-" if value["microseconds"] < 0 else "+" if before < 0 else ""
        clock = f"{plus}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        texts.append(f"{clock}.{fraction:06}".rstrip("0") if fraction else clock)
    return " ".join(texts)


def as_element(value: Any, arrow: pa.DataType) -> str:
    if value is None:
        return "NULL"
    text = as_text(value, arrow) or ""
    if text and text.upper() != "NULL" and not set(text) & set('{}",\\ \t\n\r\v\f'):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def assert_says(array: pa.Array, truth: list[str | None]) -> None:
    if pa.types.is_list(array.type) and pa.types.is_floating(array.type.value_type):
        assert [text is None for text in truth] == array.is_null().to_pylist()
        elements = [element for text in truth if text and text != "{}" for element in text[1:-1].split(",")]
        assert_says(array.flatten(), [None if element == "NULL" else element for element in elements])
    elif pa.types.is_floating(array.type):  # compare as numbers, by the sign and the bits of their widest form
        expected = pa.array([None if text is None else float(text) for text in truth], pa.float64()).cast(array.type)
        assert [repr(x) for x in array.to_pylist()] == [repr(x) for x in expected.to_pylist()]
    else:
        assert [as_text(value, array.type) for value in array.to_pylist()] == truth


@pytest.mark.parametrize("table", [table for table in CASES if table[0] in "kxda"])
def test_text_tuples(source: Source, table: str) -> None:
    array, schema = decoded(source.text, table)
    assert schema.columns[1].type.known == (table[0] != "x")
    assert_says(array, source.truth(table))


HAVE_BINARY = [
    table for table, (sql_type, _) in CASES.items() if table[0] in "kda" and sql_type not in ("numeric[]", "inet[]")
]


@pytest.mark.parametrize("table", HAVE_BINARY)
def test_binary_tuples(source: Source, table: str) -> None:
    assert_says(decoded(source.binary, table)[0], source.truth(table))


@pytest.mark.parametrize("table", HAVE_BINARY)
def test_text_and_binary_in_one_column(source: Source, table: str) -> None:
    schema = schema_of(source.text, table)
    mine = [
        row
        for pair in zip(source.text, source.binary, strict=True)
        for row in pair
        if row[2][:1] == b"I" and int.from_bytes(row[2][1:5], "big") == schema.relation_id
    ]
    array = decode_changes(batch(mine), schema).new[1]
    assert_says(array, [text for text in source.truth(table) for _ in range(2)])


@pytest.mark.parametrize("table", [table for table in CASES if table[0] in "kxda"])
def test_copy_rows(source: Source, table: str) -> None:
    schema = schema_of(source.text, table)
    column = "c" if schema.columns[1].type.binary else OUTPUT_TEXT
    ids, array = decode_copy_rows(source.copied(table, column), schema.columns, "vals.t")
    array.validate(full=True)
    assert_says(array, source.truth(table))
    assert ids.to_pylist() == list(range(len(array)))


@pytest.mark.parametrize("table", [table for table in CASES if table[0] == "u"])
@pytest.mark.parametrize("form", ["text", "binary"])
def test_unrepresentable_values_are_refused_or_null(source: Source, table: str, form: str) -> None:
    rows: list[LogRow] = getattr(source, form)
    with pytest.raises(UnrepresentableError) as refused:
        decoded(rows, table)
    error = refused.value
    schema = schemas(rows)[table]
    first = [row for row in rows if row[2][:5] == b"I" + schema.relation_id.to_bytes(4, "big")][1]
    assert (error.relation, error.column, error.lsn) == (f"vals.{table}", "c", first[0])
    array, _ = decoded(rows, table, unrepresentable="null")
    assert array.null_count == len(array)


@pytest.mark.parametrize("table", [table for table, case in CASES.items() if table[0] == "u" and case[0] in VALUES])
def test_unrepresentable_values_among_others(source: Source, table: str) -> None:
    schema = schemas(source.text)[table]
    other = next(name for name, case in CASES.items() if case[0] == CASES[table][0])
    good = [
        (lsn, xid, payload[:1] + schema.relation_id.to_bytes(4, "big") + payload[5:])
        for lsn, xid, payload in source.text
        if payload[:5] == b"I" + schemas(source.text)[other].relation_id.to_bytes(4, "big")
    ]
    array = decode_changes(batch([*source.text, *good]), schema, unrepresentable="null").new[1]
    assert_says(array.slice(len(array) - len(good)), source.truth(other))


@pytest.mark.parametrize("table", [table for table in CASES if table[0] == "u"])
def test_as_a_text_column_every_value_lands(source: Source, table: str) -> None:
    schema = schemas(source.text)[table]
    columns = [(c.name, c.type.oid, c.type.typmod, None, c.key) for c in schema.columns]
    as_is = TableSchema.build(schema.relation_id, "vals", table, columns, text_columns=[f"vals.{table}.c"])
    assert_says(decode_changes(batch(source.text), as_is).new[1], source.truth(table))


def test_the_arrays_are_the_servers(source: Source) -> None:
    query = "SELECT oid::int, typname, typelem::int, typdelim FROM pg_type WHERE oid = ANY (%s)"
    with psycopg.connect(source.dsn) as connection:
        found = connection.execute(query, [[oid for oid, *_ in ARRAY_TYPES]]).fetchall()
    assert {tuple(row) for row in found} == {(*row, ",") for row in ARRAY_TYPES}
    assert {(oid, name): element for oid, name, element, _ in found} == ARRAYS_OF_SERVER


@pytest.mark.parametrize("sql_type", ["interval", "integer[]", "numeric"])
def test_binary_values_without_a_type_row_are_refused(source: Source, sql_type: str) -> None:
    table = next(name for name, case in CASES.items() if case[0] == sql_type)
    with pytest.raises(UnrepresentableError, match="binary"):
        decoded(source.binary, table)
