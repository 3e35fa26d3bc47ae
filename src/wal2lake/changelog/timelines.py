"""On which of the server's timelines the log is: ``timelines/<timeline>.json``, written once for each that it goes on.

The rule: what log.json says of the timeline holds until a document here names a higher one. Each has the timeline's
whole history: which timelines it comes from, and up to where each counts. So two servers that were promoted at
different points are told apart although both call their timeline 2.

Source: src/backend/access/transam/timeline.c (what a history file says).
"""

from __future__ import annotations

from typing import NamedTuple

from wal2lake.changelog.documents import parsing, read_document, write_document
from wal2lake.changelog.places import TIMELINES
from wal2lake.changelog.storage import Storage
from wal2lake.lsn import LSN

Switches = tuple[tuple[int, LSN], ...]  # timelines, oldest first, each with the LSN at which its successor left it


class Timeline(NamedTuple):
    """A timeline and its history."""

    number: int
    switches: Switches

    def left_at(self, timeline: int) -> LSN | None:
        """Where this timeline's history leaves ``timeline``; None: it does not come from that one."""
        return dict(self.switches).get(timeline)

    def left_behind(self, timeline: int, lsn: int) -> bool:
        """What was seen of the server on ``timeline`` (0: on the log's first) at ``lsn`` did not happen to the server
        of this one."""
        left = self.left_at(timeline or self.switches[0][0])
        return left is not None and lsn > left

    def continues(self, other: Timeline) -> bool:
        """``other`` is this very timeline, or one that its history comes from, left nowhere else by ``other``'s own."""
        count = len(other.switches)
        behind = [number for number, _ in self.switches[count:]] + [self.number]
        return self.switches[:count] == other.switches and behind[0] == other.number


def newest_timeline(storage: Storage) -> Timeline | None:
    """The last that was followed; None where log.json's is the only one. Raises LogCorruptError."""
    names = storage.names(TIMELINES)
    if not names:
        return None
    name = f"{TIMELINES}/{max(names)}"
    return read_timeline(storage.get(name), name)


def read_timeline(data: bytes, name: str) -> Timeline:
    """The document ``name``; raises LogCorruptError."""
    values = read_document(data, name)
    with parsing(name):
        switches = tuple((int(timeline), LSN.parse(lsn)) for timeline, lsn in values["switches"])
        if not switches:
            raise ValueError("a timeline that was followed comes from another")
        return Timeline(int(values["timeline"]), switches)


def record_timeline(storage: Storage, timeline: Timeline) -> None:
    """The log goes on on ``timeline``; durable when it returns."""
    storage.prepare(TIMELINES)
    storage.create(f"{TIMELINES}/{timeline.number:08X}.json", write_timeline(timeline))


def write_timeline(timeline: Timeline) -> bytes:
    """The document of ``timeline``."""
    switches = [[number, str(LSN(lsn))] for number, lsn in timeline.switches]
    return write_document({"timeline": timeline.number, "switches": switches})
