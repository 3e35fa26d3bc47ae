"""A numeric in both forms, with every precision and scale that a lake's decimal has; and what is no such number."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.columnar.stream import batch
from wal2lake.columnar.buffer import PgoutputDecodeError
from wal2lake.columnar.changes import decode_changes
from wal2lake.columnar.types import TableSchema
from wal2lake.errors import UnrepresentableError
from wal2lake.pgoutput.codec import write_message
from wal2lake.pgoutput.messages import Insert
from wal2lake.pgoutput.tuples import TupleColumn, TupleData

POSITIVE, NEGATIVE, NAN, INFINITY = 0x0000, 0x4000, 0xC000, 0xD000


def sent(digits: Sequence[int], weight: int, sign: int = POSITIVE, scale: int = 0, count: int | None = None) -> bytes:
    """As numeric_send: ndigits, weight, sign and dscale, then the base-10000 digits."""
    return struct.pack(f">hhHh{len(digits)}H", len(digits) if count is None else count, weight, sign, scale, *digits)


def binary(unscaled: int, scale: int) -> bytes:
    """numeric_send of ``unscaled`` / 10 ** ``scale``, which sends no zero digit at either end."""
    places = -(-scale // 4)
    rest, digits = abs(unscaled) * 10 ** (4 * places - scale), list[int]()
    while rest:
        rest, digit = divmod(rest, 10_000)
        digits.insert(0, digit)
    weight = len(digits) - 1 - places if digits else 0
    while digits and digits[-1] == 0:
        digits.pop()
    return sent(digits, weight, NEGATIVE if unscaled < 0 else POSITIVE, scale)


def decoded(kind: str, cells: Sequence[bytes], precision: int, scale: int) -> pa.Array:
    schema = TableSchema.build(7, "s", "t", [("n", 1700, (precision << 16 | scale) + 4, None, False)])
    inserts = [write_message(Insert(7, TupleData((TupleColumn(kind, cell),)))) for cell in cells]
    return decode_changes(batch([(100 + row, 1, insert) for row, insert in enumerate(inserts)]), schema).new[0]


def interesting(precision: int) -> Iterator[int]:
    """Numbers of up to so many digits: each power of ten, what is just below it, and all digits different."""
    for exponent in range(precision + 1):
        yield from (10**exponent - 1, 1 - 10**exponent)
        if exponent < precision:
            yield from (10**exponent, -(10**exponent))
    yield int("12345678901234567890123456789012345678"[:precision])


@pytest.mark.parametrize("precision", range(1, 39))
def test_every_place_of_every_scale(precision: int) -> None:
    numbers = list(interesting(precision))
    for scale in {0, 1, 2, 3, 4, 5, precision // 2, precision - 1, precision}:
        if scale <= precision:
            exact = [Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale)) for n in numbers]
            forms = {"b": [binary(n, scale) for n in numbers], "t": [f"{value:f}".encode() for value in exact]}
            for kind, cells in forms.items():
                assert decoded(kind, cells, precision, scale).to_pylist() == exact, (kind, scale)


@pytest.mark.parametrize(
    ("cell", "precision", "scale"),
    [
        (b"", 4, 2),
        (sent([], 0)[:7], 4, 2),
        (sent([], 0, NAN)[:7], 4, 2),
        (sent([1], 0)[:9], 4, 2),
        (sent([1], 0) + b"\0", 4, 2),
        (sent([1], 0, count=2), 4, 2),
        (sent([1, 2], 0, count=1), 4, 2),
        (sent([1], 0, count=-1), 4, 2),
        (sent([10_000], 0), 6, 2),
        (sent([0xFFFF], 0), 6, 2),
        (sent([1], 1), 4, 0),  # 10000 has five digits
        (sent([1], -1), 4, 0),  # 0.0001 of a whole number
        (sent([1, 1], 0), 4, 0),
        (sent([1], -2), 8, 4),
        (sent([1], -1), 6, 3),  # 0.0001 has four digits behind the point
        (sent([10], -1), 6, 2),
        (sent([99], -1), 6, 2),
        (sent([1], 0, 0x0001), 4, 2),
        (sent([1], 0, 0x8000), 4, 2),
    ],
)
def test_what_is_no_such_number_is_refused(cell: bytes, precision: int, scale: int) -> None:
    good = binary(10**scale, scale) if precision > scale else binary(1, scale)
    with pytest.raises(PgoutputDecodeError, match="not of its column's type") as raised:
        decoded("b", [good, cell, good], precision, scale)
    assert (raised.value.lsn, raised.value.column, raised.value.offset) == (101, "n", 13)


def test_not_a_number_has_no_place() -> None:
    with pytest.raises(UnrepresentableError) as raised:
        decoded("b", [binary(1, 2), sent([], 0, NAN)], 4, 2)
    assert (raised.value.lsn, raised.value.column) == (101, "n")
