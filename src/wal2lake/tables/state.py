"""A table's state is one value, and one document: each transition replaces it whole, durably, and by one process only.

The words are PostgreSQL's own for a subscription's tables: ``init`` (known, to be read), ``data_copy`` (planned, its
chunks are read), ``catch_up`` (in the lake, and behind the stream), ``ready`` (each batch brings it to the batch's
end); and ``quarantined``: left out, with the reason; ``unpublished``: the stream speaks of it by another name. What the
log has to keep for a table is in its document (``needs_lsn``), so nothing else has to be written, or put right, when
that changes.

Source: PostgreSQL documentation, "pg_subscription_rel"; "Logical Replication Architecture", initial snapshot.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, Self

from wal2lake.columnar.types import FIRST_RULES, TypeRules
from wal2lake.lsn import LSN
from wal2lake.postgres.catalog_rows import CatalogRows
from wal2lake.postgres.snapshot import SnapshotIdentity
from wal2lake.sinks.base import FileAction
from wal2lake.user_types import UserType

Stage = Literal["init", "data_copy", "catch_up", "ready", "quarantined", "unpublished"]
Json = dict[str, Any]
_NAMED = 20  # columns that are told of


@dataclass(frozen=True, slots=True)
class Chunk:
    """Heap blocks ``block_from`` ≤ block < ``block_to``; None: to the table's end, wherever it will be by then."""

    number: int
    block_from: int
    block_to: int | None


@dataclass(frozen=True, slots=True)
class PlannedColumn:
    """A column as the snapshot reads it, OIDs as in the catalog (0 for one that lands as its output text)."""

    name: str
    attnum: int
    type_oid: int
    typmod: int
    base_oid: int
    key: bool


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """How a table is read. Chunks read for another ``shape`` (columns, key, row filter) or ``heap`` (files) are void.

    ``plan_id`` is in the name of every chunk file, so what a task of an abandoned plan still writes is never counted.
    ``digest``: TableSchema.digest as the log will announce the table; ``key``: what identifies a row in the mirror.
    ``attributes``: the greatest attnum that the table had, published or not; ``blocks``: how many its heap had.
    """

    plan_id: str
    relation_id: int
    replica_identity: str
    shape: str
    heap: str
    digest: str
    key: tuple[str, ...]
    columns: tuple[PlannedColumn, ...]
    chunks: tuple[Chunk, ...]
    attributes: int = 0
    blocks: int = 0


@dataclass(frozen=True, slots=True)
class Followed:
    """How far the target followed the table's schema: digests of the versions it fits, the last one followed last.

    Of each column ever there: ``attnums`` (0: nobody can tell any more) and ``types`` (OID, typmod) as last announced.
    ``lapsed``: columns that a version did not have any more, so what the target has in them is out of date.
    ``lsn``: the end of the last batch that brought a change of these.
    """

    attnums: Mapping[str, int] = field(default_factory=dict)
    digests: tuple[str, ...] = ()
    types: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    lapsed: tuple[str, ...] = ()
    lsn: int = 0

    @classmethod
    def of(cls, plan: SnapshotPlan) -> Self:
        """What the target follows when it holds what ``plan`` reads."""
        attnums = {column.name: column.attnum for column in plan.columns}
        types = {column.name: (column.type_oid, column.typmod) for column in plan.columns if column.type_oid}
        return cls(attnums, (plan.digest,), types)

    def changes_since(self, before: Followed) -> dict[str, list[str]]:
        """The columns that are added, gone, or of another type, by what they are; without what there is none of."""
        retyped = [n for n, kind in self.types.items() if before.types.get(n, kind) != kind]
        changes = {
            "added": [name for name in self.attnums if name not in before.attnums],
            "gone": [name for name in self.lapsed if name not in before.lapsed],
            "other type": retyped,
        }
        return {what: columns[:_NAMED] for what, columns in changes.items() if columns}


