from __future__ import annotations

import pytest

from wal2lake.columnar.types import TypeRules
from wal2lake.errors import ConfigError
from wal2lake.lsn import LSN
from wal2lake.spark.options import SourceOptions
from wal2lake.tables.committed import DecodeRules


def test_every_option_is_read_whatever_its_case() -> None:
    options = SourceOptions.parse(
        {
            "LOG": "/log", "table": "shop.orders", "startinglsn": "1/0", "endingLsn": "1/A", "consumer": "bi",
            "maxBytesPerTrigger": "64m", "MAXROWSPERTRIGGER": "1000", "unrepresentable": "NULL",
            "textColumns": "shop.orders.total, shop.orders.note", "typeEdition": "2",
        }
    )  # fmt: skip
    assert options == SourceOptions(
        "/log", ("shop", "orders"), LSN(1 << 32), LSN((1 << 32) + 10), 64 << 20, 1000, "bi",
        DecodeRules("null", ("shop.orders.total", "shop.orders.note"), TypeRules(2)),
    )  # fmt: skip


def test_the_path_of_load_names_the_log() -> None:
    assert SourceOptions.parse({"path": "file:///data/log"}) == SourceOptions("/data/log")


def test_a_table_name_may_have_dots() -> None:
    assert SourceOptions.parse({"log": "l", "table": 'shop."v1.orders"'}).table == ("shop", "v1.orders")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "log is missing"),
        ({"log": "l", "maxBytesPerTriger": "1"}, "Known options: .*maxBytesPerTrigger"),
        ({"log": "l", "table": "orders"}, "shop.orders"),
        ({"log": "l", "table": "shop.v1.orders"}, 'shop."v1.orders"'),
        ({"log": "l", "startingLsn": "12"}, "not an LSN"),
        ({"log": "l", "maxRowsPerTrigger": "0"}, "positive"),
        ({"log": "l", "maxBytesPerTrigger": "-5"}, "positive"),
        ({"log": "l", "maxBytesPerTrigger": "5t"}, "positive"),
        ({"log": "l", "triggerSeconds": "1 minute"}, "number of seconds"),
        ({"log": "l", "triggerSeconds": "-1"}, "number of seconds"),
        ({"log": "l", "consumer": "../x"}, "consumer"),
        ({"log": "l", "unrepresentable": "guess"}, "error or null"),
        ({"log": "l", "typeEdition": "0"}, "from 1 to"),
        ({"log": "l", "typeEdition": "x"}, "from 1 to"),
    ],
)
def test_what_cannot_be_is_refused_with_its_cure(options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        SourceOptions.parse(options)
