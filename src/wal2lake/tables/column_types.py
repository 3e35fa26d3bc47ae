"""By which rules a table's columns land: those of now for a table that is read for the first time, or because somebody
asked for it; else those that it had.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from wal2lake.changelog.local import storage_at
from wal2lake.columnar.type_table import EDITION
from wal2lake.columnar.types import NO_TYPMOD, TypeRules
from wal2lake.errors import RESYNC, SchemaChangeError
from wal2lake.names import qualified
from wal2lake.postgres.catalog import published_tables
from wal2lake.tables.catalog_session import catalog_session
from wal2lake.tables.table_folder import TableFolder
from wal2lake.user_types import FIRST_NORMAL_OID

if TYPE_CHECKING:
    from wal2lake.config import Config
    from wal2lake.postgres.catalog import CatalogColumn, PublishedTable


def newest_types(columns: Sequence[CatalogColumn], unbounded_numeric: str, texts: Collection[str] = ()) -> TypeRules:
    """What these columns become by the newest edition of the type table; the policy as in PipelineConfig. What the
    types of ``texts`` are made of is of no account, for these columns land as text."""
    own = (kind for c in columns if c.name not in texts for kind in c.types if kind.oid >= FIRST_NORMAL_OID)
    made = {kind.oid: kind for kind in own}
    return TypeRules(
        EDITION,
        tuple((c.name, c.dimensions) for c in columns if c.dimensions > 1),
        numeric=unbounded_numeric,
        domains=tuple((c.name, c.type_oid, c.base_typmod) for c in columns if c.base_typmod != NO_TYPMOD),
        user_types=tuple(made[oid] for oid in sorted(made)),
        money_scale=next((c.money_scale for c in columns), 2),
    )


def with_user_types(noted: TypeRules, newest: TypeRules) -> TypeRules:
    """``noted``, with the attributes that its composites got since, which a struct of the lake can be given.

    Raises SchemaChangeError for a type that is another one by now: what a column holds by it must not look as before.
    """
    now = {kind.oid: kind for kind in newest.user_types}
    for before in noted.user_types:
        kind = now.get(before.oid, before)
        if not kind.extends(before):
            message = f"The type {before.name} is made of other parts than when the table was read."
            raise SchemaChangeError(message, hint=RESYNC)
    return replace(noted, user_types=tuple(now.get(before.oid, before) for before in noted.user_types))


def would_gain(config: Config) -> list[str]:
    """The columns (schema.table.column) of tables in the lake that ``wal2lake resync`` would give another type.

    Of a history (append mode) none, for it is never read anew. Raises what the catalog session raises.
    """
    if config.lake.mode != "mirror":
        return []
    with catalog_session(config.source.login) as connection:
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
