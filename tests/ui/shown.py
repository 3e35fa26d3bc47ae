"""A pipeline as the page finds it, without one: a log's folder with what a test wants said, and the server's word."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wal2lake.changelog.documents import write_document
from wal2lake.changelog.format import LogIdentity
from wal2lake.changelog.log import ChangeLog
from wal2lake.config import Config, LakeConfig, LogConfig, SourceConfig
from wal2lake.lsn import LSN
from wal2lake.monitor.places import LogStatus, Places
from wal2lake.monitor.problem import Problem
from wal2lake.monitor.watch import Watcher
from wal2lake.postgres.slots import SlotState
from wal2lake.tables.state import Followed, Quarantine, TableState
from wal2lake.tables.table_folder import TableFolder

SLOT = SlotState(
    "shown", active=True, active_pid=7, restart_lsn=LSN(0x1000), confirmed_flush_lsn=LSN(0x2000), wal_status="reserved"
)
REASON = "A value of the column price cannot be held. `wal2lake resync` reads the table anew."


@dataclass
class Shown:
    """``tables`` as in status/pipeline.json; ``left_out`` have a document that says so."""

    folder: Path
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    slot: SlotState = SLOT

    def __post_init__(self) -> None:
        place = self.folder / "log"
        self.config = Config(
            source=SourceConfig(dsn="host=127.0.0.1 port=1", publication="shown", slot="shown"),
            log=LogConfig(path=str(place)),
            lake=LakeConfig(path=str(self.folder / "lake")),
        )
        ChangeLog.create(place, LogIdentity("1", 1, "postgres", "shown", "shown", LSN(0x1000)))
        self.say("capture", state="streaming", durable_lsn="0/3000", end_lsn="0/3000")
        self.say("pipeline", state="streaming", applied_lsn="0/2F00", lag_bytes=256, lag_s=0.4, tables=self.tables)
        for name in self.left_out:
            quarantine = Quarantine("UnrepresentableError", REASON, time.time())
            state = TableState("quarantined", quarantine=quarantine, followed=Followed({}, ("a", "b")))
            TableFolder(place, "wal2lake", *name.split(".", 1)).write(state)

    def say(self, role: str, **values: Any) -> None:
        path = Path(self.config.log.path) / "status" / f"{role}.json"
        path.write_bytes(write_document({"pid": 1, "ts": time.time(), **values}))

    def places(self) -> Places:
        """What a look at server, log and lake found."""
        log = LogStatus(3, 1234, LSN(0x1000), LSN(0x3000), LSN(0x3000), 1)
        applied = {name: LSN(0x2F00) for name in self.tables}
        return Places(LSN(0x3100), self.slot, log, applied, True, self.problems)

    def watcher(self) -> Watcher:
        """One that has looked once."""
        watcher = Watcher(self.config, read_places=self.places)
        watcher.refresh_places()
        watcher.refresh()
        return watcher
