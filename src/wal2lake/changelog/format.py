"""What a change log file looks like (places.py: where). Everything written here is read back here.

A segment is one Arrow IPC file with a trailer (trailer.py): the columns of SEGMENT_SCHEMA, and in the schema's
metadata SegmentInfo as JSON and the transactions as an Arrow IPC stream, so a reader that only plans never touches a
row. The Relation and Type messages in force are files beside it (relations.py), the others are documents
(documents.py). All carry checksums, and nothing is read from a file before the bytes that say it were checked.

Format 2, which had the messages in force in each segment, format 3, which knew no streamed transactions, and format 4,
which knew no prepared ones, are still read, and a log of any of them goes on in this one.
LSNs are integers in segments (they are arrays there) and PostgreSQL's text in the small files people read.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

import pyarrow as pa

from wal2lake.changelog.documents import RESTORE, TABLE_CURE, corrupt, parsing, read_document, write_document
from wal2lake.changelog.places import BARRIERS, CONSUMERS, POSITIONS, SEGMENTS
from wal2lake.changelog.relations import Messages, once, read_file, read_messages
from wal2lake.changelog.streams import EXTENT, Extents, no_extents
from wal2lake.changelog.trailer import with_trailer, without_trailer
from wal2lake.errors import BEGIN_ANEW, LogCorruptError
from wal2lake.lsn import LSN

FORMAT = 5
READABLE = (2, 3, 4, FORMAT)
BOTH_POSITIONS_SINCE = 3
_RELATION_FILES_SINCE, _STREAMED_SINCE, _PREPARED_SINCE = 3, 4, 5
_SEGMENT_KEY, _TRANSACTIONS_KEY = b"wal2lake.segment", b"wal2lake.transactions"
_RELATIONS_KEY = b"wal2lake.relations"  # until format 2
_CURES = {
    CONSUMERS: "Restore it from a copy of the log's folder, or remove it: its reader writes it anew with its next"
    " batch. Should retention remove what that reader still needs before then, it says so.",
    BARRIERS: "Remove it: it only asks for a batch to end at one place, and `wal2lake verify` asks anew.",
}


def _required(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])


SEGMENT_SCHEMA = _required(
    lsn=pa.uint64(),  # XLogData's start
    tag=pa.uint8(),  # the message's type byte
    relation_id=pa.uint32(),  # of Insert, Update, Delete and Relation; else 0
    xid=pa.uint32(),  # of the transaction around it; 0 outside one
    payload=pa.binary(),  # the message, its type byte first
)
STREAMED_SCHEMA = SEGMENT_SCHEMA.append(  # where rows are of streamed chunks: the xid that the message bore there, or 0
    pa.field("subxid", pa.uint32(), nullable=False)
)
TRANSACTIONS_SCHEMA = _required(
    xid=pa.uint32(),
    final_lsn=pa.uint64(),  # where the commit record starts
    end_lsn=pa.uint64(),  # where it ends: the position that means "all of this transaction"
    commit_ts=pa.int64(),  # µs since 2000-01-01 UTC
    first_seq=pa.uint64(),  # segment and row of its Begin
    first_row=pa.uint32(),
    last_row=pa.uint32(),  # row of its Commit, in the segment that lists it
    rows=pa.uint64(),  # messages and payload bytes of the whole transaction
    bytes=pa.uint64(),
    extents=pa.list_(EXTENT),  # of one that was streamed, its rows, in order; else empty: from Begin to Commit
)


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """Whose changes these are. A log never mixes two of them."""

    system_id: str
    timeline: int
    database: str
    slot: str
    publication: str
    start_lsn: LSN
    options: Mapping[str, str] = field(default_factory=dict)
    format: int = FORMAT

    def to_json(self) -> bytes:
        return write_document(self.document())

    @classmethod
    def from_json(cls, data: bytes, name: str) -> LogIdentity:
        _require_format(data, name)
        values = read_document(data, name)
        with parsing(name):
            return cls(**values | {"start_lsn": LSN.parse(values["start_lsn"])})

    def document(self) -> dict[str, Any]:
        return asdict(self) | {"start_lsn": str(self.start_lsn)}


def _require_format(data: bytes, name: str) -> None:
    """Raise LogCorruptError for a log of another version; ``data``: its log.json, not checked, for it may be anything
    that has no checksum yet. What is damaged passes."""
    try:
        found = json.loads(data)["format"]
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        return
    if type(found) is int and found < READABLE[0]:
        raise corrupt(
            name,
            f"the log was written by an earlier version of wal2lake, in format {found}, which has no checksums",
            f"Let that version go on with it; or have every table read again: {BEGIN_ANEW}.",
        )
    if type(found) is int and found > FORMAT:
        raise corrupt(name, f"it is of format {found}, and this version of wal2lake reads {FORMAT}", "Use a newer one.")


@dataclass(frozen=True, slots=True)
class Run:
    """Adjoining rows of whole committed transactions, from (first_seq, first_row) up to this segment's ``stop``."""

    first_seq: int
    first_row: int
    stop: int


