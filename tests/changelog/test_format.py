"""What is named or laid out like a segment and is none; and what each kind of message needs at least to be taken in."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from wal2lake.capture.frames import without_headers
from wal2lake.changelog import format as layout
from wal2lake.changelog.trailer import with_trailer
from wal2lake.columnar.headers import RELATION, MessageColumns
from wal2lake.errors import LogCorruptError, ProtocolError
from wal2lake.lsn import LSN
from wal2lake.pgoutput.codec import write_message
from wal2lake.pgoutput.messages import (
    Begin,
    Commit,
    Delete,
    Insert,
    Message,
    Origin,
    PgoutputMessage,
    Relation,
    StreamAbort,
    Truncate,
    Type,
    Update,
)
from wal2lake.pgoutput.tuples import OldTuple, TupleData
from wal2lake.wire.replication import XLogData, write_xlog_data

SEGMENT = layout.segment_name(7)
AT, NOTHING = LSN(0x1000), TupleData(())
SHORTEST: list[PgoutputMessage] = [
    Begin(AT, 0, 1),
    Commit(0, AT, AT, 0),
    Origin(AT, ""),
    Relation(1, "", "", "d", ()),
    Type(1, "", ""),
    Insert(1, NOTHING),
    Update(1, None, NOTHING),
    Delete(1, OldTuple("K", ())),
    Truncate((1,), 0),
    Message(True, AT, "", b""),
    StreamAbort(1, 1),
]


@pytest.mark.parametrize("message", SHORTEST, ids=lambda message: type(message).__name__)
def test_each_kind_of_message_as_short_as_it_can_be(message: PgoutputMessage) -> None:
    whole = write_message(message)
    assert MessageColumns.of([(AT, whole)]).tag.tolist() == [whole[0]]
    with pytest.raises(ProtocolError, match=f"{len(whole) - 1} bytes") as raised:
        MessageColumns.of([(AT, whole), (AT, whole[:-1])])
    assert (raised.value.lsn, raised.value.offset) == (AT, 0)


@pytest.mark.parametrize("count", [0, 1, 2, 4, 5, 8, 9, 16, 17, 40])
def test_the_log_takes_what_stands_behind_the_headers(count: int) -> None:
    said = [write_message(Origin(AT, "o" * length)) for length in range(count)]
    messages = without_headers(
        [write_xlog_data(XLogData(LSN(n + 1), AT, 0, payload)) for n, payload in enumerate(said)]
    )
    assert messages.payload.to_pylist() == said
    assert messages.lsn.tolist() == list(range(1, count + 1))


@pytest.mark.parametrize("frame", [b"k" + bytes(30), b"w" + bytes(24), b"w"])
def test_what_is_no_message_in_a_frame_is_refused(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        without_headers([write_xlog_data(XLogData(AT, AT, 0, write_message(Origin(AT, "")))), frame])


def test_some_of_the_messages_are_as_they_were_among_all() -> None:
    said = [write_message(Relation(n, "", "n" * n, "d", ())) for n in range(6)]
    columns = MessageColumns.of((n, payload) for n, payload in enumerate(said))
    part = MessageColumns(columns.lsn[2:5], columns.payload.slice(2, 3))  # as a segment's rows are
    some = part.where(np.array([True, False, True]))
    assert (some.lsn.tolist(), some.payload.to_pylist()) == ([2, 4], [said[2], said[4]])
    assert [part.ids(part.rows_of(RELATION)).tolist(), some.ids(some.rows_of(RELATION)).tolist()] == [[2, 3, 4], [2, 4]]
    assert len(columns.where(np.zeros(6, bool))) == 0


@pytest.mark.parametrize(("name", "seq"), [("0000000000000000.arrow", 0), (SEGMENT, 7), ("12345.arrow", 12345)])
def test_a_segments_number_is_its_name(name: str, seq: int) -> None:
    assert layout.segment_seq(name) == seq


@pytest.mark.parametrize("name", ["0.txt", "0", ".arrow", "a.arrow", "-1.arrow", "0.arrow.tmp", "0x1.arrow", "x.txt"])
def test_a_stranger_among_the_segments_is_named(name: str) -> None:
    with pytest.raises(LogCorruptError, match=rf"segments/{name} .*not named like a segment"):
        layout.segment_seq(name)


def arrow_file(schema: pa.Schema) -> pa.Buffer:
    file = pa.BufferOutputStream()
    with pa.ipc.new_file(file, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist([], schema=schema))
    return pa.py_buffer(b"".join(map(bytes, map(memoryview, with_trailer(file.getvalue(), layout.FORMAT)))))


KEYS = (b"wal2lake.segment", b"wal2lake.transactions")


@pytest.mark.parametrize("keys", [(), KEYS[:1], KEYS[1:]])
@pytest.mark.parametrize("columns", [layout.SEGMENT_SCHEMA, layout.TRANSACTIONS_SCHEMA], ids=["rows", "index"])
def test_a_sound_arrow_file_that_is_no_segment(columns: pa.Schema, keys: tuple[bytes, ...]) -> None:
    file = arrow_file(columns.with_metadata(dict.fromkeys(keys, b"")))
    for read in (layout.read_info, layout.read_transactions):
        with pytest.raises(LogCorruptError, match="not a segment"):
            read(file, SEGMENT)


def test_a_sound_arrow_file_with_a_segments_keys_and_other_columns() -> None:
    with pytest.raises(LogCorruptError, match="not a segment"):
        layout.read_info(arrow_file(pa.schema({"a": pa.int8()}, dict.fromkeys(KEYS, b""))), SEGMENT)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (layout.READABLE[0] - 1, "earlier version"),
        (layout.READABLE[0], "checksum does not hold"),
        (layout.FORMAT, "checksum does not hold"),
        (layout.FORMAT + 1, f"of format {layout.FORMAT + 1}, and this version of wal2lake reads {layout.FORMAT}"),
        (True, "checksum does not hold"),
        ("9", "checksum does not hold"),
    ],
)
def test_the_version_of_a_log_is_told_before_its_checksum(found: object, message: str) -> None:
    with pytest.raises(LogCorruptError, match=message):
        layout.LogIdentity.from_json(json.dumps({"format": found}).encode(), "log.json")


def test_a_document_of_one_lsn() -> None:
    assert layout.read_lsn_file(layout.write_lsn_file(0x1_0000_00FF), "position.json") == LSN(0x1_0000_00FF)
