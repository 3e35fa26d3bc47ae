"""One process at a time runs a pipeline; only it changes the tables' documents."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Event
from typing import TYPE_CHECKING

from wal2lake.changelog.local import storage_at
from wal2lake.changelog.places import pipeline_lock, tables_of
from wal2lake.changelog.storage import held
from wal2lake.errors import SlotInUseError
from wal2lake.retry import retry_while_in_use

if TYPE_CHECKING:
    from wal2lake.config import Config

PATIENCE_S = 60.0  # for the process that had the pipeline before; `run` gives it as long to stop


@contextmanager
def exclusive(config: Config, stop: Event | None = None) -> Iterator[None]:
    """Be the only process that runs this pipeline; the lock ends with the process. Raises SlotInUseError.

    With ``stop``, whose setting raises InterruptedByUser, one that is ending gets the time to finish its batch.
    """
    storage, lock = storage_at(config.log.path), pipeline_lock(config.pipeline.name)
    storage.prepare(tables_of(config.pipeline.name))

    def in_use(_: str) -> SlotInUseError:
        return SlotInUseError(
            f"Another process runs the pipeline {config.pipeline.name!r} on the change log {storage.where}.",
            hint="Stop it first, or give this one a name of its own (pipeline.name) and a lake.path.",
        )

    with ExitStack() as stack:
        patience_s = PATIENCE_S if stop else 0
        retry_while_in_use(lambda: stack.enter_context(held(storage, lock, in_use)), patience_s, stop or Event())
        yield


def is_running(config: Config) -> bool:
    """Whether a process runs this pipeline now."""
    return storage_at(config.log.path).is_locked(pipeline_lock(config.pipeline.name))
