"""The vectorised decoders under test: a mutant stands among sound messages, whose bytes it must not be read from.

What the codec refuses, the vectorised decoder must refuse too; it may refuse more, as it knows the columns.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from tests.columnar.test_framing import check, frame
from tests.columnar.test_structs import GOOD_BINARY, GOOD_TEXT, RULES
from tests.fuzz.targets import Target
from tests.vectors import Capture, load
from wal2lake.columnar.buffer import MessageBatch
from wal2lake.columnar.changes import decode_changes
from wal2lake.columnar.copy_rows import decode_copy_rows, walk
from wal2lake.columnar.decoders import text_decoder
from wal2lake.columnar.framing import Framed
from wal2lake.columnar.tuples import AS_BINARY, decode_field
from wal2lake.columnar.type_table import EDITION
from wal2lake.columnar.types import TableColumn, TableSchema, TypeRules, column_type
from wal2lake.errors import ProtocolError, SchemaChangeError, UnrepresentableError
from wal2lake.pgoutput.codec import read_message
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.pgoutput.session import PgoutputSession
from wal2lake.wire.copyformat import BinaryRowReader, binary_header, binary_trailer, write_binary_row

NAMES = ("lsn", "tag", "relation_id", "xid", "payload")
_RULES = TypeRules(EDITION)
TYPES = (pa.uint64(), pa.uint8(), pa.uint32(), pa.uint32(), pa.binary())
_ARRAY = bytes.fromhex("00000001 00000001 00000017 00000002 00000001 00000004 00000007 ffffffff")  # {7,NULL}
COPIED = [(b"\0\0\0\1", b"one", _ARRAY), (b"\xff\xff\xff\xff", b"", b"\0" * 11 + b"\x17"), (None, None, None)]
OIDS = list(GOOD_BINARY)
NESTED = [[GOOD_BINARY[oid] for oid in OIDS], [None] * len(OIDS)]


def _said(capture: Capture) -> bytes:
    """What the server sent, frame after frame."""
    if capture.family == "frames":
        return b"".join(sent for side, sent in capture.frames if side == "B")
    return b"".join(map(frame, capture.payloads))


def targets() -> list[Target]:
    """Changes of the newest server, in text and in binary, and COPY rows."""
    made = []
    for capture in load(18).captures:
        if capture.name not in ("changes", "binary"):
            continue
        session = PgoutputSession(PgoutputOptions.parse(capture.options.items()))
        messages = [(session.receive(payload).message, payload) for payload in capture.pgoutput]
        schemas = {
            oid: TableSchema.from_relation(r, session.types, rules=_RULES) for oid, r in session.relations.items()
        }
        corpus = [payload for message, payload in messages if message.tag in (b"I", b"U", b"D")]
        made.append(Target(f"columnar {capture.name}", corpus, _changes(schemas, corpus)))
    columns = [TableColumn("a", column_type(23), True), TableColumn("b", column_type(25), False),
               TableColumn("c", column_type(1007, edition=EDITION), False)]  # fmt: skip
    rows = [write_binary_row(row) for row in COPIED]
    nested = [write_binary_row(row) for row in NESTED]
    types = [TableColumn(f"c{place}", RULES.column("", oid, -1, None), False) for place, oid in enumerate(OIDS)]
    return [
        *made,
        Target("columnar framing", list(map(_said, load(18).captures)), check),
        Target("columnar copy rows", rows, _copy_rows(columns, rows[0])),
        Target("columnar nested", nested, _copy_rows(types, nested[0])),
        Target(
            "columnar nested text", [bytes([place]) + GOOD_TEXT[oid] for place, oid in enumerate(OIDS)], _texts(types)
        ),
    ]


def _changes(schemas: dict[int, TableSchema], corpus: list[bytes]) -> Callable[[bytes], None]:
    sound = {oid: next(p for p in corpus if p[1:5] == oid.to_bytes(4, "big")) for oid in schemas if _seen(oid, corpus)}

    def run(data: bytes) -> None:
        oid = int.from_bytes(data[1:5], "big")
        if oid not in sound or data[:1] not in (b"I", b"U", b"D"):
            return
        payloads = [sound[oid], data, sound[oid]]
        rows = ([1, 2, 3], [payload[0] for payload in payloads], [oid] * 3, [1] * 3, payloads)
        arrays = [pa.array(values, kind) for values, kind in zip(rows, TYPES, strict=True)]
        try:
            changes = decode_changes(pa.RecordBatch.from_arrays(arrays, NAMES), schemas[oid])
        except UnrepresentableError:
            return
        assert len(changes) == 3
        _codec_agrees(lambda: read_message(data))

    return run


def _copy_rows(columns: list[TableColumn], sound: bytes) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        try:
            arrays = decode_copy_rows([sound, data, sound], columns, "public.t")
        except (UnrepresentableError, SchemaChangeError):  # an array of another shape, a composite of another type
            return
        assert {len(array) for array in arrays} == {3}
        reader = BinaryRowReader()
        _codec_agrees(lambda: reader.feed(binary_header() + data + binary_trailer()))

    return run


def _texts(columns: list[TableColumn]) -> Callable[[bytes], None]:
    """The first byte says of which of the columns the rest is."""

    def run(data: bytes) -> None:
        place = (data[0] if data else 0) % len(columns)
        sound, formats = GOOD_TEXT[OIDS[place]], {AS_BINARY: text_decoder}
        rows = [write_binary_row([value]) for value in (sound, data[1:], sound)]
        messages = MessageBatch.framed(Framed.of(rows), "public.t")
        (field,) = walk(messages, [columns[place]]).fields
        try:
            found = decode_field(messages, field, columns[place], formats, "error")
        except (ProtocolError, UnrepresentableError, SchemaChangeError):  # in a row that this stands in
            return
        found.validate(full=True)
        assert len(found) == 3

    return run


def _codec_agrees(read: Callable[[], object]) -> None:
    try:
        read()
    except ProtocolError as error:
        raise AssertionError(f"columnar reads what the codec refuses: {error}") from error


def _seen(oid: int, corpus: list[bytes]) -> bool:
    return any(payload[1:5] == oid.to_bytes(4, "big") for payload in corpus)
