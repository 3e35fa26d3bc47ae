"""One session sends what another receives: the xid prefix, the caches, and what may follow what."""

from __future__ import annotations

import pytest

from wal2lake.errors import ProtocolError
from wal2lake.lsn import LSN
from wal2lake.pgoutput.messages import (
    AbortInfo,
    Begin,
    BeginPrepare,
    Commit,
    CommitPrepared,
    Delete,
    Insert,
    Message,
    Origin,
    PgoutputMessage,
    Prepare,
    Relation,
    RelationColumn,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    Type,
    Update,
)
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.pgoutput.session import PgoutputSession, Received
from wal2lake.pgoutput.tuples import NULL, OldTuple, TupleData

RELATION = Relation(5, "public", "t", "d", (RelationColumn(1, "id", 20, -1),))
INSERT = Insert(5, TupleData((NULL,)))
AT = LSN(100)
V1 = PgoutputOptions(("p",), messages=True)
V2 = PgoutputOptions(("p",), 2, streaming="on", messages=True)
V4 = PgoutputOptions(("p",), 4, streaming="parallel", two_phase=True)


def converse(options: PgoutputOptions, *said: tuple[PgoutputMessage, int | None]) -> list[Received]:
    """Send and receive; each message comes with the xid given to ``send``."""
    sender, receiver = PgoutputSession(options), PgoutputSession(options)
    heard = [receiver.receive(sender.send(message, xid)) for message, xid in said]
    assert [received.message for received in heard] == [message for message, _ in said]
    assert receiver.relations == sender.relations
    return heard


def test_a_transaction() -> None:
    type_ = Type(70000, "public", "mood")
    said = [Begin(AT, 0, 7), Origin(AT, "o"), type_, RELATION, INSERT, Truncate((5,), 0), Commit(0, AT, AT, 0)]
    heard = converse(V1, *((message, None) for message in said), (Message(False, AT, "p", b""), None))
    assert [received.xid for received in heard] == [7] * 7 + [None]


def test_subtransactions_in_chunks() -> None:
    heard = converse(
        V2,
        (StreamStart(7, True), None), (RELATION, 7), (INSERT, 8), (Message(True, AT, "p", b""), 9),
        (StreamStop(), None),
        (Begin(AT, 0, 10), None), (INSERT, None), (Commit(0, AT, AT, 0), None),
        (StreamStart(7, False), None), (INSERT, None), (StreamStop(), None),
        (StreamAbort(7, 8), None),
        (StreamCommit(7, 0, AT, AT, 0), None),
    )  # fmt: skip
    assert [received.xid for received in heard] == [7, 7, 8, 9, 7, 10, 10, 10, 7, 7, 7, 8, 7]


def test_the_prefix_stands_after_the_tag() -> None:
    session = PgoutputSession(V2)
    session.send(StreamStart(7, True))
    assert session.send(Type(1, "", "t"), 8) == b"Y\0\0\0\x08\0\0\0\1\0t\0"


def test_two_phase() -> None:
    heard = converse(
        V4,
        (BeginPrepare(AT, AT, 0, 7, "g"), None), (RELATION, None), (INSERT, None),
        (Prepare(0, AT, AT, 0, 7, "g"), None),
        (CommitPrepared(0, AT, AT, 0, 7, "g"), None),
        (StreamStart(9, True), None), (StreamStop(), None), (StreamAbort(9, 9, AbortInfo(AT, 5)), None),
    )  # fmt: skip
    assert [received.xid for received in heard] == [7, 7, 7, 7, 7, 9, 9, 9]


@pytest.mark.parametrize("options", [V1, V2, V4])
def test_an_abort_says_whether_anything_of_its_transaction_was_sent(options: PgoutputOptions) -> None:
    """Servers of 18 abort what they never sent, at every version of the protocol."""
    info = AbortInfo(AT, 5) if options is V4 else None
    (abort,) = converse(options, (StreamAbort(7, 8, info), None))
    assert abort.of_nothing
    if options is not V1:
        said = StreamStart(7, True), StreamStop(), StreamAbort(7, 8, info), StreamAbort(7, 7, info)
        heard = converse(options, *((message, None) for message in (*said, StreamAbort(7, 7, info))))
        assert [received.of_nothing for received in heard] == [False] * 4 + [True]


