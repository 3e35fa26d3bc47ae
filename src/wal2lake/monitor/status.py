"""`wal2lake status`: the three places where state lives (slot, change log, tables' commits), side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from wal2lake import html
from wal2lake.config import Config
from wal2lake.errors import RESYNC
from wal2lake.lsn import LSN
from wal2lake.monitor.places import LogStatus, Places, PlacesReader
from wal2lake.monitor.problem import Problem
from wal2lake.monitor.progress import DIED, Progress, is_alive, read_progress
from wal2lake.monitor.verified import differences
from wal2lake.monitor.view import format_duration, lag_text
from wal2lake.postgres.slots import SlotState

_BEHIND_S = 600.0  # a large transaction may keep the lake behind for minutes
_KEEPS_WAL = "; the slot keeps WAL on the server until it runs again."


@dataclass(frozen=True)
class Status:
    """What is known at one moment; a place that cannot be read is None, with the reason in ``problems``."""

    server_wal_lsn: LSN | None
    slot: SlotState | None
    log: LogStatus | None
    progress: Progress
    applied: dict[str, LSN | None]
    problems: list[Problem] = field(default_factory=list)

    @property
    def ready(self) -> bool:
        """Nothing is found, and the lake is kept up."""
        return not self.problems and self.progress.ready

    @property
    def not_yet(self) -> str:
        """Where nothing is wrong: what is under way before the lake is kept up."""
        progress = self.progress
        if progress.pipeline_state == "snapshot":
            doing = "the first snapshot is read"
        elif progress.pipeline_state == "starting":
            doing = f"the pipeline is {progress.pipeline_doing or 'starting'}"
        else:
            doing = f"capture is {progress.capture_state}, the pipeline {progress.pipeline_state}"
        missing = sum(lsn is None for lsn in self.applied.values())
        lacks = f", and {missing:,} of {len(self.applied):,} tables are not in the lake yet" if missing else ""
        return f"Nothing is wrong, but the lake is not kept up yet: {doing}{lacks}."

    def reached(self, table: str) -> LSN | None:
        """Up to where the lake has all of the table's changes; its last commit may be older, where nothing changed."""
        own = self.applied[table]
        told = (LSN(known.applied_lsn) for known in self.progress.tables if known.name == table)
        return own and max(own, *told, own)

    def _repr_html_(self) -> str:
        """For notebooks."""
        slot, log, progress = self.slot, self.log, self.progress
        places = [
            ("server", f"WAL at {self.server_wal_lsn}" if self.server_wal_lsn is not None else "unknown"),
            ("slot", f"{slot.slot_name}, confirmed {slot.confirmed_flush_lsn}" if slot else "unknown"),
            ("change log", f"{log.segments} segments, durable to {log.durable_lsn}" if log else "unknown"),
            ("capture", progress.capture_state),
            ("pipeline", progress.pipeline_state),
            ("lag", lag_text(progress)),
        ]
        rows = [(t.name, t.state, t.rows, t.changes, t.applied_lsn, t.reason) for t in progress.tables]
        stuck = [t.state in ("quarantined", "missing") for t in progress.tables]
        tables = html.table(("table", "state", "rows", "changes", "applied", "why"), rows, marked=stuck) if rows else ""
        return html.table((), places) + tables + html.bullets(self.problems)


def read_status(config: Config) -> Status:
    """Look at all three places; problems are collected, so one broken place does not hide the others."""
    return status_of(config, PlacesReader(config).read())


def status_of(config: Config, places: Places, pids: Mapping[str, int] | None = None) -> Status:
    """``places`` with what capture and pipeline say right now; ``pids`` as for read_progress."""
    progress = _without_missing(read_progress(config.log.path, pids), places.applied)
    problems = list(places.problems)
    if places.exists:
        slot = places.slot
        kept = _KEEPS_WAL if places.server_wal_lsn is None or (slot is not None and not slot.lost) else "."
        problems += [
            *_capture_problems(progress, slot, kept),
            *_pipeline_problems(progress),
            *_table_problems(progress),
            *differences(config),
        ]
    return Status(
        server_wal_lsn=places.server_wal_lsn,
        slot=places.slot,
        log=places.log,
        progress=progress,
        applied=places.applied,
        problems=problems,
    )


