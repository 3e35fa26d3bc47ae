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
    """One table: what it was read by, where it goes, and why it does not go with the stream, if so.

    ``quarantine``: it is left out for a reason. ``syncing``: it is synchronized beside the stream, and applied up to
    that LSN. Either way the log keeps what comes after, by a claim of the table's own.
    """

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
        self.syncing = None if self.quarantine is not None else self.folder.syncing()

    def __str__(self) -> str:
        return self._name

    @property
    def in_lake(self) -> bool:
        """Its snapshot is committed."""
        return self._done is not None

    @property
    def goes_along(self) -> bool:
        """It is in the lake, and each batch brings it to the batch's end."""
        return self.in_lake and self.quarantine is None and self.syncing is None

    @property
    def applied_lsn(self) -> int | None:
        """How far it is by itself; None when it goes along with the stream, or is not in the lake."""
        if self.quarantine is not None:
            return self.quarantine.lsn
        return self.syncing if self.in_lake else None

    @property
    def plan(self) -> SnapshotPlan:
        assert self._plan is not None, "a table in the lake has a plan"
        return self._plan

    @property
    def chunks(self) -> int:
        """How many it is read in; 0 as long as nobody has planned that."""
        plan = self._plan if self.in_lake else self.folder.plan()
        return 0 if plan is None else len(plan.chunks)

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

    def fall_behind(self, lsn: int) -> None:
        """It is applied up to ``lsn``; the stream goes on without it, until it has caught up."""
        self._log.release(self.consumer, lsn)
        self.folder.sync(lsn)
        self.folder.lift_quarantine()  # after that: a table that is behind is never without a mark
        self.quarantine, self.syncing = None, lsn

    def begin_sync(self, lsn: int) -> None:
        """The same for a table that is not in the lake, and has to be read first.

        What an earlier try has read is void: who knows which changes went unheard since.
        """
        self.load()
        self.pass_over()
        self._log.forget(self.consumer)  # whatever an earlier run left there may lie after this LSN
        self.fall_behind(lsn)

    def retry(self) -> None:
        """The same for a table of the lake that was left out: the log has what it has missed."""
        assert self._done is not None and self.quarantine is not None
        self.fall_behind(max(self.quarantine.lsn, self._done.lsn))

    def set_quarantine(self, error: Wal2LakeError, lsn: int) -> None:
        """Leave the table out, durably; the log keeps what comes after ``lsn`` for it (0: it is read anew)."""
        if lsn:
            self._log.release(self.consumer, lsn)
        elif self.syncing is not None:
            self.pass_over()
        self.folder.set_quarantine(error, lsn)
        self.folder.end_sync()  # in that order, as in fall_behind
        if not lsn:
            self._log.forget(self.consumer)
        self.quarantine, self.syncing = self.folder.quarantine(), None

    def caught_up_to(self, lsn: int) -> None:
        """It is applied up to ``lsn``: only when that is durable may the log let go of what comes before."""
        self.folder.sync(lsn)
        self.syncing = lsn
        self._log.release(self.consumer, lsn)

    def go_along(self) -> None:
        """Nothing keeps it from going with the stream any more."""
        if self.quarantine is not None or self.syncing is not None:
            self.folder.lift_quarantine()
            self.folder.end_sync()
            self._log.forget(self.consumer)
            self.quarantine = self.syncing = None

    def give_up(self) -> None:
        """It is not published any more: unless it came into the lake meanwhile, nothing is kept for it."""
        self.load()
        if not self.in_lake:
            self.pass_over()
            self.go_along()

    def claims(self) -> bool:
        """The log has to keep changes for it."""
        return self.syncing is not None or (self.quarantine is not None and self.quarantine.lsn > 0)

    @property
    def consumer(self) -> str:
        """Its name as a consumer of the log while it does not go with the stream."""
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
