"""`wal2lake status`: the three places where state lives (slot, change log, tables' commits), side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from wal2lake.changelog.log import ChangeLog
from wal2lake.config import Config
from wal2lake.errors import RESYNC, ConfigError, LockedError, PublicationError, Wal2LakeError
from wal2lake.lsn import LSN
from wal2lake.monitor.progress import DIED, Progress, is_alive, read_progress
from wal2lake.monitor.view import format_duration
from wal2lake.names import qualified
from wal2lake.postgres.catalog import SystemIdentity, identify, published_tables
from wal2lake.postgres.connection import Connection, connect, mapped_errors
from wal2lake.postgres.slots import SlotState, slot_state
from wal2lake.tables.target import Target

_LOCK_TIMEOUT = "2s"  # the tables are not listed while somebody locks one; the rest is worth seeing

_BEHIND_S = 600.0  # a large transaction may keep the lake behind for minutes
_KEEPS_WAL = "; the slot keeps WAL on the server until it runs again."


@dataclass(frozen=True)
class LogStatus:
    """The change log; LSNs in bytes, ``size`` in bytes."""

    segments: int
    size: int
    start_lsn: LSN
    last_end_lsn: LSN
    durable_lsn: LSN
    timeline: int


@dataclass(frozen=True)
class Status:
    """What is known at one moment; a place that cannot be read is None, with the reason in ``problems``."""

    server_wal_lsn: LSN | None
    slot: SlotState | None
    log: LogStatus | None
    progress: Progress
    applied: dict[str, LSN | None]
    problems: list[str] = field(default_factory=list)

    def reached(self, table: str) -> LSN | None:
        """Up to where the lake has all of the table's changes; its last commit may be older, where nothing changed."""
        own = self.applied[table]
        told = (LSN(known.applied_lsn) for known in self.progress.tables if known.name == table)
        return own and max(own, *told, own)


def read_status(config: Config) -> Status:
    """Look at all three places; problems are collected, so one broken place does not hide the others."""
    problems: list[str] = []
    of_log: list[str] = []
    exists, log = _log_status(config, of_log)  # looked at first: the log follows the server
    system, slot, names = _server_status(config, problems)
    problems += of_log
    if log is not None and system is not None:
        problems += _history_problems(log, system)
    applied = _applied_lsns(config, names, problems)
    progress = _without_missing(read_progress(config.log.path), applied)
    if exists:  # without one neither has begun
        kept = _KEEPS_WAL if system is None or (slot is not None and not slot.lost) else "."
        problems += [
            *_capture_problems(progress, slot, kept),
            *_pipeline_problems(progress),
            *_table_problems(progress),
        ]
    return Status(
        server_wal_lsn=system and system.wal_lsn,
        slot=slot,
        log=log,
        progress=progress,
        applied=applied,
        problems=problems,
    )


def _server_status(
    config: Config, problems: list[str]
) -> tuple[SystemIdentity | None, SlotState | None, list[tuple[str, str]]]:
    settings = {"lock_timeout": _LOCK_TIMEOUT}
    try:
        with (
            connect(config.source.dsn, application_name="wal2lake status", settings=settings) as connection,
            mapped_errors(),
        ):
            slot = slot_state(connection, config.source.slot)
            if slot is None:
                problems.append(f"There is no replication slot {config.source.slot} on the server.")
            elif slot.lost:
                problems.append(f"The replication slot {slot.slot_name} is lost: `wal2lake check` says why.")
            elif slot.unfinished:
                problems.append(
                    f"The replication slot {slot.slot_name} is being made, which waits for running transactions to"
                    " end: `wal2lake check` names them."
                )
            elif slot.wal_status == "unreserved":
                problems.append(
                    f"The replication slot {slot.slot_name} is about to be lost: it is farther behind than"
                    " max_slot_wal_keep_size."
                )
            return identify(connection), slot, _published_names(connection, config, problems)
    except Wal2LakeError as error:
        problems.append(str(error))
        return None, None, []


def _history_problems(log: LogStatus, system: SystemIdentity) -> Iterator[str]:
    """Why the log and the server's WAL cannot be of one history."""
    if system.timeline < log.timeline:
        yield (
            f"The server is on timeline {system.timeline}, and the change log has gone on to timeline {log.timeline}:"
            " this is a server that was left behind by a promotion. `wal2lake check` says what to do."
        )
    elif system.wal_lsn < log.durable_lsn:
        why = "was taken back to an earlier state"
        if system.timeline > log.timeline:
            why = f"was promoted to timeline {system.timeline}, without what the log has of timeline {log.timeline}"
        yield (
            f"The server's WAL ends at {system.wal_lsn}, before the change log, which ends at {log.durable_lsn}: the"
            f" server {why}. `wal2lake check` says what to do."
        )