def _capture_problems(progress: Progress, slot: SlotState | None, kept: str) -> Iterator[Problem]:
    """Whatever is said of capture itself is one finding, as it comes and goes."""
    text = _capture_problem(progress, kept)
    if text is not None:
        yield Problem("capture", text)
    elif progress.capture_state == "streaming" and slot is not None and not slot.active:
        text = f"The replication slot {slot.slot_name} is idle, although capture should stream from it."
        yield Problem("slot_idle", text)


def _capture_problem(progress: Progress, kept: str) -> str | None:
    state, ago = progress.capture_state, format_duration(progress.capture_age_s or 0)
    if progress.capture_age_s is None:
        return f"Capture is not running{kept}"
    if state == DIED:
        return f"Capture died: its process is gone, and said nothing of an end {ago} ago{kept}"
    if state == "failed":
        return f"Capture failed {ago} ago{kept} {progress.capture_reason}"
    if state == "stopped":
        return f"Capture was stopped {ago} ago{kept}"
    if not is_alive(state):
        return f"Capture has said nothing for {ago}: it is not running, or hangs."
    if state == "waiting":
        return f"Capture cannot stream and tries again and again. {progress.capture_reason or ''}".rstrip()
    return None


def _pipeline_problems(progress: Progress) -> Iterator[Problem]:
    text = _pipeline_problem(progress)
    if text is not None:
        yield Problem("pipeline", text)
    elif progress.pipeline_state == "streaming" and progress.lag_s is not None and progress.lag_s > _BEHIND_S:
        rate = sum(table.changes_per_s for table in progress.tables)
        behind = format_duration(progress.lag_s)
        yield Problem("behind", f"The lake is {behind} behind the change log; it took in {rate:,.0f} changes/s lately.")


def _pipeline_problem(progress: Progress) -> str | None:
    state, ago = progress.pipeline_state, format_duration(progress.pipeline_age_s or 0)
    if progress.pipeline_age_s is None:
        return "The pipeline is not running."
    if state in ("stopped", "failed"):
        reason = f": {progress.pipeline_reason}" if progress.pipeline_reason else "."
        return f"The pipeline {'was stopped' if state == 'stopped' else 'failed'} {ago} ago{reason}"
    if state == DIED:
        return f"The pipeline died: its process is gone, and said nothing of an end {ago} ago."
    if not is_alive(state):
        return f"The pipeline has said nothing for {ago}: it is not running, or hangs."
    if state == "waiting":
        return f"The pipeline waits. {progress.pipeline_reason or ''}".rstrip()
    if state == "starting" and progress.pipeline_reason:
        return f"The pipeline starts again after: {progress.pipeline_reason}"
    return None


def _without_missing(progress: Progress, applied: Mapping[str, LSN | None]) -> Progress:
    """A table that the pipeline had brought into the lake, and that is not there, does not stream."""
    tables = tuple(
        replace(table, state="missing", rows=None, reason="The lake does not have it.")
        if table.state in ("streaming", "catching_up") and table.name in applied and applied[table.name] is None
        else table
        for table in progress.tables
    )
    return replace(progress, tables=tables)


def _table_problems(progress: Progress) -> Iterator[Problem]:
    for table in progress.tables:
        if table.state == "missing":
            text = f"The lake has lost {table.name}: what the pipeline had brought there was deleted or moved. {RESYNC}"
            yield Problem("table_missing", text, table.name)
        elif table.state == "quarantined":
            text = f"{table.name} is quarantined."
            if not progress.pipeline_lives:
                ago = format_duration(progress.pipeline_age_s or 0)
                text = (
                    f"{table.name} was quarantined when the pipeline was last heard of, {ago} ago; the next run tries"
                    " it again, or reads it anew if it was resynced since."
                )
            yield Problem("table_quarantined", f"{text} {table.reason or ''}".rstrip(), table.name)
        elif table.tried:
            text = f"{table.name} was quarantined, and is tried again: it is not where the stream is yet. {table.tried}"
            yield Problem("table_quarantined", text, table.name)
