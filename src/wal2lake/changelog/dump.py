"""Looking into a log: a dictionary per segment, a line per message, a sentence per fault. For `wal2lake log`.

``verify_log`` checks the checksum of every file, and trusts nothing that the writer derived: from each segment's raw
messages it builds rows, index and metadata anew, in the state that the segments before it lead to, and compares; with
what is in force in that state, what the segment's files of relations say. Lines name kinds, relations and lengths,
never a cell value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import lru_cache
from typing import Any

import pyarrow as pa

from wal2lake.changelog.builder import Tail, build_segment
from wal2lake.changelog.documents import TABLE_CURE, corrupt, parsing, read_document
from wal2lake.changelog.format import (
    BOTH_POSITIONS_SINCE,
    POSITION_CURE,
    LogIdentity,
    Position,
    SegmentInfo,
    newest_position,
    read_batch,
    read_first,
    read_info,
    read_lsn_file,
    read_position,
    read_relations,
    read_state,
    read_transactions,
    segment_name,
    segment_seq,
)
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.places import (
    BARRIERS,
    CONSUMERS,
    IDENTITY,
    POSITION,
    POSITION_COPY,
    POSITIONS,
    RELATIONS,
    REQUESTS,
    SEGMENTS,
    STATE,
    TIMELINES,
    TRIMMED,
    requests_of,
)
from wal2lake.changelog.relations import InForce, Messages
from wal2lake.changelog.requests import read_request
from wal2lake.changelog.storage import Storage
from wal2lake.changelog.tables import documents_of_tables
from wal2lake.changelog.timelines import read_timeline
from wal2lake.columnar.arrays import to_numpy
from wal2lake.columnar.headers import (
    BEGIN,
    BEGIN_PREPARE,
    COMMIT_PREPARED,
    STREAM_COMMIT,
    STREAM_START,
    MessageColumns,
)
from wal2lake.errors import LogCorruptError
from wal2lake.lsn import LSN
from wal2lake.names import qualified
from wal2lake.pgoutput.codec import read_message
from wal2lake.pgoutput.messages import Begin, Commit, CommitPrepared, Relation, StreamCommit, Truncate, Type

_ELSEWHERE = {  # moves by position.json too; what the files say is compared; the lease's
    *("durable_lsn", "relation_files", "epoch"),
}


def list_segments(log: ChangeLog) -> Iterator[dict[str, Any]]:
    """What each segment says about itself, oldest first; LSNs as text, sizes in bytes."""
    for s in log.segments:
        yield {
            "segment": s.seq,
            "first_lsn": str(LSN(s.first_lsn)),
            "last_lsn": str(LSN(s.last_lsn)),
            "end_lsn": str(LSN(s.end_lsn)),
            "rows": s.rows,
            "payload_bytes": s.payload_bytes,
            "commits": s.commits,
            "relations": len(s.counts),
        }


def dump_messages(log: ChangeLog, start: int, end: int) -> Iterator[str]:
    """One line per message of the transactions in (start, end]: LSN, xid, kind and what it is about."""
    for extent in log.plan(start, end):
        for row in log.read(extent).to_pylist():
            yield f"{LSN(row['lsn'])} {row['xid']} {_describe(row['payload'])}"


def verify_log(storage: Storage) -> Iterator[str]:
    """A sentence for each file that is not as it must be; nothing for a sound log. Goes on after a fault.

    Only what is under ``status/`` is passed over: nothing is decided by it, and a power cut may tear it.
    """
    yield from _verify_documents(storage)
    seqs = []
    for name in storage.names(SEGMENTS):
        try:
            seqs.append(segment_seq(name))
        except LogCorruptError as error:
            yield str(error)
    if (next_seq := _position(storage).next_seq) > max(seqs, default=-1) + 1:
        yield str(corrupt(segment_name(next_seq - 1), "it is missing"))
    seqs = _without_fenced(storage, seqs)
    relations = _Relations(storage)
    yield from relations.verify()
    tail: Tail | None = None
    for seq in range(min(seqs, default=0), max(seqs, default=-1) + 1):
        name = segment_name(seq)
        try:
            faults, tail = _verify_segment(storage.map(name), name, tail, relations)
        except FileNotFoundError:
            trimmed = not any(storage.exists(segment_name(older)) for older in seqs if older < seq)
            faults, tail = [] if trimmed else [str(corrupt(name, "it is missing"))], None
        except LogCorruptError as error:
            faults, tail = [str(error)], None
        yield from faults


class _Relations:
    """What segments name as in force, of files that are each looked at and told of once."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._faulty: set[str] = set()
        self._read = lru_cache(maxsize=64)(lambda name: read_relations(storage.map(name), name))

    def verify(self) -> Iterator[str]:
        """A sentence for each file that cannot be read; one that no segment names is none, for a crash leaves such."""
        for name in self._storage.names(RELATIONS):
            try:
                self._read(f"{RELATIONS}/{name}")
            except FileNotFoundError:  # removed meanwhile
                continue
            except LogCorruptError as error:
                self._faulty.add(f"{RELATIONS}/{name}")
                yield str(error)

    def before(self, info: SegmentInfo) -> tuple[Messages | None, list[str]]:
        """What is in force where the segment starts, None where a file of it is of no use; and faults not told yet."""
        found: dict[bytes, bytes] = {}
        for name in info.relation_files:
            try:
                found |= self._read(name) if name not in self._faulty else {}
            except FileNotFoundError:
                if not self._storage.exists(info.name):  # both were removed meanwhile
                    return None, []
                self._faulty.add(name)
                return None, [str(corrupt(name, "it is missing"))]
        return (None if self._faulty.intersection(info.relation_files) else found), []


