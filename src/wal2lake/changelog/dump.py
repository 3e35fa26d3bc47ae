"""Looking into a log: a dictionary per segment, a line per message, a sentence per fault. For `wal2lake log`.

``verify_log`` trusts nothing that the writer derived: from each segment's raw messages it builds rows, index and
metadata anew, in the state that the segments before it lead to, and compares. Lines name kinds, relations and
lengths, never a cell value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pyarrow as pa

from wal2lake.changelog.builder import Tail, build_segment
from wal2lake.changelog.format import SegmentInfo, read_batch, read_transactions
from wal2lake.changelog.log import ChangeLog
from wal2lake.errors import Wal2LakeError
from wal2lake.lsn import LSN
from wal2lake.names import qualified
from wal2lake.pgoutput.codec import read_message
from wal2lake.pgoutput.messages import Begin, Commit, Relation, Truncate, Type

_HEADER = b"w%s" + bytes(16)  # XLogData: start LSN; the end and the send time are not kept
_DURABLE = {"durable_lsn"}  # also moves without a message, by position.json


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


def verify_log(log: ChangeLog) -> Iterator[str]:
    """A sentence for each thing that is not as it must be; nothing for a sound log. Goes on after a fault."""
    tail: Tail | None = None
    for info in log.segments:
        try:
            faults, tail = _verify_segment(log, info, tail)
        except FileNotFoundError:  # retention removed it since the segments were listed
            faults, tail = [], None
        except Wal2LakeError as error:
            faults, tail = [str(error)], None
        yield from faults


def _verify_segment(log: ChangeLog, info: SegmentInfo, tail: Tail | None) -> tuple[list[str], Tail]:
    file, name = log.storage.map(info.name), info.name
    batch, index = read_batch(file, name), read_transactions(file, name)
    copy_data = [
        _HEADER % row["lsn"].to_bytes(8, "big") + row["payload"] for row in batch.select(["lsn", "payload"]).to_pylist()
    ]
    built, after = build_segment(copy_data, info.seq, _state_before(info, batch, tail))
    wrong = [f.name for f in fields(info) if getattr(info, f.name) != getattr(built.info, f.name)]
    faults = [f"{name}: {field} is not what its messages say." for field in wrong if field not in _DURABLE]
    if not built.batch.equals(batch):
        faults.append(f"{name}: its columns are not what its messages say.")
    if not built.transactions.equals(index):
        faults.append(f"{name}: its transaction index is not what its messages say.")
    return faults, after


def _state_before(info: SegmentInfo, batch: pa.RecordBatch, tail: Tail | None) -> Tail:
    """As the writer had it: a session that began with this segment knows nothing but the log's end.

    Whether one did is seen at the rows: what continues a transaction does not begin with Begin.
    """
    if tail is None:
        return Tail(info.previous_end_lsn, info.previous_end_lsn, info.relations, info.types)
    begins = batch.column("tag")[0].as_py() == ord("B")
    return tail.new_session() if begins and (tail.open or not info.relations) else tail


def _describe(payload: bytes) -> str:
    message = read_message(payload)
    kind = type(message).__name__
    match message:
        case Begin():
            return f"{kind} commit at {message.final_lsn}"
        case Commit():
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
