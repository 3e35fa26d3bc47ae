"""The fast reader says what the codec says: of all that real servers sent, and of all that is nearly that."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.vectors import captures
from wal2lake.client.event_decoder import EventDecoder
from wal2lake.client.events import UNCHANGED, Begin, Change, Commit, Event, Message, Origin, Truncate
from wal2lake.client.row_loader import text_adapters
from wal2lake.errors import ProtocolError, UnrepresentableError
from wal2lake.lsn import LSN
from wal2lake.pgoutput import messages as pg
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.pgoutput.session import PgoutputSession
from wal2lake.pgoutput.tuples import OldTuple, TupleData
from wal2lake.wire.replication import XLogData, write_xlog_data

OPTIONS = PgoutputOptions(("p",), messages=True)


def streams() -> Iterator[list[bytes]]:
    """What servers sent of whole transactions."""
    for _, capture in captures("stream"):
        options = PgoutputOptions.parse(capture.options.items())
        if options.streaming == "off" and not options.two_phase and not options.binary:
            yield capture.pgoutput


STREAMS = list(streams())


def framed(payload: bytes, lsn: int) -> bytes:
    return write_xlog_data(XLogData(LSN(lsn), LSN(lsn), 0, payload))


def events(stream: list[bytes]) -> list[Event]:
    decoder = EventDecoder(OPTIONS, text_adapters(), LSN(0))
    return list(decoder.decode(framed(payload, 100 + i) for i, payload in enumerate(stream)))


def expected(stream: list[bytes]) -> list[tuple[Any, ...]]:
    """The same by the codec, a message at a time."""
    session, said, xid = PgoutputSession(OPTIONS), list[tuple[Any, ...]](), 0
    for payload in stream:
        match message := session.receive(payload).message:
            case pg.Begin():
                xid = message.xid
                said.append(("Begin", xid, message.final_lsn, message.commit_ts))
            case pg.Commit():
                said.append(("Commit", xid, message.commit_lsn, message.end_lsn, message.commit_ts))
            case pg.Insert() | pg.Update() | pg.Delete():
                relation = session.relations[message.relation_id]
                old, new = getattr(message, "old", None), getattr(message, "new", None)
                before = row(relation, old)
                after = row(relation, new)
                if isinstance(old, OldTuple) and old.kind == "O" and before and after:
                    after = {name: before[name] if value is UNCHANGED else value for name, value in after.items()}
                said.append((type(message).__name__, relation.name, before, after))
            case pg.Truncate():
                names = tuple(session.relations[i].name for i in message.relation_ids)
                said.append(("Truncate", names, bool(message.options & 1), bool(message.options & 2)))
            case pg.Message():
                said.append(("Message", message.transactional, message.prefix, message.content))
            case pg.Origin():
                said.append(("Origin", message.name))
    return said


def row(relation: pg.Relation, data: TupleData | OldTuple | None) -> dict[str, Any] | None:
    if data is None:
        return None
    keys_only = isinstance(data, OldTuple) and data.kind == "K"
    pairs = zip(relation.columns, data.columns, strict=True)
    kept = [(c.name, v) for c, v in pairs if not keys_only or c.flags & pg.COLUMN_IS_KEY]
    return {name: UNCHANGED if v.kind == "u" else None if v.data is None else v.data.decode() for name, v in kept}


def told(event: Event) -> tuple[Any, ...]:
    kind = type(event).__name__
    match event:
        case Begin():
            return (kind, event.xid, event.commit_lsn, event.commit_ts)
        case Commit():
            return (kind, event.xid, event.commit_lsn, event.end_lsn, event.commit_ts)
        case Change():
            return (kind, event.relation.name, event.old, event.new)
        case Truncate():
            return (kind, tuple(r.name for r in event.relations), event.cascade, event.restart_identity)
        case Message():
            return (kind, event.transactional, event.prefix, event.content)
        case Origin():
            return (kind, event.name)
    raise AssertionError(event)


def test_there_is_something_to_compare() -> None:
    kinds = {type(event).__name__ for stream in STREAMS for event in events(stream)}
    assert kinds >= {"Begin", "Insert", "Update", "Delete", "Truncate", "Commit", "Message", "Origin"}


@pytest.mark.parametrize("stream", STREAMS, ids=range(len(STREAMS)))
def test_it_says_what_the_codec_says(stream: list[bytes]) -> None:
    assert [told(event) for event in events(stream)] == expected(stream)


@pytest.mark.parametrize("stream", STREAMS, ids=range(len(STREAMS)))
def test_what_the_codec_refuses_it_refuses_and_nothing_else(stream: list[bytes]) -> None:
    """One byte changed, added or taken away somewhere."""
    chance = random.Random(len(stream))
    for _ in range(60):
        at = chance.randrange(len(stream))
        payload = bytearray(stream[at])
        match chance.randrange(3):
            case 0:
                payload[chance.randrange(len(payload))] = chance.choice((0, 1, 0x7F, 0xFF, *b"nutbNKOIUDC"))
            case 1:
                del payload[chance.randrange(len(payload)) :]
            case 2:
                payload.insert(chance.randrange(len(payload) + 1), chance.randrange(256))
        mutated = [*stream[:at], bytes(payload)]
        try:
            said: Any = expected(mutated)
        except (ProtocolError, UnicodeDecodeError) as error:
            with pytest.raises((ProtocolError, UnrepresentableError)) as refused:
                events(mutated)
            if isinstance(error, ProtocolError):
                assert refused.value.lsn == 100 + at
        else:
            assert [told(event) for event in events(mutated)] == said
