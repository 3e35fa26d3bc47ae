"""`wal2lake receivewal`: pg_receivewal's job. Names of segments go to standard output, sentences to standard error."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wal2lake.cli.options import with_dsn
from wal2lake.cli.output import say
from wal2lake.cli.shared import (
    RECONNECT_S,
    IfNotExists,
    NoLoop,
    StatusInterval,
    UntilLsn,
    making_slot,
    refuse,
    say_waiting,
)
from wal2lake.errors import ConfigError
from wal2lake.login import Dsn
from wal2lake.postgres.connection import replication_connection
from wal2lake.postgres.physical.receivelog import ReceiveWalOptions, receive_wal
from wal2lake.postgres.slots import create_physical_slot, drop_slot
from wal2lake.signals import stop_on_signals

EXAMPLE = "Example: wal2lake receivewal archive --slot walled"

_OF_STREAM = ("folder", "until_lsn", "synchronous", "status_interval", "no_loop")


@with_dsn
def receivewal(
    context: typer.Context,
    dsn: Dsn,
    folder: Annotated[
        Path | None,
        typer.Argument(help="Where the segments go, made where it is missing; goes on after those that are there."),
    ] = None,
    slot: Annotated[
        str | None, typer.Option("--slot", "-S", help="A physical slot that keeps the WAL we need.")
    ] = None,
    create: Annotated[bool, typer.Option("--create-slot", help="Make the slot, which keeps WAL from then on.")] = False,
    if_not_exists: IfNotExists = False,
    drop: Annotated[bool, typer.Option("--drop-slot", help="Drop the slot instead.")] = False,
    until_lsn: UntilLsn = None,
    synchronous: Annotated[bool, typer.Option("--synchronous", help="Sync and acknowledge at once.")] = False,
    status_interval: StatusInterval = 10,
    no_loop: NoLoop = False,
) -> None:
    """Receive WAL as segment files, across promotions: pg_receivewal's job.

    --create-slot and --drop-slot do only that, as there.
    """
    if create or drop:
        _create_or_drop(context, dsn, slot, create, drop, if_not_exists)
        return
    refuse(context, ("if_not_exists",), "has no effect without --create-slot.")
    if folder is None:
        raise ConfigError("receivewal needs a folder for the segments.", hint="wal2lake receivewal FOLDER")
    options = ReceiveWalOptions(slot, until_lsn, synchronous, status_interval, None if no_loop else RECONNECT_S)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with stop_on_signals() as stop:
        end = receive_wal(
            dsn,
            folder,
            options,
            stop,
            on_segment=typer.echo,
            on_timeline=lambda at: say(f"The server was promoted: timeline {at.timeline} begins at {at.lsn}."),
            on_wait=say_waiting,
        )
    say("No WAL has come." if end is None else f"Durable up to {end.lsn} on timeline {end.timeline}.")


def _create_or_drop(
    context: typer.Context, dsn: Dsn, slot: str | None, create: bool, drop: bool, if_not_exists: bool
) -> None:
    flag = "--create-slot" if create else "--drop-slot"
    if create and drop:
        raise ConfigError("--create-slot and --drop-slot exclude each other.", hint="Run one, then the other.")
    if slot is None:
        raise ConfigError(f"{flag} needs the slot's name.", hint="Name it with --slot.")
    refuse(context, _OF_STREAM, f"has no effect with {flag}, which streams nothing.")
    if drop:
        refuse(context, ("if_not_exists",), "has no effect without --create-slot.")
    with replication_connection(dsn, application_name="wal2lake receivewal", physical=True) as pgconn:
        if create:
            with making_slot(slot, if_not_exists=if_not_exists):
                create_physical_slot(pgconn, slot, reserve_wal=True)
        else:
            drop_slot(pgconn, slot)
            say(f"Dropped the slot {slot}.")