@dataclass(frozen=True, slots=True)
class Landed:
    """What was read is in the lake at ``lsn``. ``snapshots``: those it was read under (at least one), oldest first.

    ``converges_lsn``: up to there a change may build on a row that moved between two of them, and so is in none.
    """

    plan_id: str
    lsn: int
    snapshots: tuple[SnapshotIdentity, ...]
    converges_lsn: int = 0


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Why a table is left out: the error's class and sentence, and since when (Unix seconds).

    ``skipped``: somebody wants it so; it is not tried again, and is no failure.
    """

    error: str
    reason: str
    since: float
    skipped: bool = False


@dataclass(frozen=True, slots=True)
class Anew:
    """Why a table that was in the lake is read anew, or last was: the error's class and sentence, and since when (Unix
    seconds). ``asked``: somebody wants it, whatever the table's size. ``times``: how often since it last stood where
    the stream did."""

    error: str
    reason: str
    since: float
    asked: bool = False
    times: int = 1


@dataclass(frozen=True, slots=True)
class TableState:
    """All that is durable about a table, but for its chunks (files of their own) and its commits.

    ``needs_lsn``: all that commits above it must stay in the log for this table; None: what the stream needs is
    enough. For one that is in the lake it is also how far the table is. ``quarantine`` is there just when it is
    quarantined. ``anew`` without ``landed``: what the lake holds is what the table was, until what is read is swapped
    in. ``rows``: the catalog's, of a moment at which nothing had kept a change from the stream (doubt.py). ``types``:
    by which its columns land, until somebody has it read anew; None: by the newest, when it is read. ``tried``: why it
    was left out, while it is tried again and has not come to where the stream is.
    """

    stage: Stage = "init"
    needs_lsn: LSN | None = None
    plan: SnapshotPlan | None = None
    landed: Landed | None = None
    followed: Followed = field(default_factory=Followed)
    quarantine: Quarantine | None = None
    anew: Anew | None = None
    rows: CatalogRows | None = None
    types: TypeRules | None = None
    tried: Quarantine | None = None

    @property
    def in_lake(self) -> bool:
        """What was read of it is committed."""
        return self.landed is not None

    @property
    def failure(self) -> Quarantine | None:
        """Why it is left out, or was until it was tried again, unless somebody wanted that."""
        return self.tried if self.quarantine is None or self.quarantine.skipped else self.quarantine

    @property
    def synchronizing(self) -> bool:
        """It is brought to where the stream is, beside the stream."""
        return self.needs_lsn is not None and self.stage in ("init", "data_copy", "catch_up")

    def to_document(self) -> Json:
        return {
            "state": self.stage,
            "needs_lsn": None if self.needs_lsn is None else str(LSN(self.needs_lsn)),
            "quarantine": self.quarantine and asdict(self.quarantine),
            "tried": self.tried and asdict(self.tried),
            "anew": self.anew and asdict(self.anew),
            "rows": self.rows and self.rows.to_document(),
            "types": self.types and asdict(self.types),
            "landed": self.landed
            and {
                **asdict(self.landed),
                "snapshots": [json.loads(snapshot.to_json()) for snapshot in self.landed.snapshots],
            },
            "followed": asdict(self.followed),
            # chunks follow one another, so where each begins says all
            "plan": self.plan and {**asdict(self.plan), "chunks": [chunk.block_from for chunk in self.plan.chunks]},
        }

    @classmethod
    def from_document(cls, document: Json) -> Self:
        """The reverse."""
        return cls(
            stage=document["state"],
            needs_lsn=document["needs_lsn"] and LSN.parse(document["needs_lsn"]),
            plan=document["plan"] and _plan_from_json(document["plan"]),
            landed=document["landed"]
            and replace(
                Landed(**document["landed"]), snapshots=tuple(map(_snapshot_from, document["landed"]["snapshots"]))
            ),
            followed=_followed_from_json(document["followed"]),
            quarantine=document["quarantine"] and Quarantine(**document["quarantine"]),
            anew=Anew(**document["anew"]) if document.get("anew") else None,
            rows=CatalogRows.from_document(document["rows"]) if document.get("rows") else None,
            types=_types_from_json(document["types"]) if "types" in document else FIRST_RULES,
            tried=Quarantine(**document["tried"]) if document.get("tried") else None,
        )


@dataclass(frozen=True, slots=True)
class DoneChunk:
    """A chunk whose rows lie in the files of ``actions``: ``snapshot`` read it."""

    number: int
    rows: int
    snapshot: SnapshotIdentity
    actions: tuple[FileAction, ...]

    def to_document(self) -> Json:
        return {**asdict(self), "snapshot": json.loads(self.snapshot.to_json())}

    @classmethod
    def from_document(cls, document: Json) -> Self:
        actions = tuple(FileAction(**action) for action in document["actions"])
        return cls(document["number"], document["rows"], _snapshot_from(document["snapshot"]), actions)


def _types_from_json(document: Json | None) -> TypeRules | None:
    """A table that was read before there were several editions of the type table says nothing of it."""
    if document is None:
        return None
    dimensions = tuple((name, number) for name, number in document["dimensions"])
    domains = tuple((name, oid, typmod) for name, oid, typmod in document["domains"])
    made = tuple(map(UserType.from_document, document.get("user_types", ())))
    scale = document.get("money_scale", 2)
    return TypeRules(
        document["edition"], dimensions, tuple(document["text"]), document["numeric"], domains, made, scale
    )


def new_plan_id() -> str:
    return uuid.uuid4().hex[:12]


def _snapshot_from(document: Json) -> SnapshotIdentity:
    return SnapshotIdentity.from_json(json.dumps(document))


def _followed_from_json(document: Json) -> Followed:
    types = {name: (oid, typmod) for name, (oid, typmod) in document["types"].items()}
    digests, lapsed = tuple(document["digests"]), tuple(document["lapsed"])
    return Followed(document["attnums"], digests, types, lapsed, document["lsn"])


def _plan_from_json(document: Json) -> SnapshotPlan:
    bounds = pairwise([*document["chunks"], None])
    chunks = tuple(Chunk(number, first, after) for number, (first, after) in enumerate(bounds))
    columns = tuple(PlannedColumn(**column) for column in document["columns"])
    return SnapshotPlan(**{**document, "key": tuple(document["key"]), "columns": columns, "chunks": chunks})
