"""Every document of a log is read back as it was written, or told by its name; `log verify` reads all there are."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.changelog.test_edges import ABORT, NOTE, SEGMENT, Writer
from wal2lake.capture.frames import without_headers
from wal2lake.changelog import format as layout
from wal2lake.changelog import places
from wal2lake.changelog.documents import read_document, write_document
from wal2lake.changelog.dump import verify_log
from wal2lake.changelog.requests import Requests
from wal2lake.changelog.tables import TableDocuments, documents_of_tables, known_tables
from wal2lake.changelog.writer import LogWriter
from wal2lake.errors import LogCorruptError, SlotInUseError
from wal2lake.pgoutput.messages import PgoutputMessage
from wal2lake.testing.stream import ScriptedStream, insert, relation


@pytest.fixture
def documents(open_writer: Writer) -> LogWriter:
    """A log with a document of every kind that is read back."""
    with open_writer() as writer:
        writer.append(without_headers(ScriptedStream().transaction(insert(1, "a"))))
        writer.set_position(0x9000)
        writer.log.release("reader", 0x1000)
        writer.log.request_barrier("verify", 0x9000)
        for name in ("item", "order"):
            table = TableDocuments(writer.log.storage, "p", "shop", name)
            table.write_state({"state": "ready", "needs_lsn": None})
            assert [table.finish_chunk("plan", number, {"number": number}) for number in (0, 1, 0)] == [
                True, True, False,
            ]  # fmt: skip
    return writer


def _files(writer: LogWriter) -> list[Path]:
    root = Path(writer.log.storage.path("."))
    return sorted(file for file in root.rglob("*.json") if file.parent.name != places.STATUS)


def test_verify_reads_documents_of_every_kind(documents: LogWriter) -> None:
    storage, files = documents.log.storage, _files(documents)
    assert list(verify_log(storage)) == []
    kinds = {"log.json", "position.json", "reader.json", "verify.json", "state.json", "chunk-0000.plan.json"}
    assert kinds <= {file.name for file in files}
    for file in files:
        whole, name = file.read_bytes(), str(file.relative_to(storage.path(".")))
        for damaged in (b"", whole[:-1], whole.replace(b'"', b"'", 1)):
            file.write_bytes(damaged)
            faults = [fault for fault in verify_log(storage) if name in fault]
            assert len(faults) == 1, name
        file.write_bytes(whole)
    assert list(verify_log(storage)) == []


def test_verify_knows_a_state_from_another_tables_and_a_chunk_from_a_state(documents: LogWriter) -> None:
    storage = documents.log.storage
    states = [name for name in documents_of_tables(storage) if name.endswith(places.STATE)]
    storage.put(states[0], storage.get(states[1]))
    (fault,) = verify_log(storage)
    assert states[0] in fault
    assert "of the table shop.order" in fault


def test_a_missing_segment_is_told_once(documents: LogWriter) -> None:
    storage = documents.log.storage
    storage.remove(SEGMENT)
    (fault,) = verify_log(storage)
    assert SEGMENT in fault
    assert "missing" in fault


def test_a_log_without_segments_may_have_lost_its_position(open_writer: Writer) -> None:
    """That is told, and no segment is missed of which nobody knows."""
    with open_writer() as writer:
        pass
    storage = writer.log.storage
    positions = [file for file in _files(writer) if file.name.startswith("position")]
    for file in positions:
        file.write_bytes(b"{}")
    faults = list(verify_log(storage))
    assert len(faults) == len(positions)
    assert not any("segments/" in fault for fault in faults)
    for file in positions:
        file.unlink()
    assert list(verify_log(storage)) == []


def test_only_a_log_with_segments_has_lost_its_position(open_writer: Writer, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        with open_writer() as writer:
            pass
        for file in _files(writer):
            if file.name.startswith("position"):
                file.unlink()
    assert caplog.messages == []
    with open_writer() as writer:
        writer.append(without_headers(ScriptedStream().transaction(insert(1, "a"))))
    for file in _files(writer):
        if file.name.startswith("position"):
            file.unlink()
    with open_writer():
        assert [message.partition(" has ")[2] for message in caplog.messages] == [
            "lost its position: it is taken from the segments."
        ]


@pytest.mark.parametrize("before", [[], [NOTE], [NOTE, ABORT]], ids=len)
def test_what_the_first_segment_says_of_itself_is_verified(open_writer: Writer, before: list[PgoutputMessage]) -> None:
    stream = ScriptedStream()
    around = [stream.message(message) for message in before]
    with open_writer() as writer:
        writer.append(without_headers([*around, *stream.transaction(relation(), insert(1, "a")), *around]))
    storage, name = writer.log.storage, SEGMENT
    file = storage.map(name)
    info, batch, index = (read(file, name) for read in (layout.read_info, layout.read_batch, layout.read_transactions))
    wrong = layout.Segment(replace(info, counts={}), batch, index)
    assert list(verify_log(storage)) == []
    storage.put(name, b"".join(map(bytes, layout.write_segment(wrong, writer.log.identity, None))))
    (fault,) = verify_log(storage)
    assert "counts is not what its messages say" in fault


def test_the_documents_of_a_table(documents: LogWriter) -> None:
    storage = documents.log.storage
    table = TableDocuments(storage, "p", "shop", "item")
    assert table.finish_chunk("other", 7, {"number": 7})
    assert [chunk["number"] for chunk in table.chunks("plan", dict)] == [0, 1]
    assert [len(table.chunks(plan, dict)) for plan in ("plan", "other", "none")] == [2, 1, 0]
    table.remove_chunks(but="plan")
    assert [len(table.chunks(plan, dict)) for plan in ("plan", "other")] == [2, 0]
    table.remove_chunks()
    assert len(table.chunks("plan", dict)) == 0
    assert table.read_state(dict) == {"table": "shop.item", "state": "ready", "needs_lsn": None}
    TableDocuments(storage, "p", "shop", "item").write_state({"state": "init"})
    with pytest.raises(SlotInUseError, match="Another process has changed"):
        table.write_state({"state": "gone"})
    assert known_tables(storage, "p") == [("shop", "item"), ("shop", "order")]
    table.remove()
    assert table.read_state(dict) is None
    assert known_tables(storage, "p") == [("shop", "order")]


def test_a_wish_is_there_until_it_is_done(tmp_path: Path) -> None:
    requests, others = Requests(tmp_path, "p"), Requests(tmp_path, "q")
    assert list(requests.all()) == []
    requests.put("a.b", "t", "retry")
    requests.put("a.b", "t", "resync")
    others.put("a", "t", "skip")
    (wanted,) = requests.all()
    assert (wanted.namespace, wanted.name, wanted.wish) == ("a.b", "t", "resync")
    requests.done(wanted)
    assert [list(requests.all()), len(list(others.all()))] == [[], 1]
    requests.put("a", "t", "dance")  # type: ignore[arg-type]
    with pytest.raises(LogCorruptError, match="something unknown"):
        list(requests.all())


def test_a_document_is_whole_whatever_its_checksum_is() -> None:
    for number in range(600):  # some checksums begin with zeros
        data = write_document({"n": number})
        assert read_document(data, "x") == {"n": number}
        checksum = zlib.crc32(data[: data.rindex(b",")])
        assert data == b'{\n "n": %d,\n "crc32": "%08x"\n}' % (number, checksum)
