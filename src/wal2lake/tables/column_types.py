"""By which rules a table's columns land: those of now for a table that is read for the first time, or because somebody
asked for it; else those that it had.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from wal2lake.changelog.local import storage_at
from wal2lake.columnar.types import EDITION, NO_TYPMOD, TypeRules
from wal2lake.names import qualified
from wal2lake.postgres.catalog import published_tables
from wal2lake.tables.catalog_session import catalog_session
from wal2lake.tables.table_folder import TableFolder

if TYPE_CHECKING:
    from wal2lake.config import Config
    from wal2lake.postgres.catalog import CatalogColumn, PublishedTable


def newest_types(columns: Sequence[CatalogColumn], unbounded_numeric: str) -> TypeRules:
    """What these columns become by the newest edition of the type table; the policy as in PipelineConfig."""
    return TypeRules(
        EDITION,
        tuple((c.name, c.dimensions) for c in columns if c.dimensions > 1),
        numeric=unbounded_numeric,
        domains=tuple((c.name, c.type_oid, c.base_typmod) for c in columns if c.base_typmod != NO_TYPMOD),
    )


def would_gain(config: Config) -> list[str]:
    """The columns (schema.table.column) of tables in the lake that ``wal2lake resync`` would give another type.

    Of a history (append mode) none, for it is never read anew. Raises what the catalog session raises.
    """
    if config.lake.mode != "mirror":
        return []
    with catalog_session(config.source.dsn) as connection:
        published = published_tables(connection, config.source.publication)
    return [name for table in published for name in _of_table(config, table)]


def _of_table(config: Config, table: PublishedTable) -> Iterable[str]:
    state = TableFolder(storage_at(config.log.path), config.pipeline.name, table.namespace, table.name).read()
    if state.landed is None or state.types is None:
        return
    newest = newest_types(table.columns, config.pipeline.unbounded_numeric)
    for column in table.columns:
        described = column.name, column.type_oid, column.typmod, column.base_oid
        name = qualified(table.namespace, table.name, column.name)
        held_as_text = name in config.pipeline.text_columns or column.name in state.types.text
        if not held_as_text and state.types.column(*described).arrow != newest.column(*described).arrow:
            yield name
