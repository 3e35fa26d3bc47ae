"""A finding of `status`: a sentence for people, and what it is for programs."""

from __future__ import annotations

from typing import Final, Self

# What each is: docs/status.md has the sentences.
PROBLEMS: Final = {
    "server": "the server cannot be asked",
    "slot_missing": "there is no replication slot",
    "slot_lost": "the slot is invalidated: WAL that it needs is gone",
    "slot_unreserved": "the slot is about to be lost (max_slot_wal_keep_size)",
    "slot_unfinished": "the slot is being made, and waits for running transactions",
    "slot_idle": "nobody streams from the slot, although capture says so",
    "publication": "the publication is missing",
    "locked": "the published tables cannot be listed, for somebody's lock",
    "history": "the server's WAL is not what the change log goes on from",
    "log": "there is no change log, or it cannot be read",
    "open_transaction": "a streamed or prepared transaction has not ended for ten minutes, and keeps the change log",
    "lake": "a table of the lake cannot be read",
    "capture": "capture does not run, died, failed, waits or is silent",
    "pipeline": "the pipeline does not run, died, failed, waits or is silent",
    "behind": "the lake is more than ten minutes behind the change log",
    "table_missing": "the lake has lost a table",
    "table_quarantined": "a table is left out",
    "table_different": "verify found a table that differs from its source",
}


class Problem(str):
    """The sentence. ``kind``: one of PROBLEMS; ``table``: which, as schema.table, or ''.

    Sentences hold ages and figures, so what is the same finding from one look to the next is told by ``key``.
    """

    kind: str
    table: str

    def __new__(cls, kind: str, text: str, table: str = "") -> Self:
        made = super().__new__(cls, text)
        made.kind, made.table = kind, table
        assert kind in PROBLEMS, kind
        return made

    def __getnewargs__(self) -> tuple[str, str, str]:  # type: ignore[override] # copies know all of it
        return self.kind, str(self), self.table

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.table