def _capture_problems(progress: Progress, slot: SlotState | None, kept: str) -> Iterator[str]:
    state, ago = progress.capture_state, format_duration(progress.capture_age_s or 0)
    if progress.capture_age_s is None:
        yield f"Capture is not running{kept}"
    elif state == DIED:
        yield f"Capture died: its process is gone, and said nothing of an end {ago} ago{kept}"
    elif state == "failed":
        yield f"Capture failed {ago} ago{kept} {progress.capture_reason}"
    elif state == "stopped":
        yield f"Capture was stopped {ago} ago{kept}"
    elif not is_alive(state):
        yield f"Capture has said nothing for {ago}: it is not running, or hangs."
    elif state == "waiting":
        yield "Capture cannot stream and tries again and again; its log says why."
    elif state == "streaming" and slot is not None and not slot.active:
        yield f"The replication slot {slot.slot_name} is idle, although capture should stream from it."


def _pipeline_problems(progress: Progress) -> Iterator[str]:
    state, ago = progress.pipeline_state, format_duration(progress.pipeline_age_s or 0)
    if progress.pipeline_age_s is None:
        yield "The pipeline is not running."
    elif state in ("stopped", "failed"):
        reason = f": {progress.pipeline_reason}" if progress.pipeline_reason else "."
        yield f"The pipeline {'was stopped' if state == 'stopped' else 'failed'} {ago} ago{reason}"
    elif state == DIED:
        yield f"The pipeline died: its process is gone, and said nothing of an end {ago} ago."
    elif not is_alive(state):
        yield f"The pipeline has said nothing for {ago}: it is not running, or hangs."
    elif state == "waiting":
        yield f"The pipeline waits. {progress.pipeline_reason or ''}".rstrip()
    elif state == "starting" and progress.pipeline_reason:
        yield f"The pipeline starts again after: {progress.pipeline_reason}"
    elif state == "streaming" and progress.lag_s is not None and progress.lag_s > _BEHIND_S:
        rate = sum(table.changes_per_s for table in progress.tables)
        behind = format_duration(progress.lag_s)
        yield f"The lake is {behind} behind the change log; it took in {rate:,.0f} changes/s lately."


def _without_missing(progress: Progress, applied: Mapping[str, LSN | None]) -> Progress:
    """A table that the pipeline had brought into the lake, and that is not there, does not stream."""
    tables = tuple(
        replace(table, state="missing", rows=None, reason="The lake does not have it.")
        if table.state in ("streaming", "catching_up") and table.name in applied and applied[table.name] is None
        else table
        for table in progress.tables
    )
    return replace(progress, tables=tables)


def _table_problems(progress: Progress) -> Iterator[str]:
    for table in progress.tables:
        if table.state == "missing":
            yield f"The lake has lost {table.name}: what the pipeline had brought there was deleted or moved. {RESYNC}"
        elif table.state == "quarantined" and progress.pipeline_lives:
            yield f"{table.name} is quarantined."
        elif table.state == "quarantined":
            ago = format_duration(progress.pipeline_age_s or 0)
            yield (
                f"{table.name} was quarantined when the pipeline was last heard of, {ago} ago; the next run tries it"
                " again, or reads it anew if it was resynced since."
            )


def _published_names(connection: Connection, config: Config, problems: list[str]) -> list[tuple[str, str]]:
    try:
        return [(table.namespace, table.name) for table in published_tables(connection, config.source.publication)]
    except PublicationError as error:
        problems.append(str(error))
    except LockedError as error:
        problems.append(f"The published tables cannot be listed now. {error}")
    return []


def _log_status(config: Config, problems: list[str]) -> tuple[bool, LogStatus | None]:
    """Whether there is a log, and how it stands, where it can be read."""
    try:
        log = ChangeLog.open(config.log.path)
        size = sum(segment.payload_bytes for segment in log.segments)
    except Wal2LakeError as error:
        problems.append(str(error))
        return not isinstance(error, ConfigError), None
    lsns = LSN(log.start_lsn), LSN(log.last_end_lsn), LSN(log.durable_lsn())
    return True, LogStatus(len(log.segments), size, *lsns, log.identity.timeline)


def _applied_lsns(config: Config, names: list[tuple[str, str]], problems: list[str]) -> dict[str, LSN | None]:
    applied: dict[str, LSN | None] = {}
    for namespace, name in names:
        try:
            state = Target.of(config, namespace, name).sink().state()
        except Wal2LakeError as error:
            problems.append(str(error))
            continue
        applied[qualified(namespace, name)] = None if state is None else LSN(state.applied_lsn)
    return applied
