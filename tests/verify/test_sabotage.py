"""Whatever is done to the lake behind wal2lake's back is found, and named by table, key range and column."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from math import inf
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from numpy import float32, nextafter
from pyspark.sql import SparkSession

from tests.deltadv.test_log import mark
from tests.verify.lakes import BOOL, DOUBLE, FLOAT, INT32, INT64, STRING, UTC_US, Row, Shop
from wal2lake.errors import VerifyError
from wal2lake.lakes import Place
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.verify import KeyRange, TableResult, VerifyReport, verify
from wal2lake.verify.lake import LakeTable, verify_session

pytestmark = [pytest.mark.server, pytest.mark.spark]

_COLUMNS = """
    region int, id bigint, name text, note text, blank text, doc text, price numeric(10, 2), weight numeric,
    at timestamptz, ratio float8, ratio4 float4, zero float8, first text, last text, code character(8), active boolean
"""
_SCHEMA = pa.schema(
    {
        "region": INT32, "id": INT64, "name": STRING, "note": STRING, "blank": STRING, "doc": STRING,
        "price": pa.decimal128(10, 2), "weight": STRING, "at": UTC_US, "ratio": DOUBLE, "ratio4": FLOAT, "zero": DOUBLE,
        "first": STRING, "last": STRING, "code": STRING, "active": BOOL,
    }
)  # fmt: skip
_ROWS = """
    SELECT n % 3, n, 'name ' || n, CASE WHEN n % 50 <> 0 THEN 'note ' || n END, '',
           repeat(md5(n::text), CASE WHEN n % 100 = 0 THEN 400 ELSE 1 END),
           n / 8.0, (n || '.0')::numeric,
           '2024-03-01'::timestamptz + n * '1 h'::interval,
           n / 7.0::float8, n / 7.0::float4, 0, 'anna', 'bert', 'c' || n, n % 2 = 0
      FROM generate_series(-501, 1700) n
