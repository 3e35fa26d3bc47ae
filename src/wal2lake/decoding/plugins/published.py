"""Which tables, actions and columns publications hold, as the catalog says now.

Several publications add up; their column lists of a table must agree, as pgoutput demands. A row filter is an
expression that only the server can evaluate, so a table that has one is refused.

Source: src/backend/replication/pgoutput/pgoutput.c, get_rel_sync_entry; pg_publication, pg_publication_rel,
pg_publication_namespace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from wal2lake.decoding.changes import ChangeType
from wal2lake.decoding.context import LogicalDecodingContext
from wal2lake.decoding.relation import Relation
from wal2lake.errors import ConfigError, PluginError
from wal2lake.names import qualified
from wal2lake.pgoutput.messages import Relation as RelationMessage

_ACTIONS: Final = {
    ChangeType.INSERT: "pubinsert",
    ChangeType.UPDATE: "pubupdate",
    ChangeType.DELETE: "pubdelete",
    ChangeType.TRUNCATE: "pubtruncate",
}


class Published:
    """The publications of ``names``. Raises ConfigError for one that there is not."""

    def __init__(self, ctx: LogicalDecodingContext, names: Sequence[str]) -> None:
        self._catalog = ctx.catalog
        self._publications: list[dict[str, Any]] = []
        for name in names:
            found = self._catalog.scan("pg_publication", {"pubname": name})
            if not found:
                raise ConfigError(f"There is no publication {name}.", hint="Make it, or name another.")
            self._publications += found
        self._of: dict[int, tuple[frozenset[ChangeType], frozenset[int] | None]] = {}
        self._places: dict[RelationMessage, tuple[int, ...]] = {}

    def has(self, relation: Relation, action: ChangeType) -> bool:
        """Whether changes of this kind are published of the relation."""
        return action in self._entry(relation.message)[0]

    def columns(self, message: RelationMessage) -> RelationMessage | None:
        """The announcement with the published columns only; None when the relation is not published."""
        if not self._entry(message)[0]:
            return None
        return replace(message, columns=tuple(message.columns[place] for place in self.places(message)))

    def places(self, message: RelationMessage) -> tuple[int, ...]:
        """Which of the announced columns are published."""
        if message not in self._places:
            listed = self._entry(message)[1]
            kept = range(len(message.columns))
            if listed is not None:
                rows = self._catalog.scan("pg_attribute", {"attrelid": message.relation_id, "attisdropped": False})
                names = {row["attname"] for row in rows if row["attnum"] in listed}
                self._places[message] = tuple(place for place in kept if message.columns[place].name in names)
            else:
                self._places[message] = tuple(kept)
        return self._places[message]

    def _entry(self, message: RelationMessage) -> tuple[frozenset[ChangeType], frozenset[int] | None]:
        """The actions published of a relation, and its column list (attnums), None: all columns."""
        if message.relation_id in self._of:
            return self._of[message.relation_id]
        actions: set[ChangeType] = set()
        lists: set[frozenset[int] | None] = set()
        for publication in self._publications:
            listed = self._column_list(publication, message)
            if listed is not False:
                actions |= {action for action, flag in _ACTIONS.items() if publication[flag]}
                lists.add(listed)
        if len(lists) > 1:
            raise PluginError("Different column lists in different publications cannot be combined.")
        entry = self._of[message.relation_id] = frozenset(actions), lists.pop() if lists else None
        return entry

    def _column_list(
        self, publication: dict[str, Any], message: RelationMessage
    ) -> frozenset[int] | Literal[False] | None:
        """False: the relation is not in the publication; None: with all its columns."""
        if publication["puballtables"]:
            return None
        for relation_id in self._with_ancestors(message.relation_id):
            entries = {"prpubid": publication["oid"], "prrelid": relation_id}
            for row in self._catalog.scan("pg_publication_rel", entries):
                if row.get("prqual") is not None:
                    raise PluginError(
                        f"{qualified(message.namespace, message.name)} has a row filter in publication"
                        f" {publication['pubname']}, which only the server can evaluate.",
                        hint="Have the server's slot decode with that publication.",
                    )
                listed = row.get("prattrs")
                return None if listed is None else frozenset(map(int, str(listed).split()))
            namespace = self._catalog.scan("pg_class", {"oid": relation_id})
            if namespace and self._schema_published(publication, namespace[0]["relnamespace"]):
                return None
        return False

    def _schema_published(self, publication: dict[str, Any], namespace: int) -> bool:
        try:
            entries = {"pnpubid": publication["oid"], "pnnspid": namespace}
            return bool(self._catalog.scan("pg_publication_namespace", entries))
        except PluginError:  # before 15 there is no such catalog
            return False

    def _with_ancestors(self, relation_id: int) -> list[int]:
        """A partition is published with any table above it."""
        chain = [relation_id]
        while parents := self._catalog.scan("pg_inherits", {"inhrelid": chain[-1]}):
            rows = self._catalog.scan("pg_class", {"oid": chain[-1]})
            if not rows or not rows[0]["relispartition"]:
                break
            chain.append(int(parents[0]["inhparent"]))
        return chain
