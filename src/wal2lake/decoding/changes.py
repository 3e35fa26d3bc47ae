"""What the callbacks are given: transactions and changes, in the words of PostgreSQL's reorderbuffer.h.

A row is a list of values in the order of its relation's attributes. A value is the text that the server's output
function made (str), or what its send function made (bytes) where the stream was asked for binary. Four nothings stay
apart: ``None`` is NULL, UNCHANGED_TOAST was stored out of line and not touched by the update, NOT_PUBLISHED was not
sent at all (of an old row that is a key: every column outside of it), and an empty string is an empty string.

Source: src/include/replication/reorderbuffer.h; src/backend/replication/logical/proto.c.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from wal2lake.lsn import LSN

_NOWHERE: Final = LSN(0)


class Absent(Enum):
    """Why there is no value where there is no NULL either."""

    UNCHANGED_TOAST = "unchanged TOAST"
    NOT_PUBLISHED = "not published"

    def __repr__(self) -> str:
        return self.name


UNCHANGED_TOAST: Final = Absent.UNCHANGED_TOAST
NOT_PUBLISHED: Final = Absent.NOT_PUBLISHED
Value = str | bytes | Absent | None
Row = list[Value]


class ChangeType(Enum):
    """ReorderBufferChange's ``action``; the values are the tags of pgoutput's messages."""

    INSERT = "I"
    UPDATE = "U"
    DELETE = "D"
    TRUNCATE = "T"


class ReorderBufferTXN:
    """A transaction, or inside stream_abort_cb a subtransaction, whose ``toptxn`` then is the transaction.

    ``xid``: 32 bits, as the stream has it. ``gid``: of a prepared one, else None. ``first_lsn``: the first position
    that was heard of; ``final_lsn``: where the commit (prepare, abort) record begins, ``end_lsn``: where it ends; 0/0
    while unknown. ``commit_time``, ``prepare_time``, ``abort_time``: µs since 2000-01-01 UTC, 0 while unknown;
    PostgreSQL has them in one union, xact_time. ``origin``: the replication origin's name, None for what this server's
    own sessions did; ``origin_lsn`` is the commit's position there. ``output_plugin_private`` is the plugin's.
    """

    __slots__ = (
        "abort_time",
        "commit_time",
        "end_lsn",
        "final_lsn",
        "first_lsn",
        "gid",
        "origin",
        "origin_lsn",
        "output_plugin_private",
        "prepare_time",
        "toptxn",
        "xid",
    )

    def __init__(self, xid: int, first_lsn: LSN = _NOWHERE, toptxn: ReorderBufferTXN | None = None) -> None:
        self.xid = xid
        self.gid: str | None = None
        self.toptxn = toptxn
        self.first_lsn = first_lsn
        self.final_lsn = self.end_lsn = self.origin_lsn = _NOWHERE
        self.commit_time = self.prepare_time = self.abort_time = 0
        self.origin: str | None = None
        self.output_plugin_private: Any = None


class ReorderBufferChange:
    """A changed row. ``newtuple``: None for a DELETE; ``oldtuple``: None for an INSERT, and for an UPDATE that left the
    replica identity's columns alone. With replica identity FULL the old row is whole, else it is the key.

    ``lsn`` is where the change stands in the WAL; ``xid`` the (sub)transaction that made it, which pgoutput tells in
    streamed chunks only: elsewhere it is the transaction's.
    """

    __slots__ = ("action", "lsn", "newtuple", "oldtuple", "xid")

    def __init__(self, action: ChangeType, lsn: LSN, xid: int, oldtuple: Row | None, newtuple: Row | None) -> None:
        self.action = action
        self.lsn = lsn
        self.xid = xid
        self.oldtuple = oldtuple
        self.newtuple = newtuple


class TruncateChange:
    """What truncate_cb is given as its change: TRUNCATE's two options."""

    __slots__ = ("action", "cascade", "lsn", "restart_seqs", "xid")

    def __init__(self, lsn: LSN, xid: int, *, cascade: bool, restart_seqs: bool) -> None:
        self.action = ChangeType.TRUNCATE
        self.lsn = lsn
        self.xid = xid
        self.cascade = cascade
        self.restart_seqs = restart_seqs