"""

Change = Callable[[list[Row], Row], object]


def _set(**columns: Callable[[Row], object]) -> Change:
    """Change columns of the row, each by a function of what was there."""
    return lambda rows, row: row.update({name: value(row) for name, value in columns.items()})


def _swap(rows: list[Row], row: Row) -> None:
    other = next(r for r in rows if r["id"] == row["id"] + 1)
    row["name"], other["name"] = other["name"], row["name"]


# What is done to one row, and the columns that must be named; none where rows themselves are missing or too many.
SABOTAGE: dict[str, tuple[Change, set[str]]] = {
    "dropped": (lambda rows, row: rows.remove(row), set()),
    "doubled": (lambda rows, row: rows.append(dict(row)), set()),
    "invented": (lambda rows, row: rows.append({**row, "region": 3}), set()),
    "rekeyed": (_set(region=lambda row: 4), set()),
    "one character": (_set(doc=lambda row: "O" + row["doc"][1:]), {"doc"}),
    "null to empty": (_set(note=lambda row: ""), {"note"}),
    "empty to null": (_set(blank=lambda row: None), {"blank"}),
    "toast lost": (_set(doc=lambda row: None), {"doc"}),
    "toast cut": (_set(doc=lambda row: row["doc"][:-1]), {"doc"}),
    "swapped columns": (_set(first=lambda row: "bert", last=lambda row: "anna"), {"first", "last"}),
    "moved border": (_set(first=lambda row: "annab", last=lambda row: "ert"), {"first", "last"}),
    "swapped rows": (_swap, {"name"}),
    "trailing space": (_set(name=lambda row: row["name"] + " "), {"name"}),
    "padding lost": (_set(code=lambda row: row["code"].rstrip()), {"code"}),
    "other scale": (_set(weight=lambda row: row["weight"] + "0"), {"weight"}),
    "a cent": (_set(price=lambda row: row["price"] + Decimal("0.01")), {"price"}),
    "a microsecond": (_set(at=lambda row: row["at"] + timedelta(microseconds=1)), {"at"}),
    "last bit": (_set(ratio=lambda row: nextafter(row["ratio"], inf)), {"ratio"}),
    "last bit of float4": (_set(ratio4=lambda row: float(nextafter(float32(row["ratio4"]), float32(inf)))), {"ratio4"}),
    "negative zero": (_set(zero=lambda row: -0.0), {"zero"}),
    "flipped": (_set(active=lambda row: not row["active"]), {"active"}),
}
PLACE = {name: 100 * i - 500 for i, name in enumerate(SABOTAGE)}  # id of the row: one range of keys for each


def _sabotage(rows: list[Row]) -> None:
    by_id = {row["id"]: row for row in rows}
    for name, (change, _) in SABOTAGE.items():
        change(rows, by_id[PLACE[name]])


# Positions that are marked in a file of the source's 500 rows and 200 others: just those, one more, one fewer.
_MARKED_SCHEMA = pa.schema({"id": INT32, "n": INT32})
MARKED = {
    "marked": list(range(500, 700)),
    "overmarked": [41, *range(500, 700)],
    "undermarked": list(range(500, 699)),
}


@pytest.fixture(scope="module")
def shop(server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    shop = Shop.open(server, "sabotage", tmp_path_factory.mktemp("sabotage"))
    yield shop
    shop.close()


@pytest.fixture(scope="module")
def report(shop: Shop, spark: SparkSession) -> VerifyReport:
    for name in ("goods", "keyless", "untouched", "narrower", "wider", "absent"):
        key = "" if name == "keyless" else ", PRIMARY KEY (id, region)"
        shop.sql(f"CREATE TABLE {name} ({_COLUMNS}{key}); INSERT INTO {name} {_ROWS}")
        if name != "absent":
            shop.land(name, _SCHEMA)
    shop.sabotage("goods", _SCHEMA, _sabotage)
    shop.sabotage("keyless", _SCHEMA, lambda rows: rows.append(rows[0]))
    for name, marked in MARKED.items():
        shop.sql(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)")
        shop.sql(f"INSERT INTO {name} SELECT n, n FROM generate_series(1, 500) n")
        shop.land(name, _MARKED_SCHEMA)
        shop.sabotage(name, _MARKED_SCHEMA, lambda rows: rows.extend({"id": i, "n": -1} for i in range(400, 600)))
        mark(Path(shop.uri(name)), marked)
    shop.sql("ALTER TABLE wider DROP COLUMN note")
    shop.sql("ALTER TABLE narrower ADD COLUMN colour text")
    return verify(shop.config, spark, range_rows=100)


def _result(report: VerifyReport, name: str) -> TableResult:
    return next(table for table in report.tables if table.name == name)


@pytest.mark.parametrize("name", SABOTAGE)
def test_sabotage_is_found_and_named(report: VerifyReport, name: str) -> None:
    bad = [one for one in _result(report, "goods").bad_ranges if _holds(one, PLACE[name])]
    assert len(bad) == 1
    assert (bad[0].column, set(bad[0].columns)) == ("id", SABOTAGE[name][1])
    assert bad[0].rows_source <= 16


def _holds(bad: KeyRange, key: int) -> bool:
    lower, upper = (end if isinstance(end, int) else None for end in (bad.lower, bad.upper))
    return (lower is None or lower <= key) and (upper is None or key < upper)


def test_nothing_but_the_sabotage_is_found(report: VerifyReport) -> None:
    bad = _result(report, "goods").bad_ranges
    assert not report.ok
    touched = [*PLACE.values(), PLACE["swapped rows"] + 1]
    assert all(any(_holds(one, key) for key in touched) for one in bad)


def test_a_doubled_row_of_a_table_without_a_key_is_found(report: VerifyReport) -> None:
    result = _result(report, "keyless")
    assert [(bad.column, bad.rows_lake - bad.rows_source) for bad in result.bad_ranges] == [("region", 1)]


def test_a_table_left_alone_is_equal(report: VerifyReport) -> None:
    result = _result(report, "untouched")
    assert (result.ok, result.rows_source, result.rows_lake) == (True, 2202, 2202)
    assert result.ranges > 10


def test_rows_that_deletion_vectors_mark_are_not_the_lakes(report: VerifyReport) -> None:
    assert _result(report, "marked").ok
    assert _result(report, "marked").rows_lake == 500
    [bad] = _result(report, "overmarked").bad_ranges
    assert (bad.rows_lake - bad.rows_source, _holds(bad, 42)) == (-1, True)
    [bad] = _result(report, "undermarked").bad_ranges
    assert (bad.rows_lake - bad.rows_source, _holds(bad, 599)) == (1, True)


def test_a_column_that_the_lake_lacks_is_a_problem_and_the_others_are_compared(report: VerifyReport) -> None:
    result = _result(report, "narrower")
    assert not result.ok and result.problem is not None and "colour" in result.problem
    assert not result.bad_ranges


def test_a_column_dropped_from_the_source_may_stay_in_the_lake(report: VerifyReport) -> None:
    assert _result(report, "wider").ok


def test_a_table_that_the_lake_lacks_is_a_problem(report: VerifyReport) -> None:
    result = _result(report, "absent")
    assert (
        not result.ok
        and result.version is None
        and result.findings() == ["sabotage.absent: the lake has no such table"]
    )


def test_the_report_says_what_to_do_first_when_the_log_is_behind(report: VerifyReport) -> None:
    assert report.note is not None and "`wal2lake run`" in report.note


def test_reading_refuses_partition_columns(shop: Shop, spark: SparkSession) -> None:
    uri = shop.uri("partitioned")
    write_deltalake(uri, pa.table({"id": [1], "day": ["a"]}), partition_by="day")
    with pytest.raises(VerifyError, match="partition columns"):
        LakeTable(verify_session(spark), DeltaTable(uri), Place(uri))
