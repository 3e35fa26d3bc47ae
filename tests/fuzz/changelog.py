"""The change log's files under test: a mutant is refused with its file's name, or read as one of the sound ones.

Nothing else will do: there is no damage that a reader may make something of.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.fuzz.targets import Target
from tests.vectors import load
from wal2lake.changelog.builder import Tail, build_segment
from wal2lake.changelog.documents import read_document, write_document
from wal2lake.changelog.format import (
    LogIdentity,
    read_batch,
    read_columns,
    read_info,
    read_lsn_file,
    read_position,
    read_relations,
    read_transactions,
    segment_name,
    write_lsn_file,
    write_position,
    write_segment,
)
from wal2lake.changelog.relations import InForce
from wal2lake.changelog.timelines import Timeline, read_timeline, write_timeline
from wal2lake.columnar.headers import MessageColumns
from wal2lake.errors import LogCorruptError
from wal2lake.lsn import LSN
from wal2lake.postgres.snapshot import SnapshotIdentity
from wal2lake.sinks.base import FileAction
from wal2lake.tables.state import Chunk, DoneChunk, Followed, Landed, PlannedColumn, SnapshotPlan, TableState
from wal2lake.tables.table_folder import TableFolder

SEGMENT, DOCUMENT = segment_name(0), "position.json"
IDENTITY = LogIdentity("7300000000000000001", 1, "shop", "wal2lake", "wal2lake", LSN(0x1000), {"proto_version": "1"})


def targets() -> list[Target]:
    """A segment's rows, the index and metadata that whoever plans reads alone, files of relations, and documents."""
    segments, documents, relations = list(_segments()), list(_documents()), [_RELATIONS[1]]
    return [
        Target("segment", segments, _as_written(segments, _rows)),
        Target("index", segments, _as_written(segments, _index)),
        Target("relations", relations, _as_written(relations, _relations)),
        Target("documents", documents, _as_written(documents, _document)),
    ]


def _as_written(corpus: list[bytes], read: Callable[[pa.Buffer], Any]) -> Callable[[bytes], None]:
    sound = [read(pa.py_buffer(data)) for data in corpus]

    def run(data: bytes) -> None:
        with _named():
            found = read(pa.py_buffer(data))
            assert any(found == one for one in sound), "a damaged file is read as something else"

    return run


@contextmanager
def _named() -> Iterator[None]:
    """A refusal is no bug when it says which file."""
    try:
        yield
    except LogCorruptError as error:
        assert any(f"{name} " in str(error) for name in (SEGMENT, DOCUMENT, _RELATIONS[0])), f"names no file: {error}"


def _rows(file: pa.Buffer) -> Any:
    return read_batch(file, SEGMENT), read_columns(file, SEGMENT, ("tag", "xid"))


def _index(file: pa.Buffer) -> Any:
    return astuple(read_info(file, SEGMENT)), read_transactions(file, SEGMENT)


def _relations(file: pa.Buffer) -> Any:
    return read_relations(file, _RELATIONS[0])


def _document(data: pa.Buffer) -> Any:
    """By each reader that there is: which of them sees which file is no matter of chance."""
    whole = data.to_pybytes()
    values = read_document(whole, DOCUMENT)
    if "switches" in values:
        return read_timeline(whole, DOCUMENT)
    if "next_segment" in values:
        return read_position(whole, DOCUMENT)
    if "system_id" in values:
        return LogIdentity.from_json(whole, DOCUMENT)
    return read_lsn_file(whole, DOCUMENT) if isinstance(values.get("lsn"), str) else values


def _segments() -> Iterator[bytes]:
    """First segments of logs: what the newest server sent, in each compression."""
    for sent in _sent():
        segment, _ = build_segment(sent, 0, Tail(0, 0))
        for compression in (None, "lz4", "zstd"):
            yield b"".join(map(bytes, write_segment(segment, IDENTITY, compression)))


def _sent() -> Iterator[MessageColumns]:
    for capture in load(18).captures:
        if capture.name == "changes":
            yield MessageColumns.of((0, payload) for payload in capture.pgoutput)


def _relations_file() -> tuple[str, bytes]:
    """The name and bytes of what all that was sent leaves in force."""
    in_force = InForce()
    for sent in _sent():
        _, tail = build_segment(sent, 0, Tail(0, 0))
        in_force = in_force.announce(tail.in_force.messages.values())
    _, file = in_force.file(1)
    assert file is not None
    return file


def _documents() -> Iterator[bytes]:
    yield IDENTITY.to_json()
    yield write_lsn_file(0x16B374D848)
    yield write_position(0x16B374D848, 17)
    yield write_timeline(Timeline(3, ((1, LSN(0x3000148)), (2, LSN(0x16B374D848)))))
    yield write_document({"pid": 7, "ts": 1763797209.5, "state": "streaming", "durable_lsn": "16/B374D848"})
    with tempfile.TemporaryDirectory() as folder:
        table = TableFolder(folder, "p", "shop", "item")
        columns, chunks = (PlannedColumn("id", 1, 20, -1, 20, True),), (Chunk(0, 0, 5), Chunk(1, 5, None))
        plan = SnapshotPlan("p1", 7, "d", "shape", "heap", "digest", ("id",), columns, chunks)
        snapshot = SnapshotIdentity("00000003-00000002-1", 700, 705, (701,), LSN(0x16B3748))
        table.write(TableState("init"))
        action = FileAction("a.parquet", 9, 1, 10, {"id": 0}, {"id": 1}, {"id": 10})
        table.finish_chunk("p1", DoneChunk(0, 10, snapshot, (action,)))
        table.write(TableState("catch_up", LSN(8), plan, Landed("p1", 5, (snapshot,)), Followed.of(plan)))
        for file in (Path(folder) / table.documents.folder).glob("*.json"):
            yield file.read_bytes()


_RELATIONS = _relations_file()
