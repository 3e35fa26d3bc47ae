"""`wal2lake ui`, and what `run --ui` needs of it: the page's options, and what is said when it is there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from wal2lake.cli.interrupts import answer
from wal2lake.cli.options import with_config
from wal2lake.cli.output import say
from wal2lake.config import Config
from wal2lake.errors import ConfigError
from wal2lake.signals import stop_on_signals

if TYPE_CHECKING:
    from wal2lake.monitor.places import Places
    from wal2lake.ui.server import UiOptions

_PANEL = "The page"
LOCAL, PORT = "127.0.0.1", 8432

_HOST = "Where it listens; elsewhere than on this machine alone a token is needed."
_PORT_HELP = "Its port; 0 for any that is free."
_ACTIONS = "Let it try tables again, read them anew, leave them out, and verify; then a token is needed."
_NAMES = "Another name that leads to it; may be repeated."
Host = Annotated[str, typer.Option("--host", help=_HOST)]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help=_PORT_HELP)]
Actions = Annotated[bool, typer.Option("--allow-actions", help=_ACTIONS)]
Names = Annotated[list[str] | None, typer.Option("--allow-host", help=_NAMES)]
# of `run`
UiHost = Annotated[str, typer.Option("--ui-host", help=_HOST, rich_help_panel=_PANEL)]
UiPort = Annotated[int, typer.Option("--ui-port", min=0, max=65535, help=_PORT_HELP, rich_help_panel=_PANEL)]
UiActions = Annotated[bool, typer.Option("--ui-allow-actions", help=_ACTIONS, rich_help_panel=_PANEL)]
UiNames = Annotated[list[str] | None, typer.Option("--ui-allow-host", help=_NAMES, rich_help_panel=_PANEL)]
WithUi = Annotated[
    bool, typer.Option("--ui", help="Show it in the browser as well, as `wal2lake ui` does.", rich_help_panel=_PANEL)
]


@with_config
def ui(
    config: Config,
    host: Host = LOCAL,
    port: Port = PORT,
    allow_actions: Actions = False,
    allow_host: Names = None,
) -> None:
    """A page for the browser, on this machine: slot, lag, tables, snapshot, verify and change log, kept up to date.

    It only looks, unless --allow-actions lets it act. Where it may act, or is reached from other machines, the address
    that is printed has a token; WAL2LAKE_UI_TOKEN sets one of your own, which is asked for then in any case.

    Example: wal2lake ui --port 8432
    """
    options = ui_options(host, port, allow_actions, allow_host)
    with answer("Ending: the page is closed."), stop_on_signals() as stop, page_of(config, options):
        say("Ctrl-C ends it.")
        stop.wait()


def ui_options(host: str, port: int, actions: bool, names: list[str] | None) -> UiOptions:
    """What the command line says of the page."""
    from wal2lake.ui.server import UiOptions  # noqa: PLC0415 - the core installs without a server of pages

    return UiOptions(host, port, tuple(names or ()), actions)


@contextmanager
def page_of(
    config: Config,
    options: UiOptions,
    pids: Callable[[], Mapping[str, int]] = dict,
    read_places: Callable[[], Places] | None = None,
) -> Iterator[None]:
    """The page is there in the block, and its address was said. ``pids``, ``read_places`` as for Watcher."""
    from wal2lake.ui.server import TOKEN_VARIABLE, Server, needs_token  # noqa: PLC0415

    if needs_token(options) and not sys.stderr.isatty():
        raise ConfigError(
            "The page needs a token, and there is no terminal to print one to.",
            hint=f"Set {TOKEN_VARIABLE} to one of your own, as `openssl rand -hex 16` makes it.",
        )
    with Server(config, options, pids, read_places) as page:
        does = "may act" if options.actions else "only looks"
        say(f"The page {does}: {page.url_with_token}")
        yield
