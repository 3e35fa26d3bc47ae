"""A relation as a plugin sees it: RelationData, made from one Relation message and what is known of types.

The object stays the same until the server announces the relation anew with another shape, so what a plugin derives from
one may be kept in ``output_plugin_private`` and is never stale.

Source: src/include/utils/rel.h; src/include/access/tupdesc.h; proto.c, logicalrep_write_rel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wal2lake.decoding.sql import quote_identifier
from wal2lake.decoding.types import TypeNames
from wal2lake.names import qualified
from wal2lake.pgoutput.messages import COLUMN_IS_KEY
from wal2lake.pgoutput.messages import Relation as RelationMessage


@dataclass(frozen=True, slots=True)
class Attribute:
    """A published column. ``type_name`` is format_type_be's (without length or precision), ``type_name_with_typmod``
    format_type_with_typemod's; ``is_key``: part of the replica identity. Nothing tells whether it is NOT NULL, has a
    default or is generated: pgoutput does not carry that."""

    name: str
    type_oid: int
    typmod: int
    is_key: bool
    type_name: str
    type_name_with_typmod: str


class Relation:
    """``relation_id`` is pg_class.oid; ``replica_identity`` pg_class.relreplident ('d', 'n', 'f', 'i'); ``attributes``
    in the order of the rows' values; ``key``: the places among them that are part of the replica identity. ``message``
    is the announcement itself; ``version`` counts the shapes of one session. ``output_plugin_private`` is the
    plugin's, for what it derives from this shape.
    """

    __slots__ = (
        "attributes",
        "key",
        "message",
        "name",
        "namespace",
        "output_plugin_private",
        "relation_id",
        "replica_identity",
        "version",
    )

    def __init__(self, message: RelationMessage, types: TypeNames, version: int = 0) -> None:
        self.message = message
        self.version = version
        self.relation_id = message.relation_id
        self.namespace = message.namespace or "pg_catalog"
        self.name = message.name
        self.replica_identity = message.replica_identity
        self.attributes = tuple(
            Attribute(
                column.name,
                column.type_oid,
                column.typmod,
                bool(column.flags & COLUMN_IS_KEY),
                types.format_type(column.type_oid),
                types.format_type(column.type_oid, column.typmod),
            )
            for column in message.columns
        )
        self.key = tuple(place for place, attribute in enumerate(self.attributes) if attribute.is_key)
        self.output_plugin_private: Any = None

    @property
    def quoted_name(self) -> str:
        """quote_qualified_identifier's: ``shop."Orders"``."""
        return f"{quote_identifier(self.namespace)}.{quote_identifier(self.name)}"

    def __str__(self) -> str:
        return qualified(self.namespace, self.name)
