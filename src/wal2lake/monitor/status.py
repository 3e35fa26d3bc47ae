"""`wal2lake status`: the three places where state lives (slot, change log, tables' commits), side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from wal2lake.changelog.log import ChangeLog
from wal2lake.config import Config
from wal2lake.errors import LockedError, PublicationError, Wal2LakeError
from wal2lake.lsn import LSN
from wal2lake.monitor.progress import Progress, is_alive, read_progress
from wal2lake.monitor.view import format_duration
from wal2lake.names import qualified
from wal2lake.postgres.catalog import identify, published_tables
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


@dataclass(frozen=True)
class Status:
    """What is known at one moment; a place that cannot be read is None, with the reason in ``problems``."""

    server_wal_lsn: LSN | None
    slot: SlotState | None
    log: LogStatus | None
    progress: Progress
    applied: dict[str, LSN | None]
    problems: list[str] = field(default_factory=list)


def read_status(config: Config) -> Status:
    """Look at all three places; problems are collected, so one broken place does not hide the others."""
    problems: list[str] = []
    of_log: list[str] = []
    log = _log_status(config, of_log)  # looked at first: the log follows the server
    server_lsn, slot, names = _server_status(config, problems)
    problems += of_log
    if log is not None and server_lsn is not None and server_lsn < log.durable_lsn:
        problems.append(
            f"The server's WAL ends at {server_lsn}, before the change log, which ends at {log.durable_lsn}: the server"
            " was taken back to an earlier state. `wal2lake check` says what to do."
        )
    progress = read_progress(config.log.path)
    if log is not None:  # without one neither has begun
        problems += [*_capture_problems(progress, slot), *_pipeline_problems(progress), *_quarantine_problems(progress)]
    return Status(
        server_wal_lsn=server_lsn,
        slot=slot,
        log=log,
        progress=progress,
        applied=_applied_lsns(config, names, problems),
        problems=problems,
    )


def _server_status(config: Config, problems: list[str]) -> tuple[LSN | None, SlotState | None, list[tuple[str, str]]]:
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
            return identify(connection).wal_lsn, slot, _published_names(connection, config, problems)
    except Wal2LakeError as error:
        problems.append(str(error))
        return None, None, []


def _capture_problems(progress: Progress, slot: SlotState | None) -> Iterator[str]:
    state, ago = progress.capture_state, format_duration(progress.capture_age_s or 0)
    if progress.capture_age_s is None:
        yield f"Capture is not running{_KEEPS_WAL}"
    elif state == "stopped":
        yield f"Capture was stopped {ago} ago{_KEEPS_WAL}"
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
    elif not is_alive(state):
        yield f"The pipeline has said nothing for {ago}: it is not running, or hangs."
    elif state == "waiting":
        yield f"The pipeline waits. {progress.pipeline_reason or ''}".rstrip()
    elif state == "streaming" and progress.lag_s > _BEHIND_S:
        rate = sum(table.changes_per_s for table in progress.tables)
        behind = format_duration(progress.lag_s)
        yield f"The lake is {behind} behind the change log; it took in {rate:,.0f} changes/s lately."


def _quarantine_problems(progress: Progress) -> Iterator[str]:
    for table in progress.tables:
        if table.state == "quarantined" and progress.pipeline_lives:
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


def _log_status(config: Config, problems: list[str]) -> LogStatus | None:
    try:
        log = ChangeLog.open(config.log.path)
    except Wal2LakeError as error:
        problems.append(str(error))
        return None
    size = sum(segment.payload_bytes for segment in log.segments)
    return LogStatus(len(log.segments), size, LSN(log.start_lsn), LSN(log.last_end_lsn), LSN(log.durable_lsn()))


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