@dataclass(frozen=True, slots=True)
class Announcement:
    """A Relation message ('R') at ``row``, or a Type ('Y') that differs from what was in force for its OID."""

    row: int
    kind: str
    oid: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """What a segment says about itself. LSNs and sizes (bytes) are plain integers; 0 stands for "none".

    ``relation_files`` name where the Relation and Type messages in force before row 0 are, a later one over an earlier;
    ``announced`` is what replaces them, a Relation that says the same again included; ``counts`` has the rows of each
    kind by relation, transactions that never ended included. ``previous_end_lsn`` and ``end_lsn``: the end of the last
    commit in the whole log, before and after this segment. ``durable_lsn``: nothing below it is missing.
    ``streamed``: how many of the transactions that end here came in chunks; where there are any, ``runs`` is empty, and
    the index has it all. ``commits_from``: the first segment with rows of the transactions that end here;
    ``open_before``, ``open_after``: the same of streamed ones that have not ended where this segment begins, and where
    it ends; this one where there are none. ``prepared``: by xid, of each transaction that is prepared and has not
    ended where this one ends, the segment with its Prepare; ``prepared_here``: of those that have it here, their
    extents. ``begins_session``: nothing came before it in its session of the stream; None until format 4. ``epoch``: of
    the lease under which it was put; 0 where locks are files.
    """

    seq: int
    first_lsn: int
    last_lsn: int
    rows: int
    payload_bytes: int
    relation_files: tuple[str, ...]
    announced: tuple[Announcement, ...]
    counts: Mapping[int, Mapping[str, int]]
    commits: int
    commit_rows: int
    commit_bytes: int
    first_commit_end_lsn: int
    last_commit_end_lsn: int
    previous_end_lsn: int
    end_lsn: int
    durable_lsn: int
    runs: tuple[Run, ...]
    streamed: int
    commits_from: int
    open_before: int
    open_after: int
    prepared: Mapping[int, int]
    prepared_here: Mapping[int, Extents]
    begins_session: bool | None
    epoch: int = 0

    @property
    def name(self) -> str:
        return segment_name(self.seq)

    def to_json(self, identity: LogIdentity) -> bytes:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values["announced"] = [(n.row, n.kind, n.oid, b64encode(n.payload).decode()) for n in self.announced]
        values["runs"] = [(r.first_seq, r.first_row, r.stop) for r in self.runs]
        if not self.epoch:
            del values["epoch"]
        about = {"format": FORMAT, "identity": identity.document()}
        return json.dumps(about | values, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> SegmentInfo:
        values = json.loads(data)
        if values["format"] < _RELATION_FILES_SINCE:
            values["relation_files"] = [segment_name(values["seq"])]  # its own
        if values["format"] < _STREAMED_SINCE:
            since = min((run[0] for run in values["runs"]), default=values["seq"])
            values |= {"streamed": 0, "commits_from": since} | dict.fromkeys(
                ("open_before", "open_after"), values["seq"]
            )
        if values["format"] < _PREPARED_SINCE:
            values |= {"prepared": {}, "prepared_here": {}, "begins_session": None}
        known: dict[str, Any] = {f.name: values[f.name] for f in fields(cls) if f.name in values or f.name != "epoch"}
        known["relation_files"] = tuple(known["relation_files"])
        known["announced"] = tuple(
            Announcement(row, kind, oid, once(b64decode(p))) for row, kind, oid, p in known["announced"]
        )
        known["counts"] = {int(oid): kinds for oid, kinds in known["counts"].items()}
        known["runs"] = tuple(Run(*run) for run in known["runs"])
        known["prepared"] = {int(xid): seq for xid, seq in known["prepared"].items()}
        known["prepared_here"] = {int(x): tuple(map(tuple, extents)) for x, extents in known["prepared_here"].items()}
        return cls(**known)


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment in memory: ``batch`` as SEGMENT_SCHEMA or STREAMED_SCHEMA, ``transactions`` as TRANSACTIONS_SCHEMA."""

    info: SegmentInfo
    batch: pa.RecordBatch
    transactions: pa.RecordBatch


def segment_name(seq: int) -> str:
    return f"{SEGMENTS}/{seq:016d}.arrow"


def segment_seq(name: str) -> int:
    """The number in a file name of the segments folder; raises LogCorruptError for a stranger."""
    stem, _, suffix = name.rpartition("/")[2].partition(".")
    if suffix != "arrow" or not stem.isdecimal():
        raise corrupt(f"{SEGMENTS}/{name}", "it is not named like a segment", "It is none of the log's: move it away.")
    return int(stem)


def write_segment(segment: Segment, identity: LogIdentity, compression: str | None) -> list[pa.Buffer | bytes]:
    """The file's parts; ``compression`` is None, "lz4" or "zstd"."""
    index = pa.BufferOutputStream()
    with pa.ipc.new_stream(index, TRANSACTIONS_SCHEMA) as writer:
        writer.write_batch(segment.transactions)
    metadata = {
        _SEGMENT_KEY: segment.info.to_json(identity),
        _TRANSACTIONS_KEY: index.getvalue().to_pybytes(),
    }
    file = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(file, segment.batch.schema.with_metadata(metadata), options=options) as writer:
        writer.write_batch(segment.batch)
    return with_trailer(file.getvalue(), FORMAT)


def read_info(file: pa.Buffer, name: str) -> SegmentInfo:
    """Like the other two: of the file ``name``, or LogCorruptError that names it."""
    metadata = _metadata(file, name)
    with parsing(name):
        info = SegmentInfo.from_json(metadata[_SEGMENT_KEY])
    if info.name != name:
        raise corrupt(name, f"it is segment {info.seq}, under another's name")
    return info


def read_relations(file: pa.Buffer, name: str) -> Messages:
    """Of one of SegmentInfo's ``relation_files``: a file of relations, or a segment of format 2."""
    if name.partition("/")[0] != SEGMENTS:
        return read_file(file, name)
    metadata = _metadata(file, name)
    with parsing(name):
        return read_messages(metadata[_RELATIONS_KEY], name)


def read_transactions(file: pa.Buffer, name: str) -> pa.RecordBatch:
    metadata = _metadata(file, name)
    with parsing(name):
        table = pa.ipc.open_stream(metadata[_TRANSACTIONS_KEY]).read_all()
        if "extents" not in table.column_names:
            table = table.append_column(TRANSACTIONS_SCHEMA.field("extents"), no_extents(table.num_rows))
        return one_batch(table, TRANSACTIONS_SCHEMA)


def read_batch(file: pa.Buffer, name: str, *, check: bool = True) -> pa.RecordBatch:
    """All rows; zero copy where the file is mapped and not compressed. ``check``: not needed twice for one file."""
    arrow = without_trailer(file, name, READABLE, rows=check)
    with parsing(name):
        return one_batch(pa.ipc.open_file(arrow).read_all().replace_schema_metadata(None), SEGMENT_SCHEMA)


def read_columns(file: pa.Buffer, name: str, columns: Sequence[str], *, check: bool = True) -> pa.RecordBatch:
    """Some columns of all rows; of a compressed file nothing else is decompressed. ``check`` as in read_batch."""
    arrow = without_trailer(file, name, READABLE, rows=check)
    options = pa.ipc.IpcReadOptions(included_fields=[SEGMENT_SCHEMA.get_field_index(column) for column in columns])
    with parsing(name):
        table = pa.ipc.open_file(arrow, options=options).read_all().replace_schema_metadata(None)
        return one_batch(table.select(list(columns)), pa.schema([SEGMENT_SCHEMA.field(column) for column in columns]))


def one_batch(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=schema)


POSITION_CURE = (
    "Restore it from a copy of the log's folder; or remove position.json and position.copy.json, and run again: where"
    " the slot shows that the segments have all, capture goes on, and else it says what to do."
)


class Position(NamedTuple):
    """How far the log is durable, and which segment comes next, so that a lost newest one is missed. ``epoch``: what is
    put from that segment on, under a lease before this one, is none of the log's; 0 where locks are files."""

    lsn: LSN
    next_seq: int
    epoch: int = 0


def write_position(lsn: int, next_seq: int, epoch: int = 0) -> bytes:
    """position.json."""
    return write_document({"lsn": str(LSN(lsn)), "next_segment": next_seq, **({"epoch": epoch} if epoch else {})})


def read_position(data: bytes, name: str) -> Position:
    """What write_position wrote."""
    values = read_document(data, name, POSITION_CURE)
    with parsing(name, POSITION_CURE):
        return Position(LSN.parse(values["lsn"]), int(values["next_segment"]), int(values.get("epoch", 0)))


def write_first(seq: int) -> bytes:
    """trimmed.json."""
    return write_document({"first_segment": seq})


def read_first(data: bytes, name: str) -> int:
    """The number of the first segment that retention has not removed."""
    values = read_document(data, name)
    with parsing(name):
        return int(values["first_segment"])


def newest_position(get: Callable[[str], bytes]) -> Position | None:
    """The position, by ``get``, from the file or else from its copy; None when the stream was never idle.

    Raises LogCorruptError where there are such files, and none is sound.
    """
    damage: LogCorruptError | None = None
    for name in POSITIONS:
        try:
            return read_position(get(name), name)
        except FileNotFoundError:
            continue
        except LogCorruptError as error:
            damage = damage or error
    if damage is not None:
        raise damage
    return None


def read_state(data: bytes, name: str) -> dict[str, Any]:
    """A table's document; one that was copied over another's is as wrong as a damaged one."""
    values = read_document(data, name, TABLE_CURE)
    with parsing(name, TABLE_CURE):
        if values["table"] != name.split("/")[-2]:
            raise corrupt(name, f"it is of the table {values['table']}", TABLE_CURE)
    return values


def write_state(values: Mapping[str, Any], name: str) -> bytes:
    """A table's document, ``name``."""
    return write_document({"table": name.split("/")[-2], **values})


def write_lsn_file(lsn: int) -> bytes:
    """consumers/… and barriers/… hold one LSN each."""
    return write_document({"lsn": str(LSN(lsn))})


def read_lsn_file(data: bytes, name: str) -> LSN:
    cure = _CURES.get(name.partition("/")[0], RESTORE)
    values = read_document(data, name, cure)
    with parsing(name, cure):
        return LSN.parse(values["lsn"])


def _metadata(file: pa.Buffer, name: str) -> dict[bytes, bytes]:
    arrow = without_trailer(file, name, READABLE, rows=False)
    with parsing(name):
        schema = pa.ipc.open_file(arrow).schema
    metadata: dict[bytes, bytes] = schema.metadata or {}
    known = schema.equals(SEGMENT_SCHEMA) or schema.equals(STREAMED_SCHEMA)
    if not known or not {_SEGMENT_KEY, _TRANSACTIONS_KEY} <= metadata.keys():
        raise corrupt(name, "it is an Arrow file, but not a segment")
    return metadata