def _verify_documents(storage: Storage) -> Iterator[str]:
    known: dict[str, Callable[[bytes, str], object]] = {IDENTITY: LogIdentity.from_json}
    known |= {**dict.fromkeys(POSITIONS, read_position), TRIMMED: read_first}
    for folder in (CONSUMERS, BARRIERS):
        known |= {f"{folder}/{name}": read_lsn_file for name in storage.names(folder)}
    known |= {f"{TIMELINES}/{name}": read_timeline for name in storage.names(TIMELINES)}
    known |= dict.fromkeys(documents_of_tables(storage), _read_table)
    for folder in map(requests_of, storage.folders(REQUESTS)):
        known |= {f"{folder}/{name}": read_request for name in storage.names(folder)}
    for name, read in known.items():
        try:
            read(storage.get(name), name)
        except FileNotFoundError:  # removed meanwhile
            if name in _required_positions(storage):
                yield str(corrupt(name, "it is missing", POSITION_CURE))
        except LogCorruptError as error:
            yield str(error)


def _required_positions(storage: Storage) -> Sequence[str]:
    """A writer makes both. One of format 2 made the first, and only for an idle stream."""
    try:
        present = LogIdentity.from_json(storage.get(IDENTITY), IDENTITY).format >= BOTH_POSITIONS_SINCE
    except (FileNotFoundError, LogCorruptError):
        return ()
    if present:
        return POSITIONS if storage.names(SEGMENTS) else ()
    return (POSITION,) if storage.exists(POSITION_COPY) else ()


def _position(storage: Storage) -> Position:
    """What it says, where it says something: whether it does has been looked at."""
    try:
        return newest_position(storage.get) or Position(LSN(0), 0)
    except LogCorruptError:
        return Position(LSN(0), 0)


def _without_fenced(storage: Storage, seqs: list[int]) -> list[int]:
    """Without what writers put that were left behind: before what is held, and behind what comes next."""
    position, first = _position(storage), 0
    with suppress(FileNotFoundError, LogCorruptError):
        first = read_first(storage.get(TRIMMED), TRIMMED)
    if not position.epoch:
        return [seq for seq in seqs if seq >= first]
    return [
        seq
        for seq in seqs
        if seq >= first and (seq < position.next_seq or not _is_older(storage, segment_name(seq), position.epoch))
    ]


