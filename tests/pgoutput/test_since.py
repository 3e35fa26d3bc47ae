"""What came with which version of the protocol and of the server, to the number; and the columns of a row read twice.

Source: PostgreSQL documentation, "Logical Streaming Replication Parameters", "Logical Replication Message Formats".
"""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wal2lake.errors import ConfigError, ProtocolError, ServerConfigError
from wal2lake.lsn import LSN
from wal2lake.pgoutput.codec import write_message
from wal2lake.pgoutput.columns import read_columns
from wal2lake.pgoutput.messages import (
    COLUMN_IS_KEY,
    LAYOUTS,
    TRUNCATE_CASCADE,
    TRUNCATE_RESTART_IDENTITY,
    Begin,
    Commit,
    Insert,
    Message,
    Origin,
    PgoutputMessage,
    Relation,
    RelationColumn,
    StreamStart,
    Truncate,
)
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.pgoutput.session import PgoutputSession
from wal2lake.pgoutput.tuples import NULL, UNCHANGED, TupleColumn, TupleData

SINCE = {
    1: {"Begin", "Message", "Commit", "Origin", "Relation", "Type", "Insert", "Update", "Delete", "Truncate"},
    2: {"StreamStart", "StreamStop", "StreamCommit", "StreamAbort"},
    3: {"BeginPrepare", "Prepare", "CommitPrepared", "RollbackPrepared", "StreamPrepare"},
}
ASKED: list[tuple[dict[str, Any], int, str]] = [
    ({}, 100000, "protocol version 1 of pgoutput"),
    ({"proto_version": 2}, 140000, "protocol version 2 of pgoutput"),
    ({"proto_version": 3}, 150000, "protocol version 3 of pgoutput"),
    ({"proto_version": 4}, 160000, "protocol version 4 of pgoutput"),
    ({"binary": True}, 140000, "pgoutput's option binary"),
    ({"messages": True}, 140000, "pgoutput's option messages"),
    ({"proto_version": 2, "streaming": "on"}, 140000, "pgoutput's streaming = on"),
    ({"proto_version": 4, "streaming": "parallel"}, 160000, "pgoutput's streaming = parallel"),
    ({"proto_version": 3, "two_phase": True}, 150000, "pgoutput's option two_phase"),
    ({"origin": "any"}, 160000, "pgoutput's option origin"),
]


def test_the_version_of_the_protocol_that_a_message_came_with() -> None:
    since = {layout.name: layout.cls.since for layout in LAYOUTS.values()}
    assert since == {name: version for version, names in SINCE.items() for name in names}


@pytest.mark.parametrize(("given", "since", "what"), ASKED, ids=[f"{what} {since}" for _, since, what in ASKED])
def test_the_first_server_that_knows_what_is_asked(given: dict[str, Any], since: int, what: str) -> None:
    asked = PgoutputOptions(("p",), **given)
    assert PgoutputOptions.parse(asked.build(since)) == asked
    knows = f"PostgreSQL {(since - 1) // 10000} does not know "
    with pytest.raises(
        ServerConfigError, match=rf"{knows}{what if since > 100000 else ''}.* {since // 10000} and later"
    ):
        asked.build(since - 1)


def test_the_bits_of_a_columns_and_a_truncates_flags() -> None:
    """LOGICALREP_IS_REPLICA_IDENTITY, TRUNCATE_CASCADE and TRUNCATE_RESTART_SEQS in proto.c."""
    assert (COLUMN_IS_KEY, TRUNCATE_CASCADE, TRUNCATE_RESTART_IDENTITY) == (1 << 0, 1 << 0, 1 << 1)


@pytest.mark.parametrize("version", [0, 5])
def test_there_are_four_versions_of_the_protocol(version: int) -> None:
    with pytest.raises(ConfigError, match=f"are 1 to 4, not {version}"):
        PgoutputOptions(("p",), version)
    with pytest.raises(ProtocolError, match=f"are 1 to 4, not {version}") as refused:
        PgoutputOptions.parse([("proto_version", str(version)), ("publication_names", "p")])
    assert refused.value.offset == 0


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([("binary", "on"), ("binary", "off")], "none of its options twice"),
        ([("colour", "red"), ("a", "b")], "has no option a, colour"),
        ([("messages", "perhaps")], "option messages needs a boolean"),
        ([("two_phase", "2")], "option two_phase needs a boolean"),
        ([("origin", "here")], "origin is any or none"),
        ([("proto_version", "one")], "must be a number"),
    ],
)
def test_what_pgoutput_refuses_is_named(pairs: list[tuple[str, str | None]], message: str) -> None:
    usual = [("proto_version", "4"), ("publication_names", "p")]
    with pytest.raises(ProtocolError, match=message) as refused:
        PgoutputOptions.parse([*(pair for pair in usual if pair[0] not in dict(pairs)), *pairs])
    assert refused.value.offset == 0


