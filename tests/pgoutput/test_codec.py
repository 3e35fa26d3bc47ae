"""Whatever can be said can be written and read back; whatever is cut, or not what it says, is ProtocolError."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.strategies import values
from wal2lake.errors import ProtocolError
from wal2lake.pgoutput.codec import read_message, write_message
from wal2lake.pgoutput.messages import (
    LAYOUTS,
    Begin,
    PgoutputMessage,
    Relation,
    RelationColumn,
    StreamAbort,
    Truncate,
    Update,
)
from wal2lake.pgoutput.tuples import NULL, UNCHANGED, OldTuple, TupleColumn, TupleData

messages: st.SearchStrategy[Any] = st.sampled_from(list(LAYOUTS.values())).flatmap(values)


@given(messages)
def test_reading_is_the_inverse_of_writing(message: PgoutputMessage) -> None:
    assert read_message(write_message(message)) == message


@given(messages)
def test_a_cut_message_is_an_error_with_its_offset(message: PgoutputMessage) -> None:
    payload = write_message(message)
    for size in range(len(payload)):
        if isinstance(message, StreamAbort) and size == len(payload) - 16:
            continue  # cut just there it is version 2's message; PgoutputSession knows which one it must be
        with pytest.raises(ProtocolError) as caught:
            read_message(payload[:size])
        assert caught.value.offset is not None
        assert 0 <= caught.value.offset <= size


@given(messages)
def test_bytes_after_the_last_field_are_an_error(message: PgoutputMessage) -> None:
    with pytest.raises(ProtocolError):
        read_message(write_message(message) + b"\0")


def test_every_message_is_in_the_table() -> None:
    assert {cls.__name__ for cls in PgoutputMessage.__subclasses__()} == {layout.name for layout in LAYOUTS.values()}


def test_null_unchanged_and_empty_are_three_things() -> None:
    new = TupleData((NULL, UNCHANGED, TupleColumn("t", b""), TupleColumn("b", b"")))
    assert read_message(write_message(Update(7, None, new))) == Update(7, None, new)
    assert len({*new.columns}) == 4


@pytest.mark.parametrize("kind", ["K", "O"])
def test_the_old_tuple_keeps_its_kind(kind: str) -> None:
    update = Update(7, OldTuple(kind, (NULL,)), TupleData((NULL,)))
    assert read_message(write_message(update)) == update


@pytest.mark.parametrize(
    ("payload", "offset"),
    [
        (b"", 0),
        (b"?", 0),
        (b"T\x7f\xff\xff\xff\0", 6),  # two thousand million relations
        (b"T\xff\xff\xff\xff\0", 1),  # a negative count
        (b"I\0\0\0\1N\xff\xff", 8),  # less than no columns
        (b"I\0\0\0\1N\x7f\xff", 8),  # columns without bytes
        (b"I\0\0\0\1N\0\1t\xff\xff\xff\xff", 9),  # a negative length
        (b"I\0\0\0\1N\0\1x", 8),  # an unknown kind
        (b"I\0\0\0\1K\0\0", 5),  # an old tuple where the new one belongs
        (b"B" + bytes(20), 1),  # final_lsn 0/0
        (b"C\1" + bytes(24), 1),  # flags nobody has defined
        (b"O" + bytes(8) + b"\xff\0", 9),  # not UTF-8
        (b"R\0\0\0\1a\0b\0x\0\0", 9),  # no such replica identity
    ],
)
def test_malformed_messages_name_the_place(payload: bytes, offset: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        read_message(payload)
    assert caught.value.offset == offset


@pytest.mark.parametrize(
    "message",
    [
        Begin(0, 0, 1),  # type: ignore[arg-type]
        Truncate((1,), 256),
        Relation(1, "a\0", "b", "d", ()),
        Relation(1, "a", "b", "x", ()),
        Relation(1, "a", "b", "d", (RelationColumn(0, "\ud800", 1, -1),)),
        Update(1, None, TupleData((TupleColumn("t"),))),
        Update(1, None, TupleData((TupleColumn("n", b""),))),
    ],
)
def test_what_could_not_be_read_is_not_written(message: PgoutputMessage) -> None:
    with pytest.raises(ProtocolError):
        write_message(message)
