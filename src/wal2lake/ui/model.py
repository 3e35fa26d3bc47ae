"""What the pages show, as plain values: the same words and figures as `status` and `tables`, put side by side.

Nothing here knows HTML. What is durable about a table (its document) says whether it is left out; how it moves says the
pipeline's status, as long as a pipeline runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from wal2lake.changelog.consumers import list_consumers
from wal2lake.changelog.format import SegmentInfo
from wal2lake.changelog.requests import Requests, Wish
from wal2lake.config import Config
from wal2lake.errors import Wal2LakeError
from wal2lake.lsn import LSN
from wal2lake.monitor.places import LogReader
from wal2lake.monitor.progress import Progress, TableProgress
from wal2lake.monitor.summary import copied_share, is_copied, ranked
from wal2lake.monitor.view import lag
from wal2lake.monitor.watch import Look
from wal2lake.names import qualified
from wal2lake.tables.listing import ListedTable, list_tables

Tone = Literal["bad", "busy", "good", "off"]
_TONES: Mapping[str, Tone] = {
    "damaged": "bad",
    "missing": "bad",
    "quarantined": "bad",
    "snapshot": "busy",
    "waiting": "busy",
    "catching_up": "busy",
    "streaming": "good",
}
_BY_DOCUMENT = {"init": "waiting", "data_copy": "snapshot", "catch_up": "catching_up", "ready": "catching_up"}
_LEFT_OUT = ("quarantined", "skipped")
_LISTING_S = 2.0  # so long one is good for every page
_MOST_SEGMENTS = 25


@dataclass(frozen=True)
class Row:
    """A table. ``share``: of its copy, 0 to 1, None where none is under way; ``lag``: behind the log, in words;
    ``stale``: no pipeline runs, so it goes nowhere; ``wish``: what somebody wants of it that no pipeline
    has done yet."""

    name: str
    state: str
    tone: Tone
    progress: TableProgress
    share: float | None
    lag: str
    stale: bool
    since: str
    reason: str
    schema_versions: int | None
    needs_lsn: LSN | None
    wish: str | None

    @property
    def rows(self) -> int | None:
        """In the lake; while it is copied, read so far."""
        known = self.progress.rows
        return self.progress.rows_read if is_copied(self.progress) and not known else known

    @property
    def wishes(self) -> tuple[Wish, ...]:
        """What can be wanted of it as it stands."""
        retry: tuple[Wish, ...] = ("retry",) if self.state in _LEFT_OUT else ()
        return (*retry, "resync") if self.state == "skipped" else (*retry, "resync", "skip")

    @property
    def troubled(self) -> bool:
        return self.tone == "bad"


@dataclass(frozen=True)
class LogFacts:
    """The change log: its newest segments, newest first, of ``segments`` in all; who keeps it, who holds back most
    first."""

    segments: int
    size: int
    rows: int
    commits: int
    newest: Sequence[SegmentInfo]
    consumers: Sequence[Mapping[str, Any]]
    start_lsn: LSN
    durable_lsn: LSN


class Documents:
    """What the log's folder has of tables and of itself, read for all pages by one of them at a time."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._log = LogReader(config.log.path)
        self._listed: dict[str, ListedTable] = {}
        self._wishes: dict[str, str] = {}
        self._listed_at = float("-inf")

    def wishes(self) -> dict[str, str]:
        """What is wanted of tables, and not done yet, by their names; as old as ``tables``."""
        return self._wishes

    def tables(self) -> dict[str, ListedTable]:
        """By name; what is a few seconds old will do. Nothing where there is no log, or it cannot be read."""
        with self._lock:
            if time.monotonic() - self._listed_at > _LISTING_S:
                try:
                    self._listed = {table.table: table for table in list_tables(self._config)}
                    requests = Requests(self._config.log.path, self._config.pipeline.name)
                    self._wishes = {qualified(asked.namespace, asked.name): asked.wish for asked in requests.all()}
                except (Wal2LakeError, FileNotFoundError):  # what is wrong with the log the overview says; or one is
                    self._listed, self._wishes = {}, {}  # done just now
                self._listed_at = time.monotonic()
            return self._listed

    def forget(self) -> None:
        """Something was asked for: the next page is to show it."""
        self._listed_at = float("-inf")

    def log(self) -> LogFacts:
        """Raises what the log cannot be read for."""
        with self._lock:
            log = self._log.read()
            segments = log.segments
            return LogFacts(
                segments=len(segments),
                size=sum(segment.payload_bytes for segment in segments),
                rows=sum(segment.rows for segment in segments),
                commits=sum(segment.commits for segment in segments),
                newest=segments[: -_MOST_SEGMENTS - 1 : -1],
                consumers=list(list_consumers(log)),
                start_lsn=log.start_lsn,
                durable_lsn=log.durable_lsn(),
            )


def table_rows(look: Look, documents: Documents) -> list[Row]:
    """All tables that anybody knows of, the troubled first."""
    listed, wishes = documents.tables(), documents.wishes()
    progress = look.status.progress
    told = {table.name: table for table in progress.tables}
    for name, table in listed.items():
        told[name] = _agreed(told.get(name), table)
    return [_row(progress, table, listed.get(table.name), wishes.get(table.name)) for table in ranked(told.values())]


def _agreed(told: TableProgress | None, listed: ListedTable) -> TableProgress:
    """What the pipeline told last, unless the table's document says that it is left out or no more, or is damaged."""
    left_out = listed.state in _LEFT_OUT
    if told is not None and (told.state in _LEFT_OUT) == left_out and listed.state != "damaged":
        return told
    values = {} if told is None else vars(told)
    state = _BY_DOCUMENT.get(listed.state, listed.state)
    reason = listed.reason or None
    return TableProgress(**{"behind": False, **values, "name": listed.table, "state": state, "reason": reason})


def _row(progress: Progress, table: TableProgress, listed: ListedTable | None, wish: str | None) -> Row:
    tone = _TONES.get(table.state, "off")
    return Row(
        name=table.name,
        state=table.state,
        tone=tone,
        progress=table,
        share=copied_share([table]) if is_copied(table) else None,
        lag=lag(progress, table),
        stale=not progress.pipeline_lives and table.state in ("streaming", "catching_up", "snapshot"),
        since=listed.since if listed else "",
        reason="" if tone == "good" else table.reason or (listed.reason if listed else ""),  # why it was read anew once
        schema_versions=listed.schema_versions if listed else None,
        needs_lsn=listed.needs_lsn if listed else None,
        wish=wish,
    )
