"""Reading a table anew: what is known of it is put aside, and the pipeline finds a table that it has not seen.

The rule: nothing of the lake is deleted. First of all the old table moves to a name beside it; whoever dies after that
is continued by doing it again. Then what the log's folder says of the table goes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from wal2lake.changelog.local import storage_at
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.tables import TableDocuments, known_tables
from wal2lake.errors import ConfigError
from wal2lake.names import qualified
from wal2lake.tables.exclusive import exclusive
from wal2lake.tables.target import Target

if TYPE_CHECKING:
    from wal2lake.config import Config


def resync(config: Config, names: Sequence[str]) -> dict[str, Path | None]:
    """Have the tables ``names`` (schema.name) read anew by the next run; return where their old tables are now.

    None: the lake had no such table. Raises SlotInUseError when the pipeline runs, ConfigError for an
    unknown table; then nothing has moved.
    """
    if "://" in config.lake.path:
        raise ConfigError(
            f"Tables below {config.lake.path} cannot be moved: it is not a local path.",
            hint="Move the table's folder there, and its folder below the log's snapshots/, by hand.",
        )
    storage = ChangeLog.open(config.log.path).storage
    with exclusive(config):
        known = {qualified(*table): table for table in known_tables(storage, config.pipeline.name)}
        for name in names:
            if name not in known:
                have = f"It knows {', '.join(known)}." if known else "It has read none yet."
                raise ConfigError(f"The pipeline {config.pipeline.name!r} knows no table {name}.", hint=have)
        return {name: _move_aside(config, *known[name]) for name in dict.fromkeys(names)}


def _move_aside(config: Config, namespace: str, name: str) -> Path | None:
    """Nothing of the table's folder is read: it may be here because of a file there that is damaged."""
    lake, aside = Path(Target.of(config, namespace, name).sink().uri), None
    if lake.exists():  # no table's folder has a "~r" in its name: a tilde begins two hexadecimal digits there
        aside = lake.with_name(f"{lake.name}~replaced-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
        lake.rename(aside)
    TableDocuments(storage_at(config.log.path), config.pipeline.name, namespace, name).remove()
    return aside
