"""One process at a time runs a pipeline; only it changes the tables' documents."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from wal2lake.changelog.consumers import PIPELINE_LOCK
from wal2lake.changelog.patience import patiently
from wal2lake.errors import SlotInUseError
from wal2lake.files import LockHeldError, lock
from wal2lake.tables.table import snapshots_root

if TYPE_CHECKING:
    from wal2lake.config import Config

_PATIENCE_S = 60.0  # for the process that had the pipeline before; `run` gives it as long to stop


@contextmanager
def exclusive(config: Config, stop: Event | None = None) -> Iterator[None]:
    """Be the only process that runs this pipeline; the lock ends with the process. Raises SlotInUseError.

    With ``stop``, whose setting raises InterruptedByUser, one that is ending gets the time to finish its batch.
    """
    root = snapshots_root(config)
    root.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        patiently(lambda: _lock(held, root / PIPELINE_LOCK, config), _PATIENCE_S if stop else 0, stop or Event())
        yield


def _lock(held: ExitStack, path: Path, config: Config) -> None:
    try:
        held.enter_context(lock(path))
    except LockHeldError:
        raise SlotInUseError(
            f"Another process runs the pipeline {config.pipeline.name!r} on the change log {config.log.path}.",
            hint="Stop it first, or give this one a name of its own (pipeline.name) and a lake.path.",
        ) from None
