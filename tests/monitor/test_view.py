from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from wal2lake.changelog.documents import write_document
from wal2lake.changelog.local import LocalStorage
from wal2lake.monitor.progress import Progress, TableProgress, read_progress
from wal2lake.monitor.summary import totals
from wal2lake.monitor.view import format_duration, lag, line, render, size

TABLES = {
    "shop.orders": {"state": "streaming", "rows": 1200, "changes": 34, "changes_per_s": 5.0, "applied_lsn": "0/20"},
    "shop.big": {"state": "snapshot", "rows": 0, "chunks_done": 3, "chunks_total": 8, "applied_lsn": "0/0"},
    "shop.odd": {"state": "quarantined", "reason": "The column's type changed.", "applied_lsn": "0/10"},
}


def _status(folder: Path, ago: float = 0) -> str:
    (folder / "status").mkdir()
    capture = {"pid": 7, "ts": time.time(), "state": "streaming", "durable_lsn": "0/7E0"}
    pipeline = {
        "ts": time.time() - ago,
        "state": "streaming",
        "applied_lsn": "0/20",
        "lag_bytes": 1984,
        "lag_s": 1.25,
        "tables": TABLES,
    }
    (folder / "status" / "capture.json").write_bytes(write_document(capture))
    (folder / "status" / "pipeline.json").write_bytes(write_document(pipeline))
    return str(folder)


def test_nothing_yet_reads_as_not_running(tmp_path: Path) -> None:
    assert line(read_progress(str(tmp_path))).startswith("capture not running; pipeline not running; tables: none yet")


def test_what_an_earlier_process_wrote_is_not_this_ones(tmp_path: Path) -> None:
    folder = _status(tmp_path)
    said = line(read_progress(folder, {"capture": 7, "pipeline": 8}))
    assert said.startswith("capture streaming; pipeline starting; ")


def test_what_stopped_cleanly_is_not_silent(tmp_path: Path) -> None:
    folder = _status(tmp_path)
    (tmp_path / "status" / "capture.json").write_bytes(write_document({"ts": time.time() - 300, "state": "stopped"}))
    assert read_progress(folder).capture_state == "stopped"
    assert line(read_progress(folder)).startswith("capture stopped (5 min ago); ")


@pytest.mark.parametrize("left", [b"", b'{"pid": 7, "ts"', bytes(64), b"null", b'{"pid": 7, "durable_lsn": 5}'])
def test_what_a_power_cut_left_reads_as_not_there(tmp_path: Path, left: bytes) -> None:
    folder = _status(tmp_path)
    for name in ("capture.json", "pipeline.json"):
        (tmp_path / "status" / name).write_bytes(left)
    said = line(read_progress(folder, {"capture": 7}))
    assert said.startswith("capture starting; pipeline not running; tables: none yet")


def test_a_line_says_everything(tmp_path: Path) -> None:
    said = line(read_progress(_status(tmp_path)), "a note")
    assert said == (
        "capture streaming; pipeline streaming; tables: 1 quarantined, 1 snapshot, 1 streaming; "
        "34 changes, 5/s; lag 2.0 kB, 1.2 s; copying: 38%; 0 of 1 tables read, 0 rows, 0 rows/s; a note"
    )


def test_what_waits_for_a_pipeline_that_does_not_run_is_counted(tmp_path: Path) -> None:
    """Capture goes on alone. How old that is nobody can tell; the figures of a pipeline that runs are its own."""
    folder = _status(tmp_path, ago=90)
    assert line(read_progress(folder)).endswith("lag 2.0 kB")
    capture = {"ts": time.time(), "state": "streaming", "start_lsn": "0/1000", "end_lsn": "0/6332020"}
    (tmp_path / "status" / "capture.json").write_bytes(write_document(capture))
    found = read_progress(folder)
    assert (found.lag_bytes, found.lag_s) == (0x6332020 - 0x1000, None)
    assert line(found).endswith("pipeline streaming, silent (90 s ago); tables: 1 catching_up, 1 quarantined,"
                                " 1 snapshot; 34 changes, 0/s; lag 104.0 MB")  # fmt: skip
    (tmp_path / "status" / "pipeline.json").unlink()
    assert read_progress(folder).lag_bytes == 0x6332020 - 0x1000, "there never was one"


def test_an_idle_table_is_not_behind(tmp_path: Path) -> None:
    folder = _status(tmp_path)
    tables = {name: {**TABLES["shop.orders"], "behind": name == "shop.busy"} for name in ("shop.busy", "shop.idle")}
    said = {"ts": time.time(), "state": "streaming", "lag_bytes": 1984, "lag_s": 1.25, "tables": tables}
    (tmp_path / "status" / "pipeline.json").write_bytes(write_document(said))
    progress = read_progress(folder)
    assert [lag(progress, table) for table in progress.tables] == ["2.0 kB, 1.2 s", "0 B, 0.0 s"]


@pytest.mark.parametrize("role", ["capture", "pipeline"])
def test_what_died_without_a_word_does_not_stream(tmp_path: Path, role: str) -> None:
    """Its process held a lock as long as it lived, so nobody has to wait until it has been silent for long."""
    folder = _status(tmp_path)
    file = tmp_path / "status" / f"{role}.json"
    file.write_bytes(write_document({"ts": time.time(), "state": "streaming", "lock": ".lock"}))
    with LocalStorage(tmp_path).lock(".lock"):
        assert getattr(read_progress(folder), f"{role}_state") == "streaming"
    assert getattr(read_progress(folder), f"{role}_state") == "died"
    assert f"{role} died (0 s ago); " in line(read_progress(folder))


