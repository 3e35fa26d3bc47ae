"""Whoever waits in a notebook sees how far it is, in one place; and waits for nothing that has ended."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wal2lake.changelog.local import storage_at
from wal2lake.changelog.status import CaptureStatus, PipelineStatus, TableStatus
from wal2lake.config import Config, LogConfig
from wal2lake.errors import SparkError
from wal2lake.lsn import LSN
from wal2lake.monitor.notebook import Picture, watch
from wal2lake.monitor.progress import Progress


def say(folder: Path, state: str, table: str, **values: Any) -> Config:
    """Capture streams; the pipeline is at ``state``, and has one table at ``table``."""
    (folder / "status").mkdir(exist_ok=True)
    CaptureStatus(pid=os.getpid(), ts=time.time(), state="streaming").write(storage_at(folder))
    tables = {"shop.items": TableStatus(state=table, rows=7, applied_lsn=LSN(9))}  # type: ignore[arg-type] # any of them
    PipelineStatus(pid=os.getpid(), ts=time.time(), state=state, tables=tables, **values).write(storage_at(folder))
    return Config(log=LogConfig(str(folder)))


def test_it_waits_until_the_lake_is_level(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = say(tmp_path, "streaming", "streaming", lag_bytes=8)
    seen: list[Progress] = []

    def look(progress: Progress) -> bool:
        seen.append(progress)
        say(tmp_path, "snapshot", "snapshot")
        return len(seen) == 2

    watch(config, look, 0)
    assert [progress.pipeline_state for progress in seen] == ["streaming", "snapshot"]
    watch(say(tmp_path, "streaming", "quarantined"))  # is left out, and nothing to wait for


def test_a_pipeline_that_fails_meanwhile_is_told_and_one_that_failed_before_is_waited_for(tmp_path: Path) -> None:
    config = say(tmp_path, "failed", "streaming", reason="The disk is full.")
    time.sleep(0.01)  # it failed before

    def look(_: Progress) -> None:
        say(tmp_path, "failed", "streaming", reason="The disk is full.")

    with pytest.raises(SparkError, match=r"The pipeline failed\. The disk is full\."):
        watch(config, look, 0)


def test_in_a_notebook_one_picture_changes_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As IPython's display has it; docs/notebook.ipynb came out of the real one."""
    shown: list[Picture] = []

    def display(picture: Picture, *, display_id: bool) -> SimpleNamespace:
        assert display_id
        shown.append(picture)
        return SimpleNamespace(update=shown.append)

    ipython: Any = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))  # type: ignore[arg-type] # as far as it is used
    watch(say(tmp_path, "streaming", "streaming"))
    assert [len(picture.progress.tables) for picture in shown] == [0, 1]
    assert "shop.items" in shown[-1]._repr_html_()
