"""What the protocol's commands have in common: their options, how they refuse one, wait, stop and show a result.

An option that would have no effect is refused with the reason, never passed over.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from wal2lake.cli.output import console, print_json, say
from wal2lake.decoding.loader import load_plugin
from wal2lake.decoding.plugin import OutputPlugin
from wal2lake.errors import ConfigError, SlotExistsError, Wal2LakeError
from wal2lake.lsn import LSN
from wal2lake.postgres.logical import PluginOptions

PANEL = "The replication protocol by itself"
RECONNECT_S = 5.0

Slot = Annotated[str, typer.Argument(help="The slot's name.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, on one line.")]
StatusInterval = Annotated[
    float, typer.Option("--status-interval", "-s", min=0, help="Seconds between status messages; 0: only when asked.")
]
NoLoop = Annotated[bool, typer.Option("--no-loop", "-n", help="Do not connect again when the connection is lost.")]
IfNotExists = Annotated[bool, typer.Option("--if-not-exists", help="With --create-slot: a slot that is there will do.")]
UntilLsn = Annotated[
    LSN | None,
    typer.Option("--until-lsn", "--endpos", "-E", parser=LSN.parse, metavar="LSN", help="End here, not at Ctrl-C."),
]


def given(context: typer.Context, names: Sequence[str]) -> list[str]:
    """The flags that stand on the command line for the parameters ``names``."""
    chosen = [parameter for parameter in context.command.params if parameter.name in names]
    return [
        next((flag for flag in parameter.opts if flag.startswith("--")), str(parameter.name).upper())
        for parameter in chosen
        if (source := context.get_parameter_source(str(parameter.name))) is not None and source.name == "COMMANDLINE"
    ]


def refuse(context: typer.Context, names: Sequence[str], reason: str, hint: str | None = None) -> None:
    """Raise ConfigError when one of the parameters ``names`` was given, which has no effect for ``reason``."""
    for flag in given(context, names):
        raise ConfigError(f"{flag} {reason}", hint=hint)


class SayOnce:
    """Say once why nothing happens; called about once a second while it does not."""

    def __init__(self, why: str) -> None:
        self._why = why
        self._said = False

    def __call__(self) -> None:
        if not self._said:
            self._said = True
            say(self._why)


def say_waiting(error: Wal2LakeError, seconds: float) -> None:
    """Why a connection was lost, and when it is tried again."""
    say(f"{error} Trying again in {seconds:g} s.")


def waiting_for_transactions(slot: str) -> SayOnce:
    """What making a logical slot waits for."""
    return SayOnce(f"Slot {slot} waits for the transactions that run now to end …")


@contextlib.contextmanager
def making_slot(slot: str, *, if_not_exists: bool) -> Iterator[None]:
    """Say that the block made ``slot``; with ``if_not_exists`` also leave one alone that is there."""
    try:
        yield
        say(f"Made the slot {slot}.")
    except SlotExistsError:
        if not if_not_exists:
            raise
        say(f"The slot {slot} is there already.")


def pairs(options: Sequence[str] | None) -> PluginOptions:
    """NAME=VALUE or NAME, as -o and -T take them."""
    parts = [option.partition("=") for option in options or ()]
    if any(not name for name, _, _ in parts):
        raise ConfigError("An option is NAME=VALUE or NAME.")
    return tuple((name, value if equals else None) for name, equals, value in parts)


def show(values: Mapping[str, Any], as_json: bool) -> None:
    """A result: an object, or a line per name."""
    if as_json:
        print_json(values)
        return
    for name, value in values.items():
        console.out(f"{name:<18}{'' if value is None else value}")


def load_local_plugin(name: str) -> OutputPlugin:
    """load_plugin, which for module:Class also looks into the present folder, as python -m does."""
    if ":" in name and "" not in sys.path:
        sys.path.insert(0, "")
    return load_plugin(name)
