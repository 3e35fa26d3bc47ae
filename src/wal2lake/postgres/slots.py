"""Replication slots: made over a walsender connection, looked at in pg_replication_slots.

What the view has depends on the server's version; a field that a server does not know is None, never a guess.

Source: PostgreSQL documentation, "Streaming Replication Protocol" (CREATE_REPLICATION_SLOT) and the view
pg_replication_slots.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

from wal2lake.errors import BEGIN_ANEW, ConnectError, SlotInUseError, SlotLostError, SlotMissingError
from wal2lake.lsn import LSN
from wal2lake.postgres.connection import Connection, execute, mapped_errors
from wal2lake.postgres.errors import MISSING_SLOT
from wal2lake.postgres.exchange import PGconn, reading_answer
from wal2lake.wire.commands import (
    AlterReplicationSlot,
    Command,
    CreateLogicalReplicationSlot,
    CreatePhysicalReplicationSlot,
    DropReplicationSlot,
    ReadReplicationSlot,
    SnapshotAction,
)

_READ: dict[str, Callable[[str], int]] = {  # JSON has these as strings
    "datoid": int,
    "restart_lsn": LSN.parse,
    "confirmed_flush_lsn": LSN.parse,
    "two_phase_at": LSN.parse,
}


class SlotUnfinishedError(ConnectError):
    """The slot is still being made, or was given up half made; what it is to be shows when one looks again."""


@dataclass(frozen=True, slots=True)
class CreatedSlot:
    """The answer to CREATE_REPLICATION_SLOT. ``consistent_point``: every transaction that commits after it is
    streamed; the exported snapshot ``snapshot_name`` sees exactly those before it."""

    slot_name: str
    consistent_point: LSN
    snapshot_name: str | None
    plugin: str | None


@dataclass(frozen=True, slots=True)
class ReadSlot:
    """The answer to READ_REPLICATION_SLOT: where a physical slot keeps WAL from, and on which timeline."""

    slot_type: str
    restart_lsn: LSN | None
    restart_tli: int | None


@dataclass(frozen=True, slots=True)
class SlotState:
    """One row of pg_replication_slots, PostgreSQL's names. LSNs and ``safe_wal_size`` in bytes; times as text."""

    slot_name: str
    plugin: str | None = None
    slot_type: str = "logical"
    datoid: int | None = None
    database: str | None = None
    temporary: bool = False
    active: bool = False
    active_pid: int | None = None
    xmin: str | None = None
    catalog_xmin: str | None = None
    restart_lsn: LSN | None = None
    confirmed_flush_lsn: LSN | None = None
    wal_status: str | None = None
    safe_wal_size: int | None = None
    two_phase: bool | None = None
    two_phase_at: LSN | None = None
    inactive_since: str | None = None
    conflicting: bool | None = None
    invalidation_reason: str | None = None
    failover: bool | None = None
    synced: bool | None = None

    @property
    def unfinished(self) -> bool:
        """True while CREATE_REPLICATION_SLOT waits for running transactions."""
        return self.slot_type == "logical" and self.confirmed_flush_lsn is None

    @property
    def kind(self) -> str:
        """What it is, in a sentence: "a physical slot", "a slot of database shop and plugin pgoutput"."""
        if self.slot_type == "physical":
            return "a physical slot"
        return f"a slot of database {self.database} and plugin {self.plugin}"

    def is_of(self, database: str | None) -> bool:
        """Whether it is one that capture makes, in this database."""
        return self.slot_type == "logical" and (self.database, self.plugin) == (database, "pgoutput")

    @property
    def lost(self) -> bool:
        """True when the server has given the slot up; nothing brings it back."""
        return self.wal_status == "lost" or self.invalidation_reason is not None or bool(self.conflicting)


def create_slot(
    pgconn: PGconn,
    name: str,
    *,
    plugin: str = "pgoutput",
    temporary: bool = False,
    snapshot: SnapshotAction = "nothing",
    two_phase: bool = False,
    failover: bool = False,
    timeout_s: float | None = None,
    while_waiting: Callable[[], None] | None = None,
) -> CreatedSlot:
    """Make a logical slot on a replication connection.

    It waits for every transaction that is running; ``while_waiting`` is called about once a second meanwhile, and
    what it raises takes the half-made slot away.
    An exported snapshot lives until the next command on ``pgconn``. Raises ServerConfigError (wal_level, no free
    slot, an option that the server's version does not know), RightsError, SlotExistsError, ConnectError.
    """
    command = CreateLogicalReplicationSlot(name, plugin, temporary, snapshot, two_phase, failover)
    return _created(pgconn, command, timeout_s, while_waiting)


def create_physical_slot(
    pgconn: PGconn, name: str, *, temporary: bool = False, reserve_wal: bool = False
) -> CreatedSlot:
    """Make a physical slot; ``reserve_wal`` keeps WAL from now on, else from the first connection on."""
    return _created(pgconn, CreatePhysicalReplicationSlot(name, temporary, reserve_wal))


