"""Asking for something to be done with tables: checked before word of it is left for the pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.requests import Requests, Wish
from wal2lake.changelog.tables import known_tables
from wal2lake.errors import ConfigError
from wal2lake.names import qualified
from wal2lake.tables.target import Target

if TYPE_CHECKING:
    from wal2lake.config import Config


def ask(config: Config, names: Sequence[str], wish: Wish) -> list[str]:
    """Leave word that ``wish`` is wanted of the tables ``names`` (schema.name; none: of all that are known).

    Returns whose. Raises ConfigError for a table that is not known, and for a history that is to be read anew; then
    nothing is asked for.
    """
    storage = ChangeLog.open(config.log.path).storage
    known = {qualified(*table): table for table in known_tables(storage, config.pipeline.name)}
    chosen = require_known(config, names, known)
    if wish == "resync" and config.lake.mode == "append":
        for name in chosen:
            _refuse_history(config, name, known[name])
    for name in chosen:
        Requests(storage, config.pipeline.name).put(*known[name], wish)
    return chosen


def require_known(config: Config, names: Sequence[str], known: Iterable[str]) -> list[str]:
    """``names`` without doubles, or all that are ``known`` if none are named. Raises ConfigError for any other."""
    have = list(known)
    for name in names:
        if name not in have:
            hint = f"It knows {', '.join(have)}." if have else "It has read none yet."
            raise ConfigError(f"The pipeline {config.pipeline.name!r} knows no table {name}.", hint=hint)
    return list(dict.fromkeys(names)) or have


def _refuse_history(config: Config, name: str, table: tuple[str, str]) -> None:
    sink = Target.of(config, *table).sink()
    if sink.state() is not None:
        raise ConfigError(
            f"{name} is a history in append mode, of which nothing is replaced.",
            hint=f"Move {sink.uri} away, to keep or to delete, and ask again: the table is read into a new one.",
        )
