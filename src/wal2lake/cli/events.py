"""`wal2lake events`: what happened, as it happened; whoever tells it may be running or not."""

from __future__ import annotations

import re
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from wal2lake.cli.options import with_config
from wal2lake.cli.output import console, print_json, say
from wal2lake.config import Config
from wal2lake.errors import ConfigError
from wal2lake.signals import stop_on_signals

if TYPE_CHECKING:
    from wal2lake.changelog.events import Event

_POLL_S = 0.5
_AGE = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@with_config
def events(
    config: Config,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="How many of the newest to begin with.")] = 50,
    batches: Annotated[
        bool, typer.Option("--batches", help="Each batch as well; a busy stream has two a second.")
    ] = False,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", "-k", help="Of this kind alone, as quarantined; may be repeated.")
    ] = None,
    table: Annotated[str | None, typer.Option("--table", "-t", help="About this table alone, as schema.table.")] = None,
    since: Annotated[str | None, typer.Option("--since", help="No older than this: 90s, 15m, 6h, 2d.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object a line.")] = False,
) -> None:
    """What happened, oldest first: starts, restarts, lost connections, schema changes, quarantines, tables read anew,
    promotions, batches. It is kept across restarts, some thousands of each source.

    Example: wal2lake events --follow --batches
    """
    from wal2lake.changelog.events import KINDS, EventReader, read_events  # noqa: PLC0415 - a signal may come while it is

    kinds = set(kind or KINDS) - (set() if batches or kind else {"batch"})
    if unknown := sorted(kinds - set(KINDS)):
        raise ConfigError(f"There is no kind of event {unknown[0]!r}.", hint=f"There are {', '.join(KINDS)}.")
    _require_log(config.log.path)
    place, pipeline = config.log.path, config.pipeline.name
    oldest = None if since is None else time.time() - _seconds(since)
    reader = EventReader(place, limit=0, pipeline=pipeline)
    reader.news()  # what comes from here on is news, and what was before is read now
    found = read_events(place, limit=limit, pipeline=pipeline, kinds=kinds, table=table, since=oldest)
    _show(found, as_json)
    if not found and not follow and limit:
        say("Nothing of that has happened yet.")
    seen = {event.id for event in found}
    if follow:
        with stop_on_signals() as stop:
            while not stop.wait(_POLL_S):
                news = [event for event in reader.news() if event.kind in kinds and table in (None, event.table)]
                _show([event for event in news if event.id not in seen], as_json)


def _show(found: list[Event], as_json: bool) -> None:
    for event in found:
        if as_json:
            print_json(event.to_json())
        else:
            console.out(event.line(), highlight=False)
    sys.stdout.flush()


def _require_log(path: str) -> None:
    """Raise ConfigError where nobody ever told of anything, which is most likely another folder."""
    from wal2lake.changelog.local import storage_at  # noqa: PLC0415
    from wal2lake.changelog.places import EVENTS, IDENTITY  # noqa: PLC0415

    storage = storage_at(path)
    if not storage.exists(IDENTITY) and not storage.folders(EVENTS):
        hint = "`wal2lake capture` (or `wal2lake run`) makes it; check log.path."
        raise ConfigError(f"There is no change log at {storage.where}.", hint=hint)


def _seconds(age: str) -> float:
    found = _AGE.fullmatch(age)
    if found is None:
        raise ConfigError(f"--since {age} is no age.", hint="Write 90s, 15m, 6h or 2d.")
    return float(found[1]) * _SECONDS[found[2]]
