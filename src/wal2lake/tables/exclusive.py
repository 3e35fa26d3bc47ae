"""One process at a time runs a pipeline; only it changes the tables' documents."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING, BinaryIO

from wal2lake.changelog.consumers import PIPELINE_LOCK
from wal2lake.errors import SlotInUseError
from wal2lake.retry import retry_while_in_use
from wal2lake.tables.table import snapshots_root

if TYPE_CHECKING:
    from wal2lake.config import Config

PATIENCE_S = 60.0  # for the process that had the pipeline before; `run` gives it as long to stop


@contextmanager
def exclusive(config: Config, stop: Event | None = None) -> Iterator[None]:
    """Be the only process that runs this pipeline; the lock ends with the process. Raises SlotInUseError.

    With ``stop``, whose setting raises InterruptedByUser, one that is ending gets the time to finish its batch.
    """
    root = snapshots_root(config)
    root.mkdir(parents=True, exist_ok=True)
    with open(root / PIPELINE_LOCK, "ab") as file:
        retry_while_in_use(lambda: _lock(file, config), PATIENCE_S if stop else 0, stop or Event())
        yield


def _lock(file: BinaryIO, config: Config) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SlotInUseError(
            f"Another process runs the pipeline {config.pipeline.name!r} on the change log {config.log.path}.",
            hint="Stop it first, or give this one a name of its own (pipeline.name) and a lake.path.",
        ) from None
