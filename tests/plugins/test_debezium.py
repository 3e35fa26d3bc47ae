"""debezium's envelopes, and PostgreSQL's values in the forms that Debezium's documentation gives them."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any

import pytest

from wal2lake.decoding import decode
from wal2lake.decoding.plugins.debezium.options import DebeziumOptions
from wal2lake.errors import ConfigError
from wal2lake.lsn import LSN
from wal2lake.pgoutput.messages import Message, Relation, RelationColumn, Truncate
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.pgoutput.tuples import NULL, UNCHANGED, OldTuple
from wal2lake.testing.stream import ScriptedStream, delete, insert, relation, row, update
from wal2lake.wire.replication import read_xlog_data

STREAM = PgoutputOptions(("p",), proto_version=2, messages=True)
COMMITTED_US = 757_382_400_000_000  # 2024-01-01 00:00 UTC, as PostgreSQL counts


def _events(*messages: object, **options: str) -> list[dict[str, Any]]:
    payloads = ScriptedStream().transaction(*messages, commit_ts=COMMITTED_US)  # type: ignore[arg-type]
    changes = [(read.start_lsn, read.payload) for read in map(read_xlog_data, payloads)]
    given = [(name.replace("_", "."), value) for name, value in options.items()]
    return [json.loads(piece.data) for piece in decode(changes, "debezium", given, stream=STREAM)]


def test_the_envelope() -> None:
    [event] = _events(relation(), insert(1, "a"), topic_prefix="shop", database_dbname="db")
    assert event == {
        "before": None,
        "after": {"id": 1, "v": "a"},
        "source": {
            "version": "wal2lake",
            "connector": "postgresql",
            "name": "shop",
            "ts_ms": 1_704_067_200_000,
            "snapshot": "false",
            "db": "db",
            "sequence": '[null, "4112"]',
            "ts_us": 1_704_067_200_000_000,
            "ts_ns": 1_704_067_200_000_000_000,
            "schema": "public",
            "table": "t",
            "txId": 701,
            "lsn": 0x1010,
            "xmin": None,
        },
        "transaction": None,
        "op": "c",
        "ts_ms": 1_704_067_200_000,
        "ts_us": 1_704_067_200_000_000,
        "ts_ns": 1_704_067_200_000_000_000,
    }


def test_four_nothings_and_a_changed_key() -> None:
    moved = update(2, UNCHANGED, old=OldTuple("K", (*row(1).columns, NULL)))
    events = _events(relation(), insert(1, ""), update(1, UNCHANGED), moved, delete(2, None))
    assert [(event["op"], event["before"], event["after"]) for event in events] == [
        ("c", None, {"id": 1, "v": ""}),
        ("u", None, {"id": 1, "v": "__debezium_unavailable_value"}),
        ("d", {"id": 1, "v": None}, None),
        ("c", None, {"id": 2, "v": "__debezium_unavailable_value"}),
        ("d", {"id": 2, "v": None}, None),
    ]


def test_truncates_are_skipped_unless_asked_for_and_messages_have_their_own_form() -> None:
    messages = (relation(), Truncate((16384,), 0), Message(True, LSN(0x1018), "p", b"\0content"))
    assert [event["op"] for event in _events(*messages)] == ["m"]
    truncate, message = _events(*messages, skipped_operations="none")
    assert (truncate["op"], truncate["before"], truncate["after"]) == ("t", None, None)
    assert message["message"]["prefix"] == "p"
    assert b64decode(message["message"]["content"]) == b"\0content"


def test_transaction_metadata_counts_what_went_out() -> None:
    begin, one, two, end = _events(relation(), insert(1, "a"), insert(2, "b"), provide_transaction_metadata="true")
    assert (begin["status"], end["status"]) == ("BEGIN", "END")
    assert begin["id"] == one["transaction"]["id"] == end["id"]
    assert [event["transaction"]["total_order"] for event in (one, two)] == [1, 2]
    assert end["data_collections"] == [{"data_collection": "public.t", "event_count": 2}]


NUMERIC_10_2 = (10 << 16 | 2) + 4


@pytest.mark.parametrize(
    ("type_oid", "typmod", "text", "value", "options"),
    [
        (16, -1, "t", True, {}),
        (20, -1, "-9223372036854775808", -(1 << 63), {}),
        (701, -1, "0.1", 0.1, {}),
        (701, -1, "NaN", "NaN", {}),
        (1700, NUMERIC_10_2, "123.45", "MDk=", {}),
        (1700, NUMERIC_10_2, "-1.28", "gA==", {}),
        (1700, NUMERIC_10_2, "1.28", "AIA=", {}),
        (1700, -1, "1.5", {"scale": 1, "value": "Dw=="}, {}),
        (1700, -1, "Infinity", "Infinity", {}),
        (1700, -1, "1e999999999", "1e999999999", {}),
        (1700, -1, "1" + "0" * 9_000, {"scale": 0, "value": b64encode((10**9_000).to_bytes(3738, "big")).decode()}, {}),
        (1700, NUMERIC_10_2, "123.45", "123.45", {"decimal_handling_mode": "string"}),
        (1700, NUMERIC_10_2, "123.45", 123.45, {"decimal_handling_mode": "double"}),
        (790, -1, "$1,234.56", "AeJA", {}),
        (17, -1, "\\x00ff", "AP8=", {}),
        (17, -1, "\\x00ff", "00ff", {"binary_handling_mode": "hex"}),
        (1560, 1, "1", True, {}),
        (1560, 10, "1000000001", "AQI=", {}),
        (1082, -1, "1970-01-02", 1, {}),
        (1082, -1, "infinity", "infinity", {}),
        (1083, 3, "00:00:01.5", 1500, {}),
        (1083, 3, "00:00:01.5", 1_500_000, {"time_precision_mode": "adaptive_time_microseconds"}),
        (1083, -1, "24:00:00", 86_400_000_000, {}),
        (1114, 3, "1970-01-01 00:00:01", 1000, {}),
        (1114, -1, "1969-12-31 23:59:59.5", -500_000, {}),
        (1114, -1, "0044-03-15 00:00:00 BC", "0044-03-15 00:00:00 BC", {}),
        (1184, -1, "2024-01-01 02:00:00.25+02", "2024-01-01T00:00:00.25Z", {}),
        (1266, -1, "12:00:00+02", "10:00:00Z", {}),
        (1186, -1, "1 day 00:00:01.5", 86_401_500_000, {}),
        (1186, -1, "-1 days +02:00:00", -79_200_000_000, {}),
        (1186, -1, "1 mon", 2_629_800_000_000, {}),
        (1186, -1, "1 mon", "1 mon", {"interval_handling_mode": "string"}),
        (600, -1, "(1.5,-2)", {"x": 1.5, "y": -2.0}, {}),
        (1007, -1, "{1,NULL,{2,3}}", [1, None, [2, 3]], {}),
        (1009, -1, '[0:1]={"a,\\"b\\"","NULL"}', ['a,"b"', "NULL"], {}),
        (1020, -1, "{(2,2),(0,0);(1,1),(0,0)}", "{(2,2),(0,0);(1,1),(0,0)}", {}),
        (3802, -1, '{"a": 1}', '{"a": 1}', {}),
        (99999, -1, "anything", "anything", {}),
    ],
)
def test_values(type_oid: int, typmod: int, text: str, value: object, options: dict[str, str]) -> None:
    shape = Relation(16384, "public", "t", "d", (RelationColumn(1, "v", type_oid, typmod),))
    [event] = _events(shape, insert(text), **options)
    assert event["after"]["v"] == value


@pytest.mark.parametrize(
    ("name", "value"),
    [("decimal.handling.mode", "exact"), ("skipped.operations", "x"), ("no.such", "1"), ("time.precision.mode", "ns")],
)
def test_a_wrong_option_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        DebeziumOptions.read([(name, value)])
