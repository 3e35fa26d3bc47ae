"""A table's documents in the log: its state, and the chunks of its copy that are finished.

The rule: ``state.json`` is replaced whole, and only over what was read: who is not the only one any more changes
nothing. A ``chunk-….json`` is written once, by whoever is first, and never changed. A chunk's name bears its plan, so
files of another plan count for nothing, and are removed when it suits. Each carries a checksum, and a damaged one stops
the pipeline: only it said how far the table is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, TypeVar

from wal2lake.changelog.documents import TABLE_CURE, parsing, read_document, write_document
from wal2lake.changelog.format import read_state, write_state
from wal2lake.changelog.places import SNAPSHOTS, STATE, table_folder, table_of, tables_of
from wal2lake.changelog.storage import Storage, Version
from wal2lake.errors import SlotInUseError

_CHUNK: Final = "chunk-"
T = TypeVar("T")
Make = Callable[[dict[str, Any]], T]


class TableDocuments:
    """One table's. Every read is of what the storage says now.

    Raises LogCorruptError for a damaged one: never a table's fault, which would be made good from what it says.
    """

    def __init__(self, storage: Storage, pipeline: str, namespace: str, name: str) -> None:
        self.folder = table_folder(pipeline, namespace, name)
        self._storage = storage
        self._state = f"{self.folder}/{STATE}"
        self._seen: Version | None = None
        self._read = False

    def read_state(self, make: Make[T]) -> T | None:
        """What ``make`` makes of the table's document; None if there is none."""
        self._read, self._seen = True, None
        try:
            data, version = self._storage.read(self._state)
        except FileNotFoundError:
            return None
        document = read_state(data, self._state)
        with parsing(self._state, TABLE_CURE):
            made = make(document)
        self._seen = version
        return made

    def write_state(self, values: Mapping[str, Any]) -> None:
        """Replace the document that was read or written last; raises SlotInUseError where it is another now."""
        if not self._read:
            self.read_state(dict)
        if self._seen is None:  # whoever wrote the one that was read had a folder for it
            self._storage.prepare(self.folder)
        version = self._storage.swap(self._state, write_state(values, self._state), self._seen)
        if version is None:
            raise SlotInUseError(
                f"Another process has changed {self._state} of the change log {self._storage.where}.",
                hint="Only one process may run a pipeline: stop the other, or give this one a name of its own"
                " (pipeline.name) and a lake.path.",
            )
        self._seen = version

    def finish_chunk(self, plan_id: str, number: int, values: Mapping[str, Any]) -> bool:
        """Make the chunk durable; False when another task has done so before, whose files then count."""
        return self._storage.create(f"{self.folder}/{_chunk_name(plan_id, number)}", write_document(values))

    def chunks(self, plan_id: str, make: Make[T], but: Collection[int] = ()) -> list[T]:
        """What ``make`` makes of the finished chunks of a plan, ``but`` those of these numbers."""
        known = {_chunk_name(plan_id, number) for number in but}
        names = [name for name in self._chunk_names() if name.endswith(f".{plan_id}.json")]
        return [self._read_chunk(name, make) for name in names if name not in known]

    def remove_chunks(self, but: str | None = None) -> None:
        """Remove the chunks of all plans, or of all but one."""
        for name in self._chunk_names():
            if but is None or not name.endswith(f".{but}.json"):
                self._storage.remove(f"{self.folder}/{name}")

    def remove(self) -> None:
        """Forget the table, its state last: until then it is known. Nothing is read of what goes."""
        for name in sorted(self._storage.names(self.folder), key=STATE.__eq__):
            self._storage.remove(f"{self.folder}/{name}")
        self._seen, self._read = None, True

    def _read_chunk(self, name: str, make: Make[T]) -> T:
        file = f"{self.folder}/{name}"
        document = read_document(self._storage.get(file), file, TABLE_CURE)
        with parsing(file, TABLE_CURE):
            return make(document)

    def _chunk_names(self) -> list[str]:
        return [name for name in self._storage.names(self.folder) if name.startswith(_CHUNK) and name.endswith(".json")]


def _chunk_name(plan_id: str, number: int) -> str:
    return f"{_CHUNK}{number:04d}.{plan_id}.json"


def known_tables(storage: Storage, pipeline: str) -> list[tuple[str, str]]:
    """The tables (namespace, name) of which ``pipeline`` knows anything."""
    folders = storage.folders(tables_of(pipeline))
    return [table_of(name) for name in folders if storage.names(f"{tables_of(pipeline)}/{name}")]


def documents_of_tables(storage: Storage) -> Iterator[str]:
    """The names of all documents of all tables of all pipelines."""
    for pipeline in storage.folders(SNAPSHOTS):
        for table in storage.folders(tables_of(pipeline)):
            folder = f"{tables_of(pipeline)}/{table}"
            yield from (f"{folder}/{name}" for name in storage.names(folder) if name.endswith(".json"))
