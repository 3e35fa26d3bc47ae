"""What a logical stream yields. Rows are dicts of Python values by column name; four nothings are kept apart:

NULL is None; an unchanged TOASTed value, which the server does not send, is UNCHANGED; what is not published, or not
part of the key where only the key is sent, is no key of the dict; empty is empty.

Times are µs since 2000-01-01 00:00 UTC, as the protocol has them, and as datetime.

Source: PostgreSQL documentation, "Logical Replication Message Formats".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, final

from wal2lake.epoch import moment
from wal2lake.lsn import LSN
from wal2lake.names import qualified

Row = Mapping[str, Any]


@final
class Unchanged:
    """The type of UNCHANGED. It has no text and no truth, so that nothing takes it for a value: psycopg and json refuse
    it, and so does ``if``. Compare with ``is``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNCHANGED"

    def __bool__(self) -> bool:
        raise TypeError("UNCHANGED is no value: ask `value is UNCHANGED` first.")

    def __reduce__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged()


@dataclass(frozen=True, slots=True)
class Column:
    """A published column. ``type_name`` as PostgreSQL's format_type has it, without the modifier; a type that is not
    built in with its schema; for a domain its base type's, which is all that the server announces. ``typmod`` -1: none.
    ``key``: part of the replica identity."""

    name: str
    type_oid: int
    typmod: int
    type_name: str
    key: bool


@dataclass(frozen=True, slots=True, repr=False)
class Relation:
    """A table as it was when the change was made. ``replica_identity``: 'd' default, 'n' nothing, 'f' full, 'i' index.
    ``key``: the names of the replica identity's columns. As text: schema.table."""

    relation_id: int
    schema: str
    name: str
    replica_identity: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    def __str__(self) -> str:
        return qualified(self.schema, self.name)

    def __repr__(self) -> str:
        return f"Relation({str(self)!r})"


class Event:
    """What all events are."""

    __slots__ = ()


@dataclass(slots=True)
class Begin(Event):
    """A transaction begins, whose commit record stands at ``commit_lsn``; its changes follow, then its Commit."""

    xid: int
    commit_lsn: LSN
    commit_ts: int

    @property
    def commit_time(self) -> datetime:
        """Raises OverflowError beyond the year 9999."""
        return moment(self.commit_ts)


@dataclass(slots=True)
class Change(Event):
    """A row was inserted, updated or deleted. ``old``: the row before, or its key, as far as the replica identity has
    the server send it, else None; ``new``: the row after, None for Delete."""

    lsn: LSN
    relation: Relation
    old: Row | None
    new: Row | None

    @property
    def key(self) -> dict[str, Any]:
        """The values of the replica identity's columns by which the row was known before the change."""
        row = self.new if self.old is None else self.old
        assert row is not None
        return {name: row[name] for name in self.relation.key}


@dataclass(slots=True)
class Insert(Change):
    """A new row: ``new``."""

    new: Row


@dataclass(slots=True)
class Update(Change):
    """A changed row: ``new``; and ``old`` when its key changed (the key) or the replica identity is FULL (all)."""

    new: Row


@dataclass(slots=True)
class Delete(Change):
    """A row is gone: ``old`` is its key or, with replica identity FULL, all of it."""

    old: Row


@dataclass(slots=True)
class Truncate(Event):
    """Tables were emptied together."""

    lsn: LSN
    relations: tuple[Relation, ...]
    cascade: bool
    restart_identity: bool


@dataclass(slots=True)
class Message(Event):
    """pg_logical_emit_message; not ``transactional``: it stands outside of any transaction."""

    lsn: LSN
    transactional: bool
    prefix: str
    content: bytes


@dataclass(slots=True)
class Origin(Event):
    """The transaction came from another server: the replication origin's name, and its LSN there."""

    name: str
    origin_lsn: LSN


@dataclass(slots=True)
class Commit(Event):
    """The transaction is whole. Acknowledge ``end_lsn`` once all of it is durable with you."""

    xid: int
    commit_lsn: LSN
    end_lsn: LSN
    commit_ts: int

    @property
    def commit_time(self) -> datetime:
        """Raises OverflowError beyond the year 9999."""
        return moment(self.commit_ts)