def _is_older(storage: Storage, name: str, epoch: int) -> bool:
    with suppress(FileNotFoundError, LogCorruptError):
        return read_info(storage.map(name), name).epoch < epoch
    return False


def _read_table(data: bytes, name: str) -> object:
    return read_state(data, name) if name.endswith(f"/{STATE}") else read_document(data, name, TABLE_CURE)


def _verify_segment(
    file: pa.Buffer, name: str, tail: Tail | None, relations: _Relations
) -> tuple[list[str], Tail | None]:
    """The faults, and the state behind the segment; nobody can tell that where a transaction has begun in a file that
    is gone or damaged, so only the checksums are checked then."""
    info, batch, index = read_info(file, name), read_batch(file, name), read_transactions(file, name)
    named, faults = relations.before(info)
    if tail is None and (_continues(batch) or info.open_before < info.seq or named is None):
        return faults, None
    before = _state_before(info, batch, tail, named)
    with parsing(name):
        subxid = to_numpy(batch["subxid"]) if "subxid" in batch.schema.names else None
        messages = MessageColumns(to_numpy(batch["lsn"]), batch["payload"], subxid)
        built, after = build_segment(messages, info.seq, before)
    wrong = [f.name for f in fields(info) if getattr(info, f.name) not in (None, getattr(built.info, f.name))]
    faults += [f"{name}: {field} is not what its messages say." for field in wrong if field not in _ELSEWHERE]
    if named is not None and named != before.in_force.messages:
        faults.append(f"{name}: the relations in force are not what the messages before it say.")
    if not built.batch.equals(batch):
        faults.append(f"{name}: its columns are not what its messages say.")
    if not built.transactions.equals(index):
        faults.append(f"{name}: its transaction index is not what its messages say.")
    return faults, after


def _continues(batch: pa.RecordBatch) -> bool:
    """The first row is of a transaction or chunk that began before."""
    first = batch.column("tag")[0].as_py()
    return bool(batch.column("xid")[0].as_py()) and first not in (
        BEGIN,
        STREAM_START,
        STREAM_COMMIT,
        BEGIN_PREPARE,
        COMMIT_PREPARED,
    )


def _state_before(info: SegmentInfo, batch: pa.RecordBatch, tail: Tail | None, named: Messages | None) -> Tail:
    """As the writer had it: a session that began with this segment knows the log's end and what is prepared, no more.

    Whether one did shows, until format 4, where something was open that this segment does not go on with.
    """
    if tail is None:
        assert named is not None, "nothing could be built"
        return Tail(info.previous_end_lsn, info.previous_end_lsn, InForce(named), fresh=bool(info.begins_session))
    if info.begins_session is not None:
        return tail.new_session() if info.begins_session else tail
    if _continues(batch):
        return tail
    left_open = tail.open is not None or tail.chunk or (tail.streams and info.open_before == info.seq)
    return tail.new_session() if left_open or named == {} else tail


def _describe(payload: bytes) -> str:
    message = read_message(payload)
    kind = type(message).__name__
    match message:
        case Begin():
            return f"{kind} commit at {message.final_lsn}"
        case Commit() | StreamCommit() | CommitPrepared():
            return f"{kind} end {message.end_lsn}"
        case Relation():
            columns = ", ".join(column.name for column in message.columns)
            return f"{kind} {message.relation_id} {qualified(message.namespace, message.name)} ({columns})"
        case Type():
            return f"{kind} {message.type_oid} {qualified(message.namespace, message.name)}"
        case Truncate():
            return f"{kind} {', '.join(map(str, message.relation_ids))}"
    relation = getattr(message, "relation_id", None)
    return f"{kind} {relation or ''} {len(payload)} bytes".replace("  ", " ")
