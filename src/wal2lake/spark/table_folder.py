"""What is done of a table, as files in the change log's folder: ``snapshots/<pipeline>/<schema>.<table>/``.

The rule: a file that says "done" is written once, whole, and never changed (``plan.json``, ``chunk-….json``,
``done.json``); what follows the stream is one small document, replaced atomically (``columns.json``,
``converging.json``, ``sync.json``, ``quarantine.json``). Whoever dies between two files leaves a state that the next
run goes on from. Each carries a checksum (changelog/documents.py), and a damaged one stops the pipeline: only it said
how far the table is.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from wal2lake.changelog.documents import TABLE_CURE, parsing, read_document, write_document
from wal2lake.changelog.storage import LocalStorage

FORMAT = 2

Json = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Heap blocks ``block_from`` ≤ block < ``block_to``; None: to the table's end, wherever it will be by then."""

    number: int
    block_from: int
    block_to: int | None


@dataclass(frozen=True, slots=True)
class Column:
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
    ``attributes``: the greatest attnum that the table had, published or not.
    """

    plan_id: str
    relation_id: int
    replica_identity: str
    shape: str
    heap: str
    digest: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    chunks: tuple[Chunk, ...]
    attributes: int = 0


@dataclass(frozen=True, slots=True)
class Followed:
    """How far the target followed the table's schema: digests of the versions it fits, the last one followed last.

    Of each column ever there: ``attnums`` (0: nobody can tell any more) and ``types`` (OID, typmod) as last announced.
    ``lapsed``: columns that a version did not have any more, so what the target has in them is out of date.
    ``lsn``: the end of the last batch that brought a change of these.
    """

    attnums: Mapping[str, int]
    digests: tuple[str, ...]
    types: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    lapsed: tuple[str, ...] = ()
    lsn: int = 0


@dataclass(frozen=True, slots=True)
class DoneChunk:
    """A chunk whose rows lie in files: ``snapshot`` (a SnapshotIdentity) and ``actions`` (file actions) as JSON."""

    number: int
    rows: int
    snapshot: Json
    actions: Sequence[Json]


@dataclass(frozen=True, slots=True)
class Done:
    """The snapshot is in the lake at ``lsn``. ``snapshots``: the identities it was read under, oldest first."""

    plan_id: str
    lsn: int
    snapshots: Sequence[Json]


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Why a table is left out, since when (Unix seconds), and the LSN up to which it is applied (0: nothing)."""

    error: str
    reason: str
    lsn: int
    since: float