def test_the_table_has_a_row_a_table(tmp_path: Path) -> None:
    console = Console(width=140, record=True, file=open("/dev/null", "w"))  # noqa: SIM115 - closed with the test
    with console.file:
        console.print(render(read_progress(_status(tmp_path))))
    rows = console.export_text().splitlines()
    assert any("shop.orders" in row and "1,200" in row and "2.0 kB, 1.2 s" in row for row in rows)
    assert any("shop.big" in row and "snapshot 3/8" in row for row in rows)
    assert any("shop.odd" in row and "type changed" in row and "2.0 kB" in row for row in rows)


def test_figures_stay_whole_on_a_narrow_terminal(tmp_path: Path) -> None:
    console = Console(width=62, record=True, file=open("/dev/null", "w"))  # noqa: SIM115 - closed with the test
    with console.file:
        console.print(render(read_progress(_status(tmp_path))))
    assert "1,200       34          5  2.0 kB, 1.2 s" in console.export_text()


def _many(count: int) -> Progress:
    """Of ``count`` tables one is quarantined, two are copied, and of the others each 50th changes."""
    reason = "The column's type changed, and what is left to say of that takes more than a line of any terminal."
    copied = {"state": "snapshot", "chunks_total": 8, "bytes_total": 8_000_000}
    odd = [
        TableProgress(name="shop.odd", state="quarantined", reason=reason, rows=0),
        TableProgress(name="shop.small", state="snapshot", chunks_done=1, chunks_total=1, rows_read=7),
        TableProgress(name="shop.big", chunks_done=2, rows_read=900, bytes_read=2_000_000, **copied),
    ]
    rest = [
        TableProgress(name=f"shop.t{n}", state="streaming", rows=10, changes_per_s=n * (n % 50 == 0), behind=False)
        for n in range(count - len(odd))
    ]
    rates = {"rows_read_per_s": 100.0, "bytes_read_per_s": 50_000.0}
    return Progress("streaming", pipeline_state="streaming", tables=(*rest, *odd), **rates)


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("note", ["", "capture starts again after: the server went away. " * 3])
def test_three_hundred_tables_fit_24_lines(width: int, note: str) -> None:
    """Totals, then the troubled and the busy, and how many more there are."""
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(render(_many(300), note[: 2 * width], height=23))
    lines = console.export_text().splitlines()
    assert len(lines) <= 24
    assert lines[0].rstrip() == "capture streaming · pipeline streaming"
    assert lines[1].startswith("copying: 25%, about 2 min left; 1 of 2 tables read, 907 rows, 100 rows/s")
    assert lines[2].startswith("300 tables: 1 quarantined, 2 snapshot, 297 streaming · 2,970 rows · lag 0 B")
    names = [line.split()[0] for line in lines[4:11]]
    assert names == ["shop.odd", "shop.big", "shop.small", "shop.t100", "shop.t150", "shop.t200", "shop.t250"]
    shown = sum(line.startswith(" shop.") for line in lines)
    assert f"… and {300 - shown} streaming more" in "\n".join(lines)


def test_few_tables_have_all_their_rows_and_nothing_is_cut() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(render(_many(5), height=23))
    text = console.export_text()
    assert text.count(" shop.") == 5 and "takes more than a line of any terminal." in text and "more\n" not in text


def test_a_small_table_that_is_copied_shows_its_rows() -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(render(_many(3)))
    rows = console.export_text().splitlines()
    small, big = (next(row for row in rows if name in row) for name in ("small", "big"))
    assert small.split()[1:4] == ["snapshot", "read", "7"]
    assert big.split()[1:4] == ["snapshot", "2/8", "900"]


def test_starting_spark_is_said(tmp_path: Path) -> None:
    folder = _status(tmp_path)
    said = {"ts": time.time(), "state": "starting", "doing": "starting Spark"}
    (tmp_path / "status" / "pipeline.json").write_bytes(write_document(said))
    assert line(read_progress(folder)).startswith("capture streaming; pipeline starting Spark; ")


def test_times_have_the_unit_that_fits() -> None:
    assert [format_duration(n) for n in (0.4, 119, 120, 7199, 7200, 172_800)] == [
        "0 s",
        "119 s",
        "2 min",
        "120 min",
        "2 h",
        "2 days",
    ]


def test_sizes_have_the_unit_that_fits() -> None:
    assert [size(n) for n in (0, 999, 1000, 2_500_000, 3 * 10**12)] == ["0 B", "999 B", "1.0 kB", "2.5 MB", "3.0 TB"]


@pytest.mark.parametrize("said", [{"state": "stopped"}, {"state": "streaming", "ts": 1.0}, {"state": "starting"}])
def test_no_table_streams_without_a_stream_and_what_is_not_counted_is_no_zero(
    tmp_path: Path, said: dict[str, Any]
) -> None:
    tables = {"public.a": {"state": "streaming", "rows": 5, "behind": False}, "public.b": {"state": "catching_up"}}
    (tmp_path / "status").mkdir()
    capture = {"ts": time.time(), "state": "streaming", "start_lsn": "0/10", "end_lsn": "0/80"}
    (tmp_path / "status/capture.json").write_bytes(write_document(capture))
    (tmp_path / "status/pipeline.json").write_bytes(write_document({"ts": time.time(), **said, "tables": tables}))
    progress = read_progress(str(tmp_path))
    assert [(table.state, table.behind) for table in progress.tables] == [("catching_up", True)] * 2
    assert (totals(progress).states, totals(progress).rows) == ({"catching_up": 2}, None)
    assert "rows" not in str(render(progress, height=3).title)
