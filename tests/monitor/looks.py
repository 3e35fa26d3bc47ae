"""Looks as a test wants them: everything known, or nothing."""

from __future__ import annotations

from typing import Any

from wal2lake.changelog.status import CaptureStatus, PipelineStatus
from wal2lake.lsn import LSN
from wal2lake.monitor.metrics import Look
from wal2lake.monitor.problem import Problem
from wal2lake.monitor.progress import Progress, TableProgress
from wal2lake.monitor.status import LogStatus, Status
from wal2lake.postgres.slots import SlotState

SLOT = SlotState(
    "s", active=True, wal_status="reserved", restart_lsn=LSN(40), confirmed_flush_lsn=LSN(70), safe_wal_size=9000
)
TABLES = (
    TableProgress(name="public.a", state="streaming", rows=5, changes=3, applied_lsn=LSN(60), behind=False),
    TableProgress(name='we"ird\\.\n\x1b[31m', state="quarantined", rows=None, chunks_total=4, chunks_done=1),
)


def whole_look(problems: tuple[Problem, ...] = (), **progress: Any) -> Look:
    """Everything is known."""
    known: dict[str, Any] = {
        "capture_state": "streaming", "capture_age_s": 0.5, "pipeline_state": "streaming", "pipeline_age_s": 1.5,
        "durable_lsn": LSN(80), "applied_lsn": LSN(60), "lag_bytes": 20, "lag_s": 2.5, "tables": TABLES, **progress,
    }  # fmt: skip
    log = LogStatus(2, 1000, LSN(10), LSN(75), LSN(80), 1)
    status = Status(LSN(100), SLOT, log, Progress(**known), {}, list(problems))
    capture = CaptureStatus(received_lsn=LSN(90), messages=7, bytes=700, changes=6)
    return Look(
        status,
        capture,
        PipelineStatus(batch=4, batches=5, batch_seconds=2.5, changes=3),
        1e9,
        {"capture": 1, "pipeline": 2},
    )


def empty_look() -> Look:
    """Nobody answers, and nobody ever said anything."""
    status = Status(None, None, None, Progress(lag_s=None), {}, [Problem("server", "It is away.")])
    return Look(status, CaptureStatus(), PipelineStatus(), 1e9)