class TableFolder:
    """One table's files. Every read is of what the disk says now; a missing file is None.

    Raises LogCorruptError for a damaged one: never a table's fault, which would be made good from what it says.
    """

    def __init__(self, root: Path, namespace: str, name: str) -> None:
        self.path = root / f"{_encode(namespace)}.{_encode(name)}"
        self._storage = LocalStorage(self.path)

    def plan(self) -> SnapshotPlan | None:
        return self._read("plan.json", _plan)

    def begin(self, plan: SnapshotPlan) -> None:
        """Make ``plan`` the one that counts; whatever an earlier one had read is forgotten."""
        self._storage.make_folders()
        self._remove_chunks("done.json", "converging.json")
        attnums = {column.name: column.attnum for column in plan.columns}
        types = {column.name: (column.type_oid, column.typmod) for column in plan.columns if column.type_oid}
        self.follow(Followed(attnums, (plan.digest,), types))
        self._write("plan.json", {"format": FORMAT, **asdict(plan)})

    def void(self, plan: SnapshotPlan) -> SnapshotPlan:
        """The same plan under another name: nothing that was read by it counts, nor what its tasks still write."""
        plan = replace(plan, plan_id=new_plan_id())
        self._write("plan.json", {"format": FORMAT, **asdict(plan)})
        self._remove_chunks()
        return plan

    def _remove_chunks(self, *others: str) -> None:
        for name in self._storage.names("."):
            if name.startswith("chunk-") or name in others:
                self._storage.remove(name)

    def finish_chunk(self, plan_id: str, chunk: DoneChunk) -> bool:
        """Make the chunk durable; False when another task has done so before, whose files then count."""
        name = f"chunk-{chunk.number:04d}.{plan_id}.json"
        draft = f"{name}.{os.getpid()}-{time.monotonic_ns()}"
        self._write(draft, asdict(chunk))
        try:
            os.link(self.path / draft, self.path / name)
        except FileExistsError:
            return False
        finally:
            self._storage.remove(draft)
        return True

    def chunks(self, plan_id: str) -> dict[int, DoneChunk]:
        """The finished chunks of a plan by number."""
        names = [name for name in self._storage.names(".") if name.endswith(f".{plan_id}.json")]
        found = (self._read(name, lambda document: DoneChunk(**document)) for name in names)
        return {chunk.number: chunk for chunk in found if chunk is not None}

    def count_chunks(self) -> int:
        """How many chunks are finished, without reading them."""
        names = self._storage.names(".")
        return sum(name.startswith("chunk-") and name.endswith(".json") for name in names)

    def done(self) -> Done | None:
        return self._read("done.json", lambda document: Done(**document))

    def finish(self, done: Done) -> None:
        self._write("done.json", asdict(done))

    def followed(self) -> Followed:
        return self._read("columns.json", _followed) or Followed({}, ())

    def follow(self, followed: Followed) -> None:
        self._write("columns.json", asdict(followed))

    def converging_until(self) -> int:
        """LSN up to which a masked row may be missing in the target and is read again from the source; 0: never."""
        return self._read("converging.json", _lsn) or 0

    def converge_until(self, lsn: int) -> None:
        if lsn > self.converging_until():
            self._write("converging.json", {"lsn": int(lsn)})

    def syncing(self) -> int | None:
        """LSN up to which the table is applied while it is synchronized beside the stream; None: it is not."""
        return self._read("sync.json", _lsn)

    def sync(self, lsn: int) -> None:
        self._storage.make_folders()
        self._write("sync.json", {"lsn": int(lsn)})

    def end_sync(self) -> None:
        self._storage.remove("sync.json")

    def quarantine(self) -> Quarantine | None:
        return self._read("quarantine.json", lambda document: Quarantine(**document))

    def set_quarantine(self, error: Exception, lsn: int) -> None:
        self._storage.make_folders()
        quarantine = Quarantine(type(error).__name__, str(error), int(lsn), time.time())
        self._write("quarantine.json", asdict(quarantine))

    def lift_quarantine(self) -> None:
        self._storage.remove("quarantine.json")

    def _read(self, name: str, make: Callable[[Json], T]) -> T | None:
        file = str(self.path / name)
        try:
            document = read_document(self._storage.get(name), file, TABLE_CURE)
        except FileNotFoundError:
            return None
        with parsing(file, TABLE_CURE):
            return make(document)

    def _write(self, name: str, document: Json) -> None:
        self._storage.put(name, write_document(document))


def new_plan_id() -> str:
    return uuid.uuid4().hex[:12]


def known_tables(root: Path) -> list[tuple[str, str]]:
    """The tables (namespace, name) that have a folder below ``root``."""
    folders = sorted(path.name for path in root.glob("*.*") if not path.name.startswith("."))
    return [(unquote(namespace), unquote(name)) for namespace, _, name in (f.partition(".") for f in folders)]


def _plan(document: Json) -> SnapshotPlan:
    fields = {name: value for name, value in document.items() if name != "format"}
    fields["key"] = tuple(fields["key"])
    fields["columns"] = tuple(Column(**column) for column in fields["columns"])
    fields["chunks"] = tuple(Chunk(**chunk) for chunk in fields["chunks"])
    return SnapshotPlan(**fields)


def _followed(document: Json) -> Followed:
    types = {name: (oid, typmod) for name, (oid, typmod) in document["types"].items()}
    digests, lapsed = tuple(document["digests"]), tuple(document["lapsed"])
    return Followed(document["attnums"], digests, types, lapsed, document["lsn"])


def _lsn(document: Json) -> int:
    return int(document["lsn"])


def _encode(name: str) -> str:
    """A dot inside a name must not look like the one between schema and table.

    Letters of any script stay: a file name has 255 bytes, and two names of 63 would need more as percent signs.
    """
    return "".join(char if ord(char) > 0x7F else quote(char, safe="").replace(".", "%2E") for char in name)
