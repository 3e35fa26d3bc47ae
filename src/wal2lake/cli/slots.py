"""`wal2lake slots`: the cluster's replication slots. Each command prints what it found, and says what it did."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table

from wal2lake.cli.options import with_dsn
from wal2lake.cli.output import console, print_json, say
from wal2lake.cli.shared import Json, Slot, refuse, show, waiting_for_transactions
from wal2lake.errors import ConfigError
from wal2lake.login import Dsn
from wal2lake.lsn import LSN
from wal2lake.monitor.view import size
from wal2lake.postgres import slots
from wal2lake.postgres.catalog import identify
from wal2lake.postgres.connection import connect, replication_connection

app = typer.Typer(help="Replication slots: list, create, read, alter, drop, advance, copy.", no_args_is_help=True)

_NAME = "wal2lake slots"


@app.command("list", epilog="Example: wal2lake slots list --json")
@with_dsn
def list_(dsn: Dsn, as_json: Json = False) -> None:
    """All slots of the cluster, as pg_replication_slots has them, with the bytes of WAL that each keeps."""
    with closing(connect(dsn, application_name=_NAME)) as connection:
        states = slots.slot_states(connection)
        wal_lsn = identify(connection).wal_lsn
    found = listed(states, wal_lsn)
    if as_json:
        print_json(found)
    elif console.is_terminal:
        console.print(table(found))
    else:
        for slot in found:
            said = (f"{name}={value}" for name, value in slot.items() if value is not None and value is not False)
            console.out("  ".join(said))


def listed(states: list[slots.SlotState], wal_lsn: LSN) -> list[dict[str, Any]]:
    """Each slot with the WAL that it keeps, of a server whose WAL ends at ``wal_lsn``."""
    found = []
    for state in states:
        retained = None if state.restart_lsn is None else max(0, wal_lsn - state.restart_lsn)
        found.append({**asdict(state), "retained_wal": retained})
    return found


def table(found: list[dict[str, Any]]) -> Table:
    """What one looks for first; --json has all."""
    shown = Table("slot", "type", "plugin", "database", "in use by", "restart", "confirmed", "keeps", "WAL", box=None)
    for slot in found:
        kept = None if slot["retained_wal"] is None else size(slot["retained_wal"])
        reason = slot["invalidation_reason"] or slot["wal_status"]
        names = ("slot_name", "slot_type", "plugin", "database", "active_pid", "restart_lsn", "confirmed_flush_lsn")
        cells = [*(slot[name] for name in names), kept, reason]
        shown.add_row(*("" if cell is None else str(cell) for cell in cells))
    return shown


@app.command(epilog="Example: wal2lake slots create walled --physical --reserve-wal")
@with_dsn
def create(
    context: typer.Context,
    slot: Slot,
    dsn: Dsn,
    plugin: Annotated[str, typer.Option("--plugin", "-P", help="The output plugin of a logical slot.")] = "pgoutput",
    physical: Annotated[bool, typer.Option("--physical", help="A physical slot.")] = False,
    reserve_wal: Annotated[
        bool, typer.Option("--reserve-wal", help="With --physical: keep WAL from now on, not from the first use on.")
    ] = False,
    two_phase: Annotated[
        bool, typer.Option("--two-phase", help="Decode prepared transactions at their PREPARE (15 and later).")
    ] = False,
    failover: Annotated[
        bool, typer.Option("--failover", help="Standbys keep the slot in step (17 and later).")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make a slot; a logical one waits for every running transaction."""
    if physical:
        refuse(context, ("plugin", "two_phase", "failover"), "is for logical slots, and --physical makes none.")
    else:
        refuse(context, ("reserve_wal",), "is for physical slots.", "Give --physical as well.")
    with replication_connection(dsn, application_name=_NAME) as pgconn:
        if physical:
            created = slots.create_physical_slot(pgconn, slot, reserve_wal=reserve_wal)
        else:
            waiting = waiting_for_transactions(slot)
            created = slots.create_slot(
                pgconn, slot, plugin=plugin, two_phase=two_phase, failover=failover, while_waiting=waiting
            )
    show(asdict(created), as_json)


@app.command(epilog="Example: wal2lake slots read walled")
@with_dsn
def read(slot: Slot, dsn: Dsn, as_json: Json = False) -> None:
    """Where a physical slot keeps WAL from: READ_REPLICATION_SLOT (15 and later)."""
    with replication_connection(dsn, application_name=_NAME) as pgconn:
        found = slots.read_slot(pgconn, slot)
    if found is None:
        raise slots.missing_slot(slot)
    show(asdict(found), as_json)


@app.command(epilog="Example: wal2lake slots alter mine --failover")
@with_dsn
def alter(
    slot: Slot,
    dsn: Dsn,
    failover: Annotated[
        bool | None, typer.Option("--failover/--no-failover", help="Standbys keep the slot in step (17 and later).")
    ] = None,
    two_phase: Annotated[
        bool | None,
        typer.Option(
            "--two-phase/--no-two-phase", help="Decode prepared transactions at their PREPARE (18 and later)."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Change a logical slot that nobody uses."""
    changed = {name: value for name, value in (("failover", failover), ("two_phase", two_phase)) if value is not None}
    if not changed:
        raise ConfigError("There is nothing to alter.", hint="Give --failover or --two-phase, or their --no- forms.")
    with replication_connection(dsn, application_name=_NAME) as pgconn:
        slots.alter_slot(pgconn, slot, failover=failover, two_phase=two_phase)
    say(f"Slot {slot} now has " + ", ".join(f"{name} = {str(value).lower()}" for name, value in changed.items()) + ".")
    if as_json:
        print_json({"slot_name": slot, **changed})


@app.command(epilog="Example: wal2lake slots drop mine --wait")
@with_dsn
def drop(
    slot: Slot,
    dsn: Dsn,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until nobody uses it, instead of failing.")] = False,
    as_json: Json = False,
) -> None:
    """Drop a slot; the server may forget the WAL that it kept."""
    with replication_connection(dsn, application_name=_NAME) as pgconn:
        slots.drop_slot(pgconn, slot, wait=wait)
    say(f"Dropped the slot {slot}.")
    if as_json:
        print_json({"slot_name": slot})


@app.command(epilog="Example: wal2lake slots advance mine 16/B374D848")
@with_dsn
def advance(
    slot: Slot,
    upto_lsn: Annotated[LSN, typer.Argument(parser=LSN.parse, metavar="LSN", help="Where to.")],
    dsn: Dsn,
    as_json: Json = False,
) -> None:
    """Move a slot forward without reading: what lies before is lost to it."""
    with closing(connect(dsn, application_name=_NAME)) as connection:
        end_lsn = slots.advance_slot(connection, slot, upto_lsn)
    say(f"Slot {slot} stands at {end_lsn}.")
    show({"slot_name": slot, "end_lsn": end_lsn}, as_json)


@app.command(epilog="Example: wal2lake slots copy mine mine_too")
@with_dsn
def copy(
    slot: Slot,
    new_slot: Annotated[str, typer.Argument(help="The new slot's name.")],
    dsn: Dsn,
    as_json: Json = False,
) -> None:
    """Make a new slot that stands exactly where SLOT stands."""
    with closing(connect(dsn, application_name=_NAME)) as connection:
        lsn = slots.copy_slot(connection, slot, new_slot)
    say(f"Made the slot {new_slot}, a copy of {slot}.")
    show({"slot_name": new_slot, "lsn": lsn}, as_json)
