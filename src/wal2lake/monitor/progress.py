"""The children write down how far they are, at most once a second; this reads it.

The files are advisory: nothing is decided by them, and a missing or half-known one reads as "not started".
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from wal2lake.changelog.local import storage_at
from wal2lake.changelog.status import CaptureStatus, PipelineStatus, TableStatus
from wal2lake.changelog.storage import Storage
from wal2lake.errors import Wal2LakeError
from wal2lake.lsn import LSN

_STALE_S = 30.0  # a busy machine may keep a child from its status for a while
_NOWHERE = LSN(0)
_NOT_RUNNING, _SILENT, DIED = "not running", ", silent", "died"
_STARTING, _STREAMING, _ENDED = "starting", "streaming", ("stopped", "failed")


@dataclass(kw_only=True)
class TableProgress(TableStatus):
    """One table, with its name."""

    name: str


@dataclass(frozen=True)
class Progress:
    """Both children at one moment; lags in bytes of WAL and in seconds.

    A state ends with ", silent" when its child should have said more since, and is "died" when its process is gone and
    did not say why; ``pipeline_doing`` says more of "starting". The ages tell how old the figures are,
    ``capture_reason`` what ended capture or keeps it from streaming, ``pipeline_reason`` what the pipeline waits for,
    or what ended it. ``lag_s`` is None where no pipeline runs that could tell. ``open_streams``: transactions that are
    streamed and have not ended.
    """

    capture_state: str = _NOT_RUNNING
    capture_age_s: float | None = None
    capture_reason: str | None = None
    pipeline_state: str = _NOT_RUNNING
    pipeline_age_s: float | None = None
    pipeline_doing: str | None = None
    pipeline_reason: str | None = None
    durable_lsn: LSN = _NOWHERE
    applied_lsn: LSN = _NOWHERE
    lag_bytes: int = 0
    lag_s: float | None = 0.0
    rows_read_per_s: float = 0.0
    bytes_read_per_s: float = 0.0
    open_streams: int = 0
    tables: tuple[TableProgress, ...] = field(default=())

    @property
    def pipeline_lives(self) -> bool:
        """Its figures are of now."""
        return is_alive(self.pipeline_state)

    @property
    def ready(self) -> bool:
        """The lake is kept up: capture streams and the pipeline does."""
        return self.capture_state == self.pipeline_state == _STREAMING

    @property
    def changes(self) -> int:
        """All changes applied since the start."""
        return sum(table.changes for table in self.tables)


def read_progress(log_path: str, pids: Mapping[str, int] | None = None) -> Progress:
    """Read what capture and pipeline last wrote in the log at ``log_path``.

    ``pids`` are those of the roles known to live: what another process wrote is not theirs, so they are starting.
    """
    storage, pids = storage_at(log_path), pids or {}
    capture, pipeline = CaptureStatus.read(storage), PipelineStatus.read(storage)
    said, applied = capture or CaptureStatus(), pipeline or PipelineStatus()
    pipeline_state = _state(storage, pipeline, pids.get("pipeline"))
    measured = is_alive(pipeline_state) and pipeline_state != _STARTING
    lag_bytes = applied.lag_bytes if measured else max(applied.lag_bytes, _not_applied(said, applied))
    tables = (TableProgress(name=name, **vars(table)) for name, table in sorted(applied.tables.items()))
    return Progress(
        capture_state=_state(storage, capture, pids.get("capture")),
        capture_age_s=_age(capture),
        capture_reason=said.reason,
        pipeline_state=pipeline_state,
        pipeline_age_s=_age(pipeline),
        pipeline_doing=applied.doing if pipeline_state == _STARTING else None,
        pipeline_reason=applied.reason or applied.waiting_for,
        durable_lsn=said.durable_lsn,
        applied_lsn=applied.applied_lsn,
        lag_bytes=lag_bytes,
        lag_s=applied.lag_s if measured else None,
        rows_read_per_s=applied.rows_read_per_s if measured else 0.0,
        bytes_read_per_s=applied.bytes_read_per_s if measured else 0.0,
        open_streams=said.open_streams,
        tables=tuple(tables if measured else (_without_stream(table, lag_bytes) for table in tables)),
    )


def _without_stream(table: TableProgress, lag_bytes: int) -> TableProgress:
    """A table streams when the stream does; without one it has to catch up with whatever comes."""
    state = "catching_up" if table.state == "streaming" else table.state
    return replace(table, state=state, behind=table.behind or lag_bytes > 0)


def _not_applied(capture: CaptureStatus, pipeline: PipelineStatus) -> int:
    """Bytes of WAL by what either said last: capture may have gone on without the pipeline."""
    return int(capture.end_lsn) - max(int(pipeline.applied_lsn), int(capture.start_lsn))


def _state(storage: Storage, status: CaptureStatus | PipelineStatus | None, pid: int | None) -> str:
    if pid is not None and (status is None or status.pid != pid):
        return _STARTING
    if status is None:
        return _NOT_RUNNING
    state = status.state
    if state in _ENDED:
        return state
    if status.lock and not _is_held(storage, status.lock):
        return DIED
    return state if time.time() - status.ts < _STALE_S else f"{state}{_SILENT}"


def _is_held(storage: Storage, lock: str) -> bool:
    """Where that is not ours to see, time tells."""
    try:
        return storage.is_locked(lock)
    except (OSError, Wal2LakeError):
        return True


def _age(status: CaptureStatus | PipelineStatus | None) -> float | None:
    """In seconds; who waits says until when beforehand, and so may be ahead of the clock."""
    return None if status is None else max(0.0, time.time() - status.ts)


def is_alive(state: str) -> bool:
    """Whether it is a state of a child at work."""
    return state not in (*_ENDED, _NOT_RUNNING, DIED) and not state.endswith(_SILENT)