@pytest.mark.parametrize(
    ("options", "said", "offset"),
    [
        (V1, [Begin(AT, 0, 7), StreamAbort(7, 8)], 0),
        (V1, [INSERT], 0),
        (V1, [Begin(AT, 0, 7), Begin(AT, 0, 8)], 0),
        (V1, [Commit(0, AT, AT, 0)], 0),
        (V1, [Begin(AT, 0, 7), INSERT], 0),
        (V1, [Begin(AT, 0, 7), Truncate((5,), 0)], 0),
        (V1, [Begin(AT, 0, 7), RELATION, Truncate((5, 6), 0)], 0),
        (V1, [Begin(AT, 0, 7), RELATION, Insert(5, TupleData(()))], 0),
        (V1, [Begin(AT, 0, 7), RELATION, Update(5, OldTuple("K", (NULL, NULL)), TupleData((NULL,)))], 0),
        (V1, [Begin(AT, 0, 7), RELATION, Delete(5, OldTuple("K", ()))], 0),
        (V1, [StreamStart(7, True)], 0),
        (V2, [BeginPrepare(AT, AT, 0, 7, "g")], 0),
        (V2, [StreamStop()], 0),
        (V2, [StreamStart(7, True), StreamCommit(7, 0, AT, AT, 0)], 0),
        (V2, [StreamAbort(7, 7, AbortInfo(AT, 0))], 9),
        (V4, [StreamAbort(7, 7)], 9),
        (V4, [BeginPrepare(AT, AT, 0, 7, "g"), Commit(0, AT, AT, 0)], 0),
        (V1, [Begin(AT, 0, 7), RELATION, INSERT, Origin(AT, "o")], 0),
        (V1, [Begin(AT, 0, 7), Message(True, AT, "p", b""), Origin(AT, "o")], 0),
        (V2, [StreamStart(7, True), RELATION, INSERT, Origin(AT, "o")], 0),
        (V4, [BeginPrepare(AT, AT, 0, 7, "g"), RELATION, Truncate((5,), 0), Origin(AT, "o")], 0),
        (PgoutputOptions(("p",)), [Message(False, AT, "p", b"")], 0),
        (PgoutputOptions(("p",)), [Begin(AT, 0, 7), Message(True, AT, "p", b"")], 0),
        (PgoutputOptions(("p",), 4), [StreamStart(7, True)], 0),
        (PgoutputOptions(("p",), 4), [StreamCommit(7, 0, AT, AT, 0)], 0),
    ],
)
def test_what_may_not_come_here(options: PgoutputOptions, said: list[PgoutputMessage], offset: int) -> None:
    sender = PgoutputSession(options)
    for message in said[:-1]:
        sender.send(message)
    with pytest.raises(ProtocolError) as caught:
        sender.send(said[-1])
    assert caught.value.offset == offset


def test_an_origin_may_come_again_with_the_next_transaction_or_chunk() -> None:
    transaction = Begin(AT, 0, 7), Origin(AT, "o"), Origin(AT, "o"), RELATION, INSERT, Commit(0, AT, AT, 0)
    chunk = StreamStart(9, False), Origin(AT, "o"), INSERT, StreamStop()
    converse(V2, *((message, None) for message in (*transaction, *transaction, *chunk, *chunk)))


def test_a_slot_made_for_prepared_transactions_sends_them_unasked() -> None:
    said = BeginPrepare(AT, AT, 0, 7, "g"), Prepare(0, AT, AT, 0, 7, "g")
    converse(PgoutputOptions(("p",), 3), *((message, None) for message in said))


def test_errors_carry_offset_and_lsn() -> None:
    session = PgoutputSession(V2)
    session.receive(b"S\0\0\0\7\1")
    with pytest.raises(ProtocolError) as caught:
        session.receive(b"I\0\0\0\7\0\0", lsn=0x1_0000_0000)
    assert caught.value.offset == 5
    assert "LSN 1/0" in str(caught.value)
