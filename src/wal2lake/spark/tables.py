"""The tables as this process knows them: loaded from their folders, which stay the truth."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, BinaryIO

from wal2lake.changelog.consumers import PIPELINE_LOCK, claim
from wal2lake.changelog.patience import patiently
from wal2lake.errors import RESYNC, SchemaChangeError, SlotInUseError, Wal2LakeError
from wal2lake.names import qualified
from wal2lake.postgres.snapshot import SnapshotIdentity
from wal2lake.spark.table_folder import Quarantine, SnapshotPlan, TableFolder
from wal2lake.spark.target import Target

if TYPE_CHECKING:
    from wal2lake.changelog.log import ChangeLog
    from wal2lake.config import Config

_PATIENCE_S = 60.0  # for the process that had the pipeline before; `run` gives it as long to stop


class Table:
    """One table: what it was read by, where it goes, and why it is left out, if it is."""

    def __init__(self, config: Config, log: ChangeLog, namespace: str, name: str) -> None:
        self.folder = TableFolder(snapshots_root(config), namespace, name)
        self.target = Target.of(config, namespace, name)
        self._name = qualified(namespace, name)
        self._log = log
        self.load()

    def load(self) -> None:
        """Read the folder again."""
        self._voided = ""  # the plan by which nothing was read since
        self._plan = self.folder.plan()
        self._done = self.folder.done()
        self.quarantine: Quarantine | None = self.folder.quarantine()

    def __str__(self) -> str:
        return self._name

    @property
    def in_lake(self) -> bool:
        """Its snapshot is committed."""
        return self._done is not None

    @property
    def partly_read(self) -> bool:
        """A snapshot that is not finished has read some of it."""
        return not self.in_lake and self._plan is not None and bool(self.folder.chunks(self._plan.plan_id))

    @property
    def plan(self) -> SnapshotPlan:
        assert self._plan is not None, "a table in the lake has a plan"
        return self._plan

    @property
    def chunks(self) -> int:
        return 0 if self._plan is None else len(self._plan.chunks)

    def snapshot_at(self, lsn: int) -> SnapshotIdentity | None:
        """The oldest snapshot that read the table, if it may have seen transactions that end above ``lsn``."""
        assert self._done is not None
        oldest = SnapshotIdentity.from_json(json.dumps(self._done.snapshots[0]))
        return oldest if lsn < oldest.bound_lsn else None

    def converges_at(self, lsn: int) -> bool:
        """Several snapshots read the table, and the log has not yet passed all that they saw."""
        assert self._done is not None
        return len(self._done.snapshots) > 1 and lsn < self.folder.converging_until()

    def is_of(self, relation_id: int) -> bool:
        return relation_id == self.plan.relation_id

    def require_relation(self, relation_id: int) -> None:
        """Raise SchemaChangeError when the log speaks of another table of the same name."""
        if not self.is_of(relation_id):
            raise SchemaChangeError(
                "The table was dropped and another of its name was made.",
                hint=RESYNC,
                relation=self._name,
            )

    def pass_over(self) -> None:
        """The stream goes past changes of a table that is not in the lake, so what was read of it is out of date."""
        if self._plan is not None and self._plan.plan_id != self._voided:
            self._plan = self.folder.void(self._plan)
            self._voided = self._plan.plan_id

    def set_quarantine(self, error: Wal2LakeError, lsn: int) -> None:
        """Leave the table out, durably; the log keeps what comes after ``lsn`` for it (0: it is read anew anyway)."""
        if lsn:
            self._log.release(self.consumer, lsn)
        self.folder.set_quarantine(error, lsn)
        self.quarantine = self.folder.quarantine()

    def move_quarantine(self, lsn: int) -> None:
        """It is applied up to ``lsn``: only when that is durable may the log let go of what comes before."""
        self.folder.move_quarantine(lsn)
        self.quarantine = self.folder.quarantine()
        self._log.release(self.consumer, lsn)

    def lift_quarantine(self) -> None:
        if self.quarantine is not None:
            self.folder.lift_quarantine()
            self._log.forget(self.consumer)
            self.quarantine = None

    @property
    def consumer(self) -> str:
        """Its name as a consumer of the log while it is left out."""
        return claim(self.target.pipeline, self.folder.path.name)


@contextmanager
def exclusive(config: Config, stop: Event | None = None) -> Iterator[None]:
    """Be the only process that runs this pipeline; the lock ends with the process. Raises SlotInUseError.

    With ``stop``, whose setting raises InterruptedByUser, one that is ending gets the time to finish its batch.
    """
    root = snapshots_root(config)
    root.mkdir(parents=True, exist_ok=True)
    with open(root / PIPELINE_LOCK, "ab") as file:
        patiently(lambda: _lock(file, config), _PATIENCE_S if stop else 0, stop or Event())
        yield


def _lock(file: BinaryIO, config: Config) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SlotInUseError(
            f"Another process runs the pipeline {config.pipeline.name!r} on the change log {config.log.path}.",
            hint="Stop it first, or give this one a name of its own (pipeline.name) and a lake.path.",
        ) from None


def snapshots_root(config: Config) -> Path:
    """The folder of all tables' folders of this pipeline."""
    return Path(config.log.path) / "snapshots" / config.pipeline.name
