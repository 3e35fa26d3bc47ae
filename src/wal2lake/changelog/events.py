"""What happened, as it happened: batches, schema changes, restarts, quarantines, resyncs, promotions; for people.

The rule: nothing is ever decided by it, and telling never ends the work that is told of. Each source of events has a
folder of pages, ``events/<source>/<number of its first event>.json``. Only the newest page is replaced, over what was
read, so that processes may share a source; a full one stays as it is, and the oldest go. Batches come by the second:
they have pages of their own, so that they push out nothing else, and those alone are not forced to disk one by one.
What has no room on the disk is kept until it has, as long as the process lives.

The reading end is ``read_events`` (the newest, oldest of them first) and ``EventReader.news`` (what came since).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args
from urllib.parse import quote

from wal2lake import html
from wal2lake.changelog.documents import corrupt, parsing, read_document, write_document
from wal2lake.changelog.local import storage_at
from wal2lake.changelog.places import EVENTS, event_page, events_of
from wal2lake.changelog.storage import Storage, Version
from wal2lake.errors import LogCorruptError, Wal2LakeError
from wal2lake.lsn import LSN
from wal2lake.names import printable

Level = Literal["info", "warning", "error"]
Kind = Literal[
    "started", "stopped", "failed", "restarted", "connected", "disconnected", "log_created", "slot_taken_over",
    "promoted", "batch", "schema_changed", "copied", "ready", "quarantined", "resync", "retried", "skipped",
    "unpublished", "verified",
]  # fmt: skip
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

PAGE: Final = 32  # events; each that is told writes its page anew
_PAGES: Final[Mapping[bool, int]] = {False: 64, True: 128}  # that are kept of a source; True: of batches
_LONGEST: Final = 2000  # characters of a text
_MOST_PENDING: Final = 128  # that wait for room on the disk
_TRIES: Final = 20  # of a page that others write to as well
_BATCHES: Final = "batches"
_LEVELS: Final = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. ``text``: a sentence, which never holds a cell value or a credential; names in it are as
    the database has them, so show it as text (HTML: escaped; terminal: ``printable``).

    ``id``: the same in every reading, and of no other event; ``ts``: Unix seconds; ``source``: who tells (capture,
    pipeline, run, verify); ``table``: the one that it is about, as schema.table; ``values``: what the sentence says, by
    names that docs/monitoring.md lists for each kind; LSNs as PostgreSQL's text, durations in seconds.
    """

    id: str
    ts: float
    source: str
    kind: str
    level: Level
    text: str
    table: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def time(self) -> str:
        """When it was, in ISO 8601, UTC, to the millisecond."""
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self.ts)) + f".{int(self.ts * 1000) % 1000:03d}Z"

    def to_json(self) -> dict[str, Any]:
        """For JSON: all fields, and ``time``."""
        return {**asdict(self), "values": dict(self.values), "time": self.time}

    def line(self) -> str:
        """All of it but its values, as one line of plain text."""
        return printable(f"{self.time} {self.level.upper():<7} {self.source}: {self}")

    def __str__(self) -> str:
        return f"{self.table}: {self.text}" if self.table else self.text


