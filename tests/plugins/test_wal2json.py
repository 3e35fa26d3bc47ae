"""wal2json without a server: its shapes, its options' values, and what it says where there is no catalog.

That it is the C plugin line for line is `python -m bench plugins`'s to show, and tests/servers/test_differential.py's.
"""

from __future__ import annotations

import json

import pytest

from wal2lake.decoding import decode
from wal2lake.decoding.plugins.wal2json.options import TableSelection, Wal2JsonOptions
from wal2lake.errors import ConfigError, PluginError
from wal2lake.lsn import LSN
from wal2lake.pgoutput.messages import Message, Relation, RelationColumn
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.pgoutput.tuples import UNCHANGED, TupleColumn
from wal2lake.testing.stream import ScriptedStream, delete, insert, relation, row, update
from wal2lake.wire.replication import read_xlog_data

STREAM = PgoutputOptions(("p",), proto_version=2, messages=True)
ROWS = (relation(), insert(1, 'a "quoted" \\ text'), update(1, None), delete(1, None))


def _decoded(*messages: object, stream: PgoutputOptions = STREAM, **options: str) -> list[str | bytes]:
    payloads = ScriptedStream().transaction(*messages)  # type: ignore[arg-type]
    changes = [(read.start_lsn, read.payload) for read in map(read_xlog_data, payloads)]
    given = [(name.replace("_", "-"), value) for name, value in options.items()]
    return [piece.data for piece in decode(changes, "wal2json", given, stream=stream)]


def test_version_1_is_one_object_per_transaction() -> None:
    [piece] = _decoded(*ROWS, include_xids="1", include_lsn="1")
    assert json.loads(piece) == {
        "xid": 701,
        "nextlsn": "0/1030",
        "change": [
            {
                "kind": "insert",
                "schema": "public",
                "table": "t",
                "columnnames": ["id", "v"],
                "columntypes": ["bigint", "text"],
                "columnvalues": [1, 'a "quoted" \\ text'],
            },
            {
                "kind": "update",
                "schema": "public",
                "table": "t",
                "columnnames": ["id", "v"],
                "columntypes": ["bigint", "text"],
                "columnvalues": [1, None],
                "oldkeys": {"keynames": ["id"], "keytypes": ["bigint"], "keyvalues": [1]},
            },
            {
                "kind": "delete",
                "schema": "public",
                "table": "t",
                "oldkeys": {"keynames": ["id"], "keytypes": ["bigint"], "keyvalues": [1]},
            },
        ],
    }


def test_version_2_is_one_object_per_row() -> None:
    assert [json.loads(piece) for piece in _decoded(*ROWS, format_version="2", include_types="0")] == [
        {"action": "B"},
        {
            "action": "I",
            "schema": "public",
            "table": "t",
            "columns": [{"name": "id", "value": 1}, {"name": "v", "value": 'a "quoted" \\ text'}],
        },
        {
            "action": "U",
            "schema": "public",
            "table": "t",
            "columns": [{"name": "id", "value": 1}, {"name": "v", "value": None}],
            "identity": [{"name": "id", "value": 1}],
        },
        {"action": "D", "schema": "public", "table": "t", "identity": [{"name": "id", "value": 1}]},
        {"action": "C"},
    ]


@pytest.mark.parametrize("version", ["1", "2"])
def test_four_nothings_stay_apart(version: str) -> None:
    text = str(_decoded(relation(), insert(1, ""), insert(2, None), update(3, UNCHANGED), format_version=version))
    assert '""' in text
    assert "null" in text
    assert text.count('"v"') == 2  # the unchanged one is left out


def test_numbers_that_json_lacks_are_null_or_as_strings() -> None:
    columns = (RelationColumn(1, "id", 20, -1), RelationColumn(0, "n", 1700, -1))
    rows = (Relation(16384, "public", "t", "d", columns), insert(1, "NaN"), insert(2, "1.50"))
    assert '"columnvalues":[1,null]' in str(_decoded(*rows))
    assert '"columnvalues":[2,1.50]' in str(_decoded(*rows))
    as_strings = str(_decoded(*rows, numeric_data_types_as_string="1"))
    assert '"columnvalues":["1","NaN"]' in as_strings
    assert '"columnvalues":["2","1.50"]' in as_strings


def test_a_message_ends_at_a_zero_byte() -> None:
    pieces = _decoded(Message(True, LSN(0x1010), "p", b"before\0after"), format_version="2")
    assert json.loads(pieces[1])["content"] == "before"


def test_filters_come_before_what_is_added() -> None:
    options = Wal2JsonOptions.read([("filter-tables", r"*.secret, a\.b.c\ d,s.\*"), ("add-tables", "shop.*,*.secret")])
    assert options.filter_tables == (
        TableSelection(None, "secret"),
        TableSelection("a.b", "c d"),
        TableSelection("s", "*"),
    )
    assert options.selects_table("shop", "orders")
    assert not options.selects_table("shop", "secret")
    assert not options.selects_table("other", "orders")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("include-xids", "perhaps"),
        ("format-version", "3"),
        ("format-version", "two"),
        ("actions", "insert,upsert"),
        ("filter-tables", "without_a_schema"),
        ("filter-tables", "a.b c.d"),
        ("add-tables", "a.b,"),
        ("filter-origins", "one"),
        ("include-everything", "1"),
    ],
)
def test_a_wrong_option_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        Wal2JsonOptions.read([(name, value)])


def test_without_a_value_an_option_is_true_and_the_version_the_latest() -> None:
    options = Wal2JsonOptions.read([("include-xids", None), ("format-version", None), ("actions", None)])
    assert (options.include_xids, options.format_version, len(options.actions)) == (True, 2, 4)


@pytest.mark.parametrize("option", ["include-default", "include-not-null", "include-column-positions"])
def test_what_only_the_catalog_knows_is_refused_without_one(option: str) -> None:
    with pytest.raises(ConfigError, match="there is no server here"):
        _decoded(relation(), **{option: "1"})


def test_the_primary_key_beside_another_identity_is_only_the_catalogs() -> None:
    assert json.loads(_decoded(*ROWS, format_version="2", include_pk="1")[1])["pk"] == [
        {"name": "id", "type": "bigint"}
    ]
    with pytest.raises(PluginError, match="only the catalog can tell"):
        _decoded(relation(identity="f"), insert(1, "a"), format_version="2", include_pk="1")


def test_binary_values_are_refused_with_the_cure() -> None:
    values = row(TupleColumn("b", b"\0\0\0\0\0\0\0\1"), None).columns
    with pytest.raises(PluginError, match="binary"):
        _decoded(relation(), insert(*values), stream=PgoutputOptions(("p",), proto_version=2, binary=True))
