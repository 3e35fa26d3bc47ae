"""The tool finds what is wrong with a log, says nothing about a sound one, and shows no cell values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.documents.shown import on_page, run
from wal2lake.capture.frames import without_headers
from wal2lake.changelog import format as layout
from wal2lake.changelog import places
from wal2lake.changelog.dump import dump_messages, list_segments, verify_log
from wal2lake.changelog.local import LocalStorage
from wal2lake.changelog.plan import Extent
from wal2lake.changelog.writer import LogWriter
from wal2lake.testing.stream import ScriptedStream, delete, insert, relation, update

Writer = Callable[..., LogWriter]


@pytest.fixture
def writer(open_writer: Writer) -> LogWriter:
    """Two sessions, a transaction over two segments, one torn, an idle position."""
    stream = ScriptedStream()
    writer = open_writer()
    first = stream.transaction(relation(), insert(1, "secret"), update(1, "secret"))
    writer.append(without_headers(first[:2]))
    writer.append(without_headers(first[2:]))
    writer.set_position(stream.lsn + 8)
    writer.append(without_headers(stream.transaction(delete(1))[:1]))
    writer.new_session()
    writer.append(without_headers(stream.transaction(relation(), insert(2, "secret"))))
    writer.log.refresh()
    return writer


def test_a_sound_log(writer: LogWriter) -> None:
    assert list(verify_log(writer.log.storage)) == []
    assert [s["commits"] for s in list_segments(writer.log)] == [0, 1, 0, 1]
    lines = list(dump_messages(writer.log, 0, writer.log.last_end_lsn))
    assert len(lines) == 9
    assert not any("secret" in line for line in lines)
    assert lines[1].endswith("Relation 16384 public.t (id, v)")


def test_retention_may_remove_what_is_being_verified(writer: LogWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = LocalStorage(writer.log.storage.root)
    listed = {folder: storage.names(folder) for folder in places.FOLDERS}
    writer.log.release("a", writer.log.last_end_lsn)
    assert writer.log.trim(0) == 3
    monkeypatch.setattr(storage, "names", lambda folder: listed.get(folder, []))
    assert list(verify_log(storage)) == []


def test_retention_may_cut_a_transaction(writer: LogWriter) -> None:
    """Its Begin is gone: what is left of it can be checked, but not built anew."""
    writer.log.storage.remove(writer.log.segments[0].name)
    assert list(verify_log(writer.log.storage)) == []


@pytest.mark.documents
def test_a_segment_is_read_without_us_as_documented(writer: LogWriter) -> None:
    (block,) = on_page("docs/changelog.md", "python")
    info = writer.log.segments[1]
    names: dict[str, object] = {"segment": writer.log.storage.path(info.name)}
    run(block, names)
    rows = names["rows"]
    assert isinstance(rows, pa.Table)
    assert rows.to_batches()[0].columns == writer.log.read(Extent(info.seq, 0, info.rows)).columns


def test_faults_are_found(writer: LogWriter) -> None:
    log = writer.log
    name = log.segments[1].name
    file = log.storage.map(name)
    info, batch = layout.read_info(file, name), layout.read_batch(file, name)
    index = layout.read_transactions(file, name)
    damaged = {
        "columns": layout.Segment(info, batch.set_column(3, layout.SEGMENT_SCHEMA.field(3), _ones(batch)), index),
        "index": layout.Segment(info, batch, index.slice(0, 0)),
        "counts": layout.Segment(replace(info, counts={}), batch, index),
    }
    for what, segment in damaged.items():
        log.storage.put(name, b"".join(map(bytes, layout.write_segment(segment, log.identity, None))))
        assert any(what in fault for fault in verify_log(log.storage)), what


def _ones(batch: pa.RecordBatch) -> pa.Array:
    return pa.array([1] * batch.num_rows, pa.uint32())