class Events:
    """Tells what happens, as ``source``, to whoever looks later; for all threads.

    ``pipeline``: which one, for what is a pipeline's: several may share a log.
    """

    def __init__(self, place: str | Path | Storage, source: str, pipeline: str = "") -> None:
        self._storage, self._source = storage_at(place), source
        self._logger = logging.getLogger(f"wal2lake.{source}")
        self._suffix = f"@{quote(pipeline, safe='')}" if pipeline else ""
        self._one_at_a_time = threading.Lock()
        self._pending: deque[tuple[str, dict[str, Any]]] = deque(maxlen=_MOST_PENDING)
        self._failed = False

    def record(self, kind: Kind, text: str, *, level: Level = "info", table: str | None = None, **values: Any) -> None:
        """Log it, and write it down; raises nothing. Durable when it returns, if there is room; but for batches."""
        values = {name: str(value) if isinstance(value, LSN) else value for name, value in values.items()}
        text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 2]} …"
        told = f"{table}: {text}" if table else text
        extra = {"wal2lake": {"event": kind, **({"table": table} if table else {}), **values}}
        self._logger.log(_LEVELS[level], "%s", told, extra=extra)
        document = {
            "ts": round(time.time(), 6), "kind": kind, "level": level, "text": text, "table": table, "values": values,
        }  # fmt: skip
        source = _BATCHES if kind == "batch" else self._source
        with self._one_at_a_time:
            self._pending.append((source + self._suffix, document))
            self._write_pending()

    def flush(self) -> None:
        """Try again to write down what could not be."""
        with self._one_at_a_time:
            self._write_pending()

    def _write_pending(self) -> None:
        try:
            while self._pending:
                stream, document = self._pending[0]
                _Stream(self._storage, stream).append(document)
                self._pending.popleft()
            self._failed = False
        except (OSError, Wal2LakeError) as error:
            if not self._failed:
                self._logger.warning("What happens cannot be written down for now: %s", error)
            self._failed = True


class EventList(list[Event]):
    """A list that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        """For notebooks."""
        rows = [(event.time, event.source, event.kind, event.table, event.text) for event in self]
        bad = [event.level == "error" for event in self]
        return html.table(("time", "source", "kind", "table", "what"), rows, marked=bad)


def read_events(
    place: str | Path | Storage,
    *,
    limit: int = 200,
    pipeline: str | None = None,
    kinds: Collection[str] | None = None,
    table: str | None = None,
    since: float | None = None,
) -> EventList:
    """The newest ``limit`` events of the log at ``place``, oldest first; [] where there is none.

    ``pipeline``: without what other pipelines did; ``kinds``: of these alone; ``table``: about it alone; ``since``: not
    older (Unix seconds). A page that is damaged or gone is passed over.
    """

    def wanted(event: Event) -> bool:
        return (kinds is None or event.kind in kinds) and table in (None, event.table)

    return EventList(_newest(_streams(storage_at(place), pipeline, kinds), limit, wanted, since))


class EventReader:
    """Reads on from where it was: the first ``news`` are the newest ``limit`` events, the next what came since then.

    Costs some reads of small files a call, however much there is. Not for two threads at once.
    """

    def __init__(self, place: str | Path | Storage, *, limit: int = 200, pipeline: str | None = None) -> None:
        self._storage, self._limit, self._pipeline = storage_at(place), limit, pipeline
        self._next: dict[str, int] | None = None  # by source: the number of the first event that is new

    def news(self) -> list[Event]:
        """What came since the last call, in the order of time; at most ``limit`` at first."""
        streams = _streams(self._storage, self._pipeline, None)
        first, self._next = self._next is None, self._next or {}
        ends = {stream.name: stream.end() for stream in streams}
        if first:
            found = _newest(streams, self._limit, lambda event: _number(event) < ends[_stream(event)], None)
        else:
            found = [
                event
                for stream in streams
                for event in stream.since(self._next.get(stream.name, 0))
                if _number(event) < ends[stream.name]
            ]
        self._next = {name: max(end, self._next.get(name, 0)) for name, end in ends.items()}
        return sorted(found, key=_order)


@dataclass(frozen=True, slots=True)
class _Stream:
    """One source's pages; ``name`` may have a pipeline's behind it."""

    storage: Storage
    name: str

    def append(self, document: dict[str, Any]) -> None:
        """Write it behind the others; raises what storages raise."""
        for _ in range(_TRIES):
            if self._append_once(document):
                return
        raise corrupt(event_page(self.name, 0), "others write it all the time")

    def _append_once(self, document: dict[str, Any]) -> bool:
        """False when somebody else has changed the page meanwhile."""
        firsts, first, page, version = self._firsts(), 0, list[dict[str, Any]](), None
        if firsts:
            first = firsts[-1]
            try:
                page, version = self._page(first)
            except LogCorruptError:
                page = [{}] * PAGE  # the numbers that were in it are not given again
        else:
            self.storage.prepare(events_of(self.name))
        if len(page) >= PAGE:
            first, page, version = first + PAGE, [], None
        data = write_document({"events": [*page, document]})
        batches = self.name.partition("@")[0] == _BATCHES
        if batches and page and len(page) + 1 < PAGE:  # it has one writer, who holds the pipeline's lock
            self.storage.note(event_page(self.name, first), data)
        elif self.storage.swap(event_page(self.name, first), data, version) is None:
            return False
        if not page:
            for old in firsts[: max(0, len(firsts) + 1 - _PAGES[batches])]:
                self.storage.remove(event_page(self.name, old))
        return True

    def end(self) -> int:
        """The number that the next event will have."""
        firsts = self._firsts()
        return firsts[-1] + len(self._known_page(firsts[-1])) if firsts else 0

    def since(self, number: int) -> Iterator[Event]:
        """The events from ``number`` on."""
        for first in self._firsts():
            if first + PAGE > number:
                yield from (event for event in self._events(first) if _number(event) >= number)

    def newest(self) -> Iterator[Event]:
        """All events, the newest first."""
        for first in reversed(self._firsts()):
            yield from reversed(self._events(first))

    def _events(self, first: int) -> list[Event]:
        source = self.name.partition("@")[0]
        source = "pipeline" if source == _BATCHES else source
        known = []
        for place, document in enumerate(self._known_page(first)):
            with suppress(AttributeError, KeyError, TypeError, ValueError):  # of another version
                known.append(_event(f"{self.name}-{first + place}", source, document))
        return known

    def _known_page(self, first: int) -> list[dict[str, Any]]:
        """What can be read of it."""
        try:
            return self._page(first)[0]
        except (OSError, LogCorruptError):
            return []

    def _page(self, first: int) -> tuple[list[dict[str, Any]], Version]:
        name = event_page(self.name, first)
        data, version = self.storage.read(name)
        document = read_document(data, name)
        with parsing(name):
            return list(document["events"]), version

    def _firsts(self) -> list[int]:
        """The numbers of the pages' first events, in order."""
        stems = (name.removesuffix(".json") for name in self.storage.names(events_of(self.name)))
        return sorted(int(stem) for stem in stems if stem.isdecimal())