@pytest.mark.parametrize(("text", "value"), [("true", True), ("ON", True), ("1", True), (None, True),
                                             ("false", False), ("Off", False), ("0", False)])  # fmt: skip
@pytest.mark.parametrize("option", ["binary", "messages", "two_phase"])
def test_a_boolean_as_people_write_it(option: str, text: str | None, value: bool) -> None:
    pairs = [("proto_version", "4"), ("publication_names", "p"), (option, text)]
    assert getattr(PgoutputOptions.parse(pairs), option) is value


cells = st.sampled_from([NULL, UNCHANGED]) | st.builds(
    TupleColumn, st.sampled_from("tb"), st.sampled_from([b"", b"n", b"abc", b"x" * 300])
)


@settings(max_examples=50)
@given(st.lists(cells, max_size=6).map(tuple), st.binary(max_size=3))
def test_columns_are_read_as_the_codec_writes_them(columns: tuple[TupleColumn, ...], behind: bytes) -> None:
    payload = write_message(Insert(1, TupleData(columns)))
    found = read_columns(payload + behind, 6)
    assert found.values == [column.data for column in columns]
    assert found.end == len(payload)
    assert found.unchanged == [n for n, column in enumerate(columns) if column.kind == "u"]
    assert found.binary == [n for n, column in enumerate(columns) if column.kind == "b"]
    for size in range(6, len(payload)):
        try:
            assert read_columns(payload[:size], 6).end > size
        except (IndexError, struct.error):
            continue


def test_a_column_of_no_kind_is_noticed() -> None:
    with pytest.raises(ValueError, match="no kind"):
        read_columns(b"\0\1x", 0)


AT, ROW = LSN(100), TupleData((NULL,))
BEGIN, RELATION = Begin(AT, 0, 7), Relation(5, "public", "t", "d", (RelationColumn(1, "id", 20, -1),))
NOTE, FROM = Message(False, AT, "p", b""), Origin(AT, "elsewhere")
PLAIN, WITHOUT_STREAMING = PgoutputOptions(("p",)), PgoutputOptions(("p",), 2)


@pytest.mark.parametrize(
    ("options", "said", "sentence"),
    [
        (PLAIN, [Commit(0, AT, AT, 0)], "Commit cannot come in state IDLE."),
        (PLAIN, [BEGIN, BEGIN], "Begin cannot come in state TRANSACTION."),
        (PLAIN, [FROM], "Origin cannot come in state IDLE."),
        (
            PLAIN,
            [BEGIN, FROM, RELATION, Insert(5, ROW), FROM],
            "Origin cannot come in state TRANSACTION behind a change.",
        ),
        (PLAIN, [BEGIN, RELATION, Insert(5, ROW), BEGIN], "Begin cannot come in state TRANSACTION."),
        (PLAIN, [StreamStart(7, True)], "StreamStart came with version 2; 1 was asked for."),
        (PLAIN, [NOTE], "Message came, which was not asked for."),
        (WITHOUT_STREAMING, [StreamStart(7, True)], "StreamStart came, which was not asked for."),
        (PLAIN, [BEGIN, Insert(5, ROW)], "A change names relation 5, which no Relation announced."),
        (PLAIN, [BEGIN, RELATION, Truncate((5, 6), 0)], "A change names relation 6, which no Relation announced."),
        (PLAIN, [BEGIN, RELATION, Insert(5, TupleData(()))], "A row has 0 columns where its Relation announced 1."),
    ],
)
def test_what_may_not_come_is_told_in_a_sentence(
    options: PgoutputOptions, said: list[PgoutputMessage], sentence: str
) -> None:
    session = PgoutputSession(options)
    for message in said[:-1]:
        session.send(message)
    with pytest.raises(ProtocolError) as refused:
        session.send(said[-1])
    assert (refused.value.message, refused.value.offset) == (sentence, 0)
