"""How much of a table is read, by its finished chunks: each is durable once, so each is looked at once.

Sizes are those of the heap when the copy was planned; what came to its end since belongs to the last chunk.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from wal2lake.tables.chunks import BLOCK_BYTES, chunk_bytes
from wal2lake.tables.state import SnapshotPlan
from wal2lake.tables.table_folder import TableFolder


class Read(NamedTuple):
    """How much."""

    rows: int
    bytes: int


class Copied:
    """What is finished of one plan: ``rows`` by chunk number. ``before``: what an earlier run had read of it."""

    def __init__(self, plan: SnapshotPlan, folder: TableFolder) -> None:
        self.plan = plan
        self._folder = folder
        self.rows: dict[int, int] = {}
        self.look()
        self.before = Read(self.rows_read, self.bytes_read)

    def look(self) -> None:
        """See the chunks that were finished since; they go when the table is landed, or read by another plan."""
        with suppress(FileNotFoundError):
            found = self._folder.chunks(self.plan.plan_id, self.rows)
            self.rows |= {number: chunk.rows for number, chunk in found.items()}

    @property
    def rows_read(self) -> int:
        return sum(self.rows.values())

    @property
    def bytes_read(self) -> int:
        return sum(chunk_bytes(self.plan, chunk) for chunk in self.plan.chunks if chunk.number in self.rows)

    @property
    def lately(self) -> Read:
        """What was read since this looks."""
        return Read(self.rows_read - self.before.rows, self.bytes_read - self.before.bytes)


def bytes_total(plan: SnapshotPlan) -> int:
    """Of the heap that ``plan`` reads."""
    return plan.blocks * BLOCK_BYTES
