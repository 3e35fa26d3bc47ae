"""No bit of a change log may flip unnoticed: whoever reads a damaged file gets one error that names it and its cure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from tests.changelog.test_retention import fill
from wal2lake.capture.frames import without_headers
from wal2lake.changelog import format as layout
from wal2lake.changelog import places
from wal2lake.changelog.dump import verify_log
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.plan import Extent
from wal2lake.changelog.writer import LogWriter
from wal2lake.cli.main import app
from wal2lake.errors import LogCorruptError
from wal2lake.lsn import LSN
from wal2lake.tables.state import TableState
from wal2lake.tables.table_folder import TableFolder
from wal2lake.testing.stream import ScriptedStream, delete, insert, relation, update

Writer = Callable[..., LogWriter]
SEGMENT = "segments/0000000000000000.arrow"


def bits_flipped(whole: bytes) -> Iterator[bytes]:
    """The file with a bit flipped, once for each byte."""
    for at in range(len(whole)):
        yield whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :]


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_any_bit_of_a_segment(open_writer: Writer, compression: str) -> None:
    """Whoever plans reads the footer alone, so only what is read is checked then: but all of it."""
    with open_writer(compression=compression) as writer:
        sound = writer.append(
            without_headers(ScriptedStream().transaction(relation(), insert(1, "a" * 99), update(1, "b"), delete(1)))
        )
        whole = writer.log.storage.get(SEGMENT)
    index, planned = layout.read_transactions(pa.py_buffer(whole), SEGMENT), 0
    for damaged in bits_flipped(whole):
        with pytest.raises(LogCorruptError, match=rf"{SEGMENT} cannot be read.*Restore"):
            layout.read_batch(pa.py_buffer(damaged), SEGMENT)
        try:
            assert layout.read_info(pa.py_buffer(damaged), SEGMENT) == sound
            assert layout.read_transactions(pa.py_buffer(damaged), SEGMENT).equals(index)
            planned += 1
        except LogCorruptError:
            continue
    assert 0 < planned < len(whole)


def test_a_reader_checks_the_rows_of_a_file_once(open_writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, checks = ScriptedStream(), list[bool]()
    with open_writer() as writer:
        for number in range(3):
            writer.append(without_headers(stream.transaction(insert(number, "a"))))
        log = ChangeLog.open(writer.log.storage.root)
    read = layout.read_batch

    def read_batch(file: pa.Buffer, name: str, *, check: bool) -> pa.RecordBatch:
        checks.append(check)
        return read(file, name, check=check)

    monkeypatch.setattr(layout, "read_batch", read_batch)
    for seq in (0, 1, 2, 0):
        log.read(Extent(seq, 0, 1))
    assert checks == [True, True, True, False]


def test_a_segment_under_anothers_name(open_writer: Writer, tmp_path: Path) -> None:
    stream = ScriptedStream()
    with open_writer() as writer:
        for number in range(2):
            writer.append(without_headers(stream.transaction(insert(number, "a"))))
    folder = tmp_path / "log/segments"
    (folder / "0000000000000000.arrow").write_bytes((folder / "0000000000000001.arrow").read_bytes())
    with pytest.raises(LogCorruptError, match=SEGMENT):
        _ = ChangeLog.open(tmp_path / "log").segments


@pytest.mark.parametrize("name", ["log.json", "position.json", "consumers/a.json", "barriers/b.json"])
def test_any_bit_of_a_document(open_writer: Writer, tmp_path: Path, name: str) -> None:
    with open_writer() as writer:
        writer.set_position(0x9000)
        writer.log.release("a", 0x8000)
        writer.log.request_barrier("b", 0x9000)
    file = tmp_path / "log" / name
    (tmp_path / "log/position.copy.json").unlink()
    for damaged in bits_flipped(file.read_bytes()):
        file.write_bytes(damaged)
        with pytest.raises(LogCorruptError, match=rf"{name} cannot be read.*(Restore|[Rr]emove|Let that|Use a newer)"):
            _read_all(tmp_path / "log")


def _read_all(path: Path) -> None:
    log = ChangeLog.open(path)
    log.refresh()
    log.released()
    log.barriers()


def test_a_log_from_before_there_were_checksums(open_writer: Writer, tmp_path: Path) -> None:
    with open_writer():
        pass
    file = tmp_path / "log/log.json"
    old = {key: value for key, value in json.loads(file.read_bytes()).items() if key != "crc32"} | {"format": 1}
    file.write_text(json.dumps(old))
    with pytest.raises(LogCorruptError, match=r"log\.json.*earlier version.*wal2lake drop"):
        ChangeLog.open(tmp_path / "log")


def test_verify_tells_each_damaged_file_in_a_sentence(open_writer: Writer, tmp_path: Path) -> None:
    """The third segment goes on with a transaction of the second, which is damaged: that is no fault of the third."""
    stream = ScriptedStream()
    with open_writer() as writer:
        writer.append(without_headers(stream.transaction(relation(), insert(0, "a"))))
        torn = stream.transaction(insert(1, "a"), insert(2, "b"))
        writer.append(without_headers(torn[:2]))
        writer.append(without_headers(torn[2:]))
        for number in range(3):
            writer.append(without_headers(stream.transaction(insert(number, "a"))))
        writer.set_position(0x9000)
        writer.log.release("a", 0x8000)
        writer.log.release("b", 0x8000)
    log = tmp_path / "log"
    damaged = [
        "consumers/a.json",
        "position.json",
        "position.copy.json",
        *(f"segments/{seq:016d}.arrow" for seq in (1, 5)),
    ]
    for name in damaged:
        whole = (log / name).read_bytes()
        middle = len(whole) // 2
        (log / name).write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    (log / "segments/0000000000000004.arrow").unlink()
    (tmp_path / "wal2lake.toml").write_text(f"[source]\ndsn = 'host=nowhere'\n[log]\npath = '{log}'\n")
    done = CliRunner().invoke(app, ["log", "verify", "--json", "--config", str(tmp_path / "wal2lake.toml")])
    faults = json.loads(done.stdout)["faults"]
    named = [
        n for n in (*damaged, "segments/0000000000000004.arrow") if sum(f"file {n} cannot" in f for f in faults) == 1
    ]
    assert (done.exit_code, len(faults), len(named)) == (LogCorruptError.exit_code, 6, 6), faults


def test_the_newest_segment_is_missed_after_an_idle_spell(open_writer: Writer) -> None:
    """Nothing else would tell: the slot stands where the position is."""
    with open_writer() as writer:
        ends = fill(writer, 2)
        writer.set_position(ends[-1] + 1000)
        log = writer.log
        seen = ChangeLog.open(log.storage.root)
        assert len(seen.segments) == 4
    newest = layout.segment_name(3)
    log.storage.remove(newest)
    with pytest.raises(LogCorruptError, match=rf"{newest}.*missing"):
        ChangeLog.open(log.storage.root).refresh()
    with pytest.raises(LogCorruptError, match=rf"{newest}.*missing"):
        open_writer()
    assert [newest in fault for fault in verify_log(log.storage)] == [True]


def test_a_log_whose_identity_is_lost_is_no_empty_folder(open_writer: Writer) -> None:
    with open_writer() as writer:
        fill(writer, 1)
        storage = writer.log.storage
    storage.remove(places.IDENTITY)
    for use in (lambda: ChangeLog.open(storage.root), lambda: ChangeLog.find(storage.root), open_writer):
        with pytest.raises(LogCorruptError, match=r"log\.json.*missing.*Restore"):
            use()


def test_a_file_that_is_none_of_the_logs_is_to_be_moved_away(open_writer: Writer) -> None:
    with open_writer() as writer:
        fill(writer, 1)
        storage = writer.log.storage
    (storage.root / "segments" / "junk.arrow").touch()
    assert [("junk" in fault, "move it away" in fault) for fault in verify_log(storage)] == [(True, True)]


def test_a_tables_document_that_was_copied_over_anothers(tmp_path: Path) -> None:
    one, other = (TableFolder(tmp_path, "p", "shop", name) for name in ("item", "order"))
    one.write(TableState("ready"))
    other.write(TableState("init", LSN(7)))
    copied, over = (tmp_path / each.documents.folder / "state.json" for each in (one, other))
    copied.replace(over)
    with pytest.raises(LogCorruptError, match=r"shop\.order.*of the table shop\.item.*resync"):
        other.read()
