"""An interval has three parts, in either form; what is none, and what no struct can say."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tests.columnar.stream import batch
from wal2lake.columnar.buffer import PgoutputDecodeError
from wal2lake.columnar.changes import decode_changes
from wal2lake.columnar.type_table import EDITION, INTERVAL
from wal2lake.columnar.types import TableSchema, TypeRules, column_type, spark_ddl
from wal2lake.errors import UnrepresentableError
from wal2lake.pgoutput.codec import write_message
from wal2lake.pgoutput.messages import Insert
from wal2lake.pgoutput.tuples import NULL, TupleColumn, TupleData

HOUR = 3_600_000_000
VALUES = {
    "1 year 2 mons -3 days +04:05:06.789": (14, -3, 4 * HOUR + 306_789_000),
    "-1 years -2 mons +3 days -00:00:00.000001": (-14, 3, -1),
    "00:00:00": (0, 0, 0),
    "1 day": (0, 1, 0),
    "-00:00:01.5": (0, 0, -1_500_000),
    "-2562047788:00:54.775808": (0, 0, -(2**63)),
    "2562047788:00:54.775807": (0, 0, 2**63 - 1),
    "178956970 years 7 mons 2147483647 days": (2**31 - 1, 2**31 - 1, 0),
    "-178956970 years -8 mons": (-(2**31), 0, 0),
}
ENDLESS = {"infinity": (2**31 - 1, 2**31 - 1, 2**63 - 1), "-infinity": (-(2**31), -(2**31), -(2**63))}


def sent(months: int, days: int, microseconds: int) -> bytes:
    return struct.pack(">qii", microseconds, days, months)


def decoded(cells: list[TupleColumn], **options: Any) -> list[Any]:
    schema = TableSchema.build(7, "s", "t", [("c", 1186, -1, None, False)], rules=TypeRules(EDITION))
    rows = [(100 + n, 1, write_message(Insert(7, TupleData((cell,))))) for n, cell in enumerate(cells)]
    found = decode_changes(batch(rows), schema, **options).new[0]
    found.validate(full=True)
    values: list[Any] = found.to_pylist()
    return values


def test_both_forms_have_the_three_parts() -> None:
    texts = [TupleColumn("t", text.encode()) for text in VALUES]
    binary = [TupleColumn("b", sent(*parts)) for parts in VALUES.values()]
    expected = [dict(zip(("months", "days", "microseconds"), parts, strict=True)) for parts in VALUES.values()]
    assert decoded(texts) == decoded(binary) == expected
    assert decoded([texts[0], NULL, binary[3]]) == [expected[0], None, expected[3]]
    assert column_type(1186, edition=2).known is False
    assert spark_ddl(INTERVAL) == "STRUCT<months: INT, days: INT, microseconds: BIGINT>"


@pytest.mark.parametrize("form", ["t", "b"])
@pytest.mark.parametrize("endless", ENDLESS)
def test_an_infinite_interval_is_unrepresentable(form: Any, endless: str) -> None:
    cell = endless.encode() if form == "t" else sent(*ENDLESS[endless])
    cells = [TupleColumn("t", b"1 day"), TupleColumn(form, cell)]
    with pytest.raises(UnrepresentableError, match="infinite interval") as raised:
        decoded(cells)
    assert raised.value.lsn == 101
    assert decoded(cells, unrepresentable="null")[1] is None


@pytest.mark.parametrize(
    "bad",
    [b"", b" ", b"1", b"1 days1", b"P1D", b"1 day 1 year", b"00:00", b"1:2:3", b"00:00:00.", b"00:00:00.1234567", b"x",
     b"infinity1", b"99999999999999999999 days", b"1 mon\n"],
)  # fmt: skip
def test_text_that_is_no_interval(bad: bytes) -> None:
    with pytest.raises(PgoutputDecodeError) as raised:
        decoded([TupleColumn("t", b"1 day"), TupleColumn("t", bad), TupleColumn("t", b"2 days")])
    assert (raised.value.column, raised.value.lsn) == ("c", 101)


@pytest.mark.parametrize("size", [0, 15, 17])
def test_bytes_that_are_no_interval(size: int) -> None:
    with pytest.raises(PgoutputDecodeError, match="16 bytes"):
        decoded([TupleColumn("b", sent(1, 2, 3)), TupleColumn("b", bytes(size))])