def _event(id_: str, source: str, document: Mapping[str, Any]) -> Event:
    """As it was written down; what another version has besides is left out."""
    kind, level, text = (str(document[name]) for name in ("kind", "level", "text"))
    table, values = document.get("table"), dict(document.get("values") or {})
    known: Level = "info" if level == "info" else "warning" if level == "warning" else "error"
    return Event(id_, float(document["ts"]), source, kind, known, text, None if table is None else str(table), values)


def _streams(storage: Storage, pipeline: str | None, kinds: Collection[str] | None) -> list[_Stream]:
    """Those that can have what is wanted."""
    names = storage.folders(EVENTS)
    if pipeline is not None:
        names = [name for name in names if name.partition("@")[2] in ("", quote(pipeline, safe=""))]
    if kinds is not None:
        only, never = set(kinds) == {"batch"}, "batch" not in kinds
        names = [
            n for n in names if not (only and not n.startswith(_BATCHES)) and not (never and n.startswith(_BATCHES))
        ]
    return [_Stream(storage, name) for name in names]


def _newest(streams: list[_Stream], limit: int, wanted: Callable[[Event], bool], since: float | None) -> list[Event]:
    found: list[Event] = []
    for stream in streams:
        left = limit
        for event in stream.newest():
            if left <= 0 or (since is not None and event.ts < since):
                break
            if wanted(event):
                found.append(event)
                left -= 1
    return sorted(found, key=_order)[-limit:] if limit > 0 else []


def _order(event: Event) -> tuple[float, str, int]:
    return event.ts, _stream(event), _number(event)


def _stream(event: Event) -> str:
    return event.id.rpartition("-")[0]


def _number(event: Event) -> int:
    return int(event.id.rpartition("-")[2])
