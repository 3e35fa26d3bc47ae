"""How the tables stand, by their documents alone, and which the lake has: whether the pipeline runs or not."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wal2lake import html
from wal2lake.changelog.log import ChangeLog
from wal2lake.errors import LogCorruptError
from wal2lake.lsn import LSN
from wal2lake.names import qualified
from wal2lake.tables.asking import chosen_tables
from wal2lake.tables.statements import LakeTable
from wal2lake.tables.table_folder import TableFolder
from wal2lake.tables.target import Target

if TYPE_CHECKING:
    from wal2lake.config import Config
    from wal2lake.tables.state import TableState


@dataclass(frozen=True, slots=True)
class ListedTable:
    """``state`` in the document's words, or skipped, or damaged, which the document is itself.

    ``since`` (ISO 8601, UTC) and ``reason`` why it is left out, or was and is tried again, or was last read anew, else
    ''; ``needs_lsn``: from where the log keeps its changes for this table alone; ``schema_versions``: how many of its
    schemas the lake table has followed.
    """

    table: str
    state: str
    since: str
    needs_lsn: LSN | None
    reason: str
    schema_versions: int = 0


class ListedTables(list[ListedTable]):
    """A list that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        """For notebooks."""
        rows = [(row.table, row.state, row.since, row.needs_lsn, row.reason) for row in self]
        return html.table(("table", "state", "since", "needs log from", "why"), rows)


def list_tables(config: Config, names: Sequence[str] = ()) -> ListedTables:
    """The tables that the pipeline knows, or ``names`` of them. Raises ConfigError for one that it does not know."""
    storage, pipeline = ChangeLog.open(config.log.path).storage, config.pipeline.name
    chosen = chosen_tables(config, storage, names)
    return ListedTables(_looked_at(qualified(*table), TableFolder(storage, pipeline, *table)) for table in chosen)


def lake_tables(config: Config, names: Sequence[str] = ()) -> Iterator[LakeTable]:
    """Those of them that have a table in the lake. Raises as ``list_tables``, and SinkError."""
    storage = ChangeLog.open(config.log.path).storage
    for namespace, name in chosen_tables(config, storage, names):
        sink = Target.of(config, namespace, name).sink()
        if sink.state() is not None:
            yield LakeTable(namespace, name, sink.uri)


def _looked_at(name: str, folder: TableFolder) -> ListedTable:
    """One that is damaged hides none of the others."""
    try:
        return _listed(name, folder.read())
    except LogCorruptError as error:
        return ListedTable(name, "damaged", "", None, str(error))


def _listed(name: str, state: TableState) -> ListedTable:
    stage: str = "skipped" if state.quarantine and state.quarantine.skipped else state.stage
    why = state.quarantine or state.tried or state.anew
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(why.since)) if why else ""
    said = "" if why is state.quarantine else "Tried again: " if why is state.tried else "Read anew: "
    reason = f"{said}{why.reason}" if why else ""
    return ListedTable(name, stage, since, state.needs_lsn, reason, len(state.followed.digests))
