"""Which Relation and Type messages are in force at a row of a segment: those from before it, and those announced in it.

A row means what the relation was when it was sent; so rows are read in runs, in each of which one message holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from wal2lake.changelog.format import Announcement
from wal2lake.columnar.headers import RELATION, TYPE, identifier, subject
from wal2lake.pgoutput.codec import read_message
from wal2lake.pgoutput.messages import Relation, Type


@dataclass(frozen=True, slots=True)
class RelationRun:
    """Rows [row_start, row_stop) of an extent in which ``relation`` is in force; ``types`` by OID, as announced."""

    row_start: int
    row_stop: int
    relation: Relation
    types: dict[int, Type]


@dataclass(frozen=True, slots=True)
class InForce:
    """The messages in force by OID."""

    relations: Mapping[int, bytes]
    types: Mapping[int, bytes]

    @classmethod
    def of(cls, messages: Iterable[tuple[bytes, bytes]]) -> InForce:
        """Of messages by kind and OID, later ones over earlier."""
        found: dict[int, dict[int, bytes]] = {RELATION: {}, TYPE: {}}
        for about, payload in messages:
            found[about[0]][identifier(payload)] = payload
        return cls(found[RELATION], found[TYPE])

    def runs(self, announced: Iterable[Announcement], relation_id: int, start: int, stop: int) -> list[RelationRun]:
        """Rows ``start`` … ``stop`` (exclusive) split where the relation's schema changes, by what is ``announced`` in
        the segment. Rows before its first announcement, where it can have no change, are in no run."""
        relation, types, since = self.relations.get(relation_id), self.types, start
        newest = dict(types)
        runs: list[RelationRun] = []
        for news in announced:
            if news.row >= stop:
                break
            if news.kind == "Y":
                newest[news.oid] = news.payload
            elif news.oid == relation_id and news.payload != relation:
                _append_run(runs, since, news.row, relation, types)
                relation, types, since = news.payload, dict(newest), max(news.row, start)
        _append_run(runs, since, stop, relation, types)
        return runs

    def at(self, announced: Iterable[Announcement], row: int) -> list[bytes]:
        """The messages in force before ``row``, types first."""
        messages = [*self.types.values(), *self.relations.values()]
        earlier = [news.payload for news in announced if news.row < row]
        newest = {subject(payload): payload for payload in (*messages, *earlier)}
        return sorted(newest.values(), key=lambda payload: payload[0] != TYPE)


def _append_run(
    runs: list[RelationRun], start: int, stop: int, relation: bytes | None, types: Mapping[int, bytes]
) -> None:
    if relation is None or start >= stop:
        return
    runs.append(RelationRun(start, stop, _relation(relation), {oid: _type(p) for oid, p in types.items()}))


@lru_cache(4096)  # the same ones are in force in one segment after the other
def _relation(payload: bytes) -> Relation:
    message = read_message(payload)
    assert isinstance(message, Relation)
    return message


@lru_cache(4096)
def _type(payload: bytes) -> Type:
    message = read_message(payload)
    assert isinstance(message, Type)
    return message
