"""After a promotion that left behind what the log has: the log is cut back to the fork, and what may hold it read anew.

The rule: the log goes on only when word is left for every table that may hold what did not happen. So the words come
first, then the streams' places are forgotten, and last the log is cut; whoever dies in between is continued by doing it
again, for until the log is cut capture refuses it.

A table holds something of the old server's own if the log has a change of it behind the fork, or its LSN in the lake
lies there. One that was read from the old server too late is noticed by the next look (pipeline/batches.py).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from wal2lake.capture.startup import require_slot_at
from wal2lake.capture.timeline import find_step, moved_on, reaches_beyond
from wal2lake.changelog.log import CLAIM, ChangeLog
from wal2lake.changelog.places import SNAPSHOTS, checkpoint, pipeline_lock
from wal2lake.changelog.requests import Requests
from wal2lake.changelog.tables import known_tables
from wal2lake.changelog.writer import LogWriter
from wal2lake.errors import ConfigError, SinkError, SlotInUseError
from wal2lake.lsn import LSN
from wal2lake.names import qualified
from wal2lake.postgres.catalog import identify
from wal2lake.postgres.connection import connect
from wal2lake.tables.exclusive import exclusive
from wal2lake.tables.table_folder import TableFolder
from wal2lake.tables.target import Target

if TYPE_CHECKING:
    from wal2lake.config import Config

Name = tuple[str, str]


class CutBack(NamedTuple):
    """What was done: where the log ends now, which tables are read anew, of each pipeline, and which other readers had
    read beyond that and must begin anew themselves."""

    lsn: LSN
    tables: Mapping[str, list[str]]
    readers: list[str]


def cut_back(config: Config) -> CutBack:
    """Cut the log back to where the server's timeline left the log's, and have tables read anew by the next run.

    Raises ConfigError where there is nothing to cut, SlotInUseError while capture or a pipeline runs, LogMismatchError
    for a server of another history, and where the log does not reach back to the fork any more.
    """
    log = ChangeLog.open(config.log.path)
    with ExitStack() as stack:
        stack.enter_context(exclusive(config))
        writer = stack.enter_context(LogWriter(config.log.path, log.identity, compression=config.log.compression))
        fork = _fork(config, writer.log)
        pipelines = log.storage.folders(SNAPSHOTS)
        _require_idle(log, [name for name in pipelines if name != config.pipeline.name])
        readers = [name for name, lsn in log.released().items() if lsn > fork and CLAIM not in name]
        moved = set(moved_on(writer.log, fork))
        tables = {name: _ask(config, log, name, fork, moved) for name in pipelines}
        for name in pipelines:
            _forget_place(config, log, name)
        writer.cut(fork)
        return CutBack(writer.durable_lsn, tables, sorted(set(readers) - set(pipelines)))


def _fork(config: Config, log: ChangeLog) -> LSN:
    with connect(config.source.login, application_name="wal2lake resync") as connection:
        system = identify(connection)
        if system.system_id != log.identity.system_id:
            raise ConfigError(
                f"The change log {log.storage.where} is of another server.", hint="`wal2lake check` says what fits."
            )
        step = find_step(config.source.login, log, system)
        require_slot_at(connection, config.source.slot, log, system, step.bounded(log.durable_lsn()))
    fork = step.fork
    if fork is None or not reaches_beyond(log, fork):
        raise ConfigError(
            "The change log has nothing that the server does not have: no promotion has left it behind.",
            hint="`wal2lake run` goes on with it. Without --forked, tables are read anew by name or with --all.",
        )
    return fork


def _require_idle(log: ChangeLog, pipelines: Collection[str]) -> None:
    for name in pipelines:
        if log.storage.is_locked(pipeline_lock(name)):
            raise SlotInUseError(
                f"The pipeline {name!r} runs on the change log {log.storage.where}.", hint="Stop it first."
            )


def _ask(config: Config, log: ChangeLog, pipeline: str, fork: LSN, moved: Collection[str]) -> list[str]:
    """Leave word for the pipeline's tables; all of one whose lake is not known here."""
    chosen = [
        table
        for table in known_tables(log.storage, pipeline)
        if not _is_skipped(config, pipeline, table)
        if pipeline != config.pipeline.name or qualified(*table) in moved or _is_beyond(config, table, fork)
    ]
    for table in chosen:
        Requests(log.storage, pipeline).put(*table, "resync")
    return [qualified(*table) for table in chosen]


def _is_skipped(config: Config, pipeline: str, table: Name) -> bool:
    """Somebody wants it left out; when it is wanted again, it is read anew in any case."""
    quarantine = TableFolder(config.log.path, pipeline, *table).read().quarantine
    return quarantine is not None and quarantine.skipped


def _is_beyond(config: Config, table: Name, fork: LSN) -> bool:
    """Also of a table in the lake that cannot be read."""
    try:
        state = Target.of(config, *table).sink().state()
    except SinkError:
        return True
    return state is not None and state.applied_lsn > fork


def _forget_place(config: Config, log: ChangeLog, pipeline: str) -> None:
    """Where the pipeline's stream is lies behind the fork: it begins where the log does, and passes over what is
    applied."""
    place = checkpoint(config.log.folder, pipeline)
    if place.exists():
        place.rename(place.with_name(f"{place.name}~forked-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"))
    log.forget(pipeline)
