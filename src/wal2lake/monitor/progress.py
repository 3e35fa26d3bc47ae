"""The children write down how far they are, at most once a second; this reads it.

The files are advisory: nothing is decided by them, and a missing or half-known one reads as "not started".
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wal2lake.changelog.documents import read_document
from wal2lake.errors import LogCorruptError
from wal2lake.lsn import LSN

_STALE_S = 30.0  # a busy machine may keep a child from its status for a while
_NOWHERE = LSN(0)
_NOT_RUNNING, _SILENT = "not running", ", silent"
_ENDED = ("stopped", "failed")


@dataclass(frozen=True)
class TableProgress:
    """One table: its state and rows, changes applied since the start of the pipeline and per second."""

    name: str
    state: str = "waiting"
    rows: int | None = None
    changes: int = 0
    changes_per_s: float = 0.0
    chunks_done: int | None = None
    chunks_total: int | None = None
    reason: str | None = None
    applied_lsn: LSN = _NOWHERE


@dataclass(frozen=True)
class Progress:
    """Both children at one moment; lags in bytes of WAL and in seconds.

    A state ends with ", silent" when its child should have said more since. The ages tell how old the figures are,
    ``pipeline_reason`` what the pipeline waits for, or what ended it.
    """

    capture_state: str = _NOT_RUNNING
    capture_age_s: float | None = None
    pipeline_state: str = _NOT_RUNNING
    pipeline_age_s: float | None = None
    pipeline_reason: str | None = None
    durable_lsn: LSN = _NOWHERE
    applied_lsn: LSN = _NOWHERE
    lag_bytes: int = 0
    lag_s: float = 0.0
    tables: tuple[TableProgress, ...] = field(default=())

    @property
    def pipeline_lives(self) -> bool:
        """Its figures are of now."""
        return is_alive(self.pipeline_state)

    @property
    def changes(self) -> int:
        """All changes applied since the start."""
        return sum(table.changes for table in self.tables)


def read_progress(log_path: str, pids: Mapping[str, int] | None = None) -> Progress:
    """Read what capture and pipeline last wrote below ``log_path``/status.

    ``pids`` are those of the roles known to live: what another process wrote is not theirs, so they are starting.
    """
    folder = Path(log_path) / "status"
    capture, pipeline = _read(folder / "capture.json"), _read(folder / "pipeline.json")
    pids = pids or {}
    tables = pipeline.get("tables", {})
    return Progress(
        capture_state=_state(capture, pids.get("capture")),
        capture_age_s=_age(capture),
        pipeline_state=_state(pipeline, pids.get("pipeline")),
        pipeline_age_s=_age(pipeline),
        pipeline_reason=pipeline.get("reason") or pipeline.get("waiting_for"),
        durable_lsn=LSN.parse(capture.get("durable_lsn", "0/0")),
        applied_lsn=LSN.parse(pipeline.get("applied_lsn", "0/0")),
        lag_bytes=int(pipeline.get("lag_bytes", 0)),
        lag_s=float(pipeline.get("lag_s", 0.0)),
        tables=tuple(_table(name, values) for name, values in sorted(tables.items())),
    )


def _table(name: str, values: Mapping[str, Any]) -> TableProgress:
    known = {key: values[key] for key in TableProgress.__dataclass_fields__ if key in values and key != "name"}
    applied = LSN.parse(str(values.get("applied_lsn", "0/0")))
    return TableProgress(name=name, **known | {"applied_lsn": applied})


def _state(values: Mapping[str, Any], pid: int | None) -> str:
    if pid is not None and values.get("pid") != pid:
        return "starting"
    if not values:
        return _NOT_RUNNING
    state = str(values.get("state", "running"))
    return state if state in _ENDED or time.time() - float(values.get("ts", 0)) < _STALE_S else f"{state}{_SILENT}"


def _age(values: Mapping[str, Any]) -> float | None:
    """In seconds; who waits says until when beforehand, and so may be ahead of the clock."""
    return max(0.0, time.time() - float(values["ts"])) if "ts" in values else None


def is_alive(state: str) -> bool:
    """Whether it is a state of a child at work."""
    return state not in (*_ENDED, _NOT_RUNNING) and not state.endswith(_SILENT)


def _read(path: Path) -> dict[str, Any]:
    """What is there; nothing is decided by it, so what cannot be read counts as absent.

    Writers replace the file in one step, but do not force it to disk: a power cut may leave it empty or torn.
    """
    try:
        return read_document(path.read_bytes(), str(path))
    except (OSError, LogCorruptError):  # not there yet, not ours to read, or torn
        return {}
