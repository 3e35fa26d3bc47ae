"""A numeric of any number of digits in the type that a policy names: exactly, or rounded where it says so, or not."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.columnar.stream import batch
from wal2lake.columnar.buffer import PgoutputDecodeError
from wal2lake.columnar.changes import decode_changes
from wal2lake.columnar.type_table import EDITION
from wal2lake.columnar.types import TableSchema, TypeRules, column_type, numeric_type
from wal2lake.errors import UnrepresentableError
from wal2lake.pgoutput.codec import write_message
from wal2lake.pgoutput.messages import Insert
from wal2lake.pgoutput.tuples import NULL, TupleColumn, TupleData

NUMERIC, NUMERICS = 1700, 1231
NINES = "9" * 29


def decoded(policy: str, texts: list[str | None], oid: int = NUMERIC, **options: Any) -> pa.Array:
    rules = TypeRules(EDITION, numeric=policy)
    schema = TableSchema.build(7, "s", "t", [("c", oid, -1, None, False)], rules=rules)
    cells = [NULL if text is None else TupleColumn("t", text.encode()) for text in texts]
    rows = [(100 + n, 1, write_message(Insert(7, TupleData((cell,))))) for n, cell in enumerate(cells)]
    found = decode_changes(batch(rows), schema, **options).new[0]
    found.validate(full=True)
    return found


def test_what_has_its_digits_is_exact() -> None:
    texts = ["0", "1.50", None, "-0.000000001", NINES + ".999999999", "-" + NINES, "1.5" + "0" * 500, "0.0", "100"]
    found = decoded("decimal(38,9)", texts)
    assert found.type == pa.decimal128(38, 9)
    assert found.to_pylist() == [None if text is None else Decimal(text) for text in texts]
    assert decoded("decimal(5,5)", ["0.12345", "0"]).to_pylist() == [Decimal("0.12345"), Decimal(0)]
    assert decoded("decimal(3,0)", ["999", "-7.000"]).to_pylist() == [999, -7]
    assert decoded("decimal(38,9)", ["{1.5,NULL}", "{}"], NUMERICS).to_pylist() == [[Decimal("1.5"), None], []]


@pytest.mark.parametrize("odd", ["NaN", "Infinity", "-Infinity", "0.0000000001", "-1" + "0" * 29, "1" * 500 + ".5"])
def test_what_has_too_many_digits_is_unrepresentable(odd: str) -> None:
    texts = ["1.5", None, odd, "2" + "0" * 28]
    with pytest.raises(UnrepresentableError, match="more digits has no place in the lake type decimal128") as raised:
        decoded("decimal(38,9)", texts)
    assert (raised.value.column, raised.value.lsn) == ("c", 102)
    lenient = decoded("decimal(38,9)", texts, unrepresentable="null")
    assert lenient.to_pylist() == [Decimal("1.5"), None, None, Decimal("2e28")]


def test_a_double_is_the_nearest() -> None:
    texts = ["0.1", None, "NaN", "-Infinity", "Infinity", "9007199254740993", "1" * 300 + ".5", "5e-324"]
    assert decoded("double", texts[:1]).type == pa.float64()
    found = decoded("double", [text and text.replace("5e-324", "0." + "0" * 323 + "5") for text in texts])
    assert repr(found.to_pylist()) == repr([None if text is None else float(text) for text in texts])
    huge = ["1", "-1" + "0" * 400]
    with pytest.raises(UnrepresentableError, match="greater than any double") as raised:
        decoded("double", huge)
    assert raised.value.lsn == 101
    assert decoded("double", huge, unrepresentable="null").to_pylist() == [1.0, None]


@pytest.mark.parametrize("policy", ["double", "decimal(38,9)"])
@pytest.mark.parametrize("bad", ["", "x", "1.2.3", "nan", "--1", "1,5"])
def test_text_that_is_no_numeric(policy: str, bad: str) -> None:
    with pytest.raises(PgoutputDecodeError) as raised:
        decoded(policy, ["1", bad, "2"])
    assert raised.value.lsn == 101


def test_the_policy_is_for_numerics_that_no_decimal_holds_anyhow() -> None:
    bounded = (12 << 16 | 2) + 4
    assert column_type(NUMERIC, bounded, numeric="double").arrow == pa.decimal128(12, 2)
    assert column_type(NUMERIC, (50 << 16 | 3) + 4, numeric="decimal(38,3)").arrow == pa.decimal128(38, 3)
    assert column_type(NUMERIC).arrow == pa.string()
    for wrong in ("decimal", "decimal(39,1)", "decimal(5,6)", "decimal(0,0)", "float", "decimal(38,9) "):
        with pytest.raises(ValueError, match=r".*"):
            numeric_type(wrong)


def test_a_domain_has_the_scale_that_was_noted_with_it() -> None:
    rules = TypeRules(EDITION, domains=(("c", 16_400, (10 << 16 | 2) + 4),))
    assert rules.column("c", 16_400, -1, NUMERIC).arrow == pa.decimal128(10, 2)
    assert rules.column("c", 16_401, -1, NUMERIC).arrow == pa.string(), "it is of another domain by now"
    assert rules.column("d", 16_400, -1, NUMERIC).arrow == pa.string()