def _created(
    pgconn: PGconn,
    command: Command,
    timeout_s: float | None = None,
    while_waiting: Callable[[], None] | None = None,
) -> CreatedSlot:
    text = command.build(pgconn.server_version)
    rows = execute(pgconn, text, timeout_s=timeout_s, while_waiting=while_waiting)
    with reading_answer("CREATE_REPLICATION_SLOT"):
        slot, point, exported, output_plugin = rows[0]
        return CreatedSlot(str(slot), LSN.parse(str(point)), exported, output_plugin)


def drop_slot(pgconn: PGconn, name: str, *, wait: bool = False) -> None:
    """Drop a slot on a replication connection; ``wait`` until it is free. Raises SlotMissingError, SlotInUseError."""
    execute(pgconn, DropReplicationSlot(name, wait).build(pgconn.server_version))


def alter_slot(pgconn: PGconn, name: str, *, failover: bool | None = None, two_phase: bool | None = None) -> None:
    """Change a logical slot that nobody uses (17+; ``two_phase`` 18+). Raises ServerConfigError for older servers."""
    execute(pgconn, AlterReplicationSlot(name, failover, two_phase).build(pgconn.server_version))


def read_slot(pgconn: PGconn, name: str) -> ReadSlot | None:
    """READ_REPLICATION_SLOT of a physical slot (15+); None when there is no such slot."""
    rows = execute(pgconn, ReadReplicationSlot(name).build(pgconn.server_version))
    with reading_answer("READ_REPLICATION_SLOT"):
        slot_type, lsn, timeline = rows[0]
        if slot_type is None:
            return None
        return ReadSlot(slot_type, LSN.parse(lsn) if lsn else None, int(timeline) if timeline else None)


def advance_slot(connection: Connection, name: str, upto_lsn: LSN) -> LSN:
    """Move a slot that nobody uses forward without reading; return where it stands now, at most ``upto_lsn``."""
    with mapped_errors():
        sql = "SELECT end_lsn::text FROM pg_replication_slot_advance(%s, %s)"
        row = connection.execute(sql, [name, str(upto_lsn)]).fetchone()
    assert row is not None
    return LSN.parse(row[0])


def copy_slot(connection: Connection, name: str, new_name: str, *, temporary: bool = False) -> LSN:
    """Make ``new_name`` stand exactly where ``name`` stands; return where.

    Raises ServerConfigError for a physical slot that reserves no WAL.
    """
    state = slot_state(connection, name)
    if state is None:
        raise missing_slot(name)
    kind = "logical" if state.slot_type == "logical" else "physical"
    with mapped_errors():
        sql = f"SELECT lsn::text FROM pg_copy_{kind}_replication_slot(%s, %s, %s)"
        row = connection.execute(sql.encode(), [name, new_name, temporary]).fetchone()
    assert row is not None
    if row[0] is not None:
        return LSN.parse(row[0])
    copied = slot_state(connection, new_name)  # a physical slot's position is not told
    assert copied is not None and copied.restart_lsn is not None
    return copied.restart_lsn


def slot_state(connection: Connection, name: str) -> SlotState | None:
    """The slot's row in pg_replication_slots; None when there is no such slot."""
    found = [state for state in slot_states(connection) if state.slot_name == name]
    return found[0] if found else None


def slot_states(connection: Connection) -> list[SlotState]:
    """All rows of pg_replication_slots, by name."""
    with mapped_errors():
        rows = connection.execute("SELECT to_jsonb(s) FROM pg_replication_slots s ORDER BY slot_name").fetchall()
    known = {field.name for field in fields(SlotState)}
    states = []
    for (row,) in rows:
        values = {name: value for name, value in row.items() if name in known}
        for name, read in _READ.items():
            if values.get(name) is not None:
                values[name] = read(values[name])
        states.append(SlotState(**values))
    return states


def require_slot(connection: Connection, name: str) -> SlotState:
    """The state of a slot that can be streamed from now.

    Raises SlotMissingError, SlotLostError, SlotInUseError or SlotUnfinishedError, with what is known about the reason.
    """
    state = slot_state(connection, name)
    if state is None:
        raise missing_slot(name)
    if state.lost:
        reason = state.invalidation_reason or "WAL that it needs was removed (max_slot_wal_keep_size)"
        raise SlotLostError(
            f"The replication slot {name} is lost: {reason}.",
            hint=f"Drop it and begin again with a new slot and snapshot (of a pipeline: {BEGIN_ANEW}).",
        )
    if state.unfinished:
        raise SlotUnfinishedError(
            f"The replication slot {name} is being made by server process {state.active_pid}.",
            hint="It is ready when the transactions that run have ended; `wal2lake check` names them.",
        )
    if state.active:
        raise SlotInUseError(
            f"The replication slot {name} is in use by server process {state.active_pid}.",
            hint="Stop the other consumer, or choose another slot.",
        )
    return state


def missing_slot(name: str) -> SlotMissingError:
    """The error for a slot that is not there."""
    return SlotMissingError(f"There is no replication slot {name}.", hint=MISSING_SLOT)
