"""Asking for something to be done with tables: checked before word of it is left for the pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.requests import Requests, Wish
from wal2lake.changelog.storage import Storage
from wal2lake.changelog.tables import known_tables
from wal2lake.errors import ConfigError
from wal2lake.names import qualified
from wal2lake.tables.table_folder import TableFolder
from wal2lake.tables.target import Target

if TYPE_CHECKING:
    from wal2lake.config import Config


def ask(config: Config, names: Sequence[str], wish: Wish) -> list[str]:
    """Leave word that ``wish`` is wanted of the tables ``names`` (schema.name; none: of all that are known).

    Returns whose. Raises ConfigError for a table that is not known, and for a history that is to be read anew, and
    LogCorruptError for a damaged one that is not; then nothing is asked for.
    """
    storage = ChangeLog.open(config.log.path).storage
    chosen = chosen_tables(config, storage, names)
    if wish == "resync" and config.lake.mode == "append":
        for table in chosen:
            _refuse_history(config, *table)
    for table in chosen if wish != "resync" else ():
        TableFolder(
            storage, config.pipeline.name, *table
        ).read()  # of one that is damaged nothing is known to go on with
    for table in chosen:
        Requests(storage, config.pipeline.name).put(*table, wish)
    return [qualified(*table) for table in chosen]


def chosen_tables(config: Config, storage: Storage, names: Sequence[str]) -> list[tuple[str, str]]:
    """The tables (namespace, name) that ``names`` mean, once each; all that the pipeline knows if there are none.

    Raises ConfigError for one that it does not know.
    """
    known = {qualified(*table): table for table in known_tables(storage, config.pipeline.name)}
    for name in names:
        if name not in known:
            hint = f"It knows {', '.join(known)}." if known else "It has read none yet."
            raise ConfigError(f"The pipeline {config.pipeline.name!r} knows no table {name}.", hint=hint)
    return [known[name] for name in dict.fromkeys(names or known)]


def _refuse_history(config: Config, namespace: str, name: str) -> None:
    sink = Target.of(config, namespace, name).sink()
    if sink.state() is not None:
        raise ConfigError(
            f"{qualified(namespace, name)} is a history in append mode, of which nothing is replaced.",
            hint=f"Move {sink.uri} away, to keep or to delete, and ask again: the table is read into a new one.",
        )
