"""A table's folder in the change log: ``snapshots/<pipeline>/<schema>.<table>/``, its state and its finished chunks.

The rule: ``state.json`` is replaced whole; a ``chunk-….json`` is written once, by whoever is first, and never changed.
A chunk's name bears its plan, so files of another plan count for nothing, and are removed when it suits. Each carries a
checksum, and a damaged one stops the pipeline: only it said how far the table is.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, unquote

from wal2lake.changelog.documents import TABLE_CURE, parsing, read_document, write_document
from wal2lake.changelog.format import STATE, read_state
from wal2lake.changelog.storage import LocalStorage
from wal2lake.tables.state import DoneChunk, Json, TableState

_CHUNK = "chunk-"
T = TypeVar("T")


class TableFolder:
    """One table's files. Every read is of what the disk says now.

    Raises LogCorruptError for a damaged one: never a table's fault, which would be made good from what it says.
    """

    def __init__(self, root: Path, namespace: str, name: str) -> None:
        self.path = root / f"{_encode(namespace)}.{_encode(name)}"
        self._storage = LocalStorage(self.path)

    def read(self) -> TableState:
        """The state, of a table that nobody has seen yet if there is none."""
        try:
            file = str(self.path / STATE)
            document = read_state(self._storage.get(STATE), file)
        except FileNotFoundError:
            return TableState()
        with parsing(file, TABLE_CURE):
            return TableState.from_document(document)

    def write(self, state: TableState) -> None:
        self._storage.make_folders()
        self._storage.put(STATE, write_document({"table": self.path.name, **state.to_document()}))

    def finish_chunk(self, plan_id: str, chunk: DoneChunk) -> bool:
        """Make the chunk durable; False when another task has done so before, whose files then count."""
        name = f"{_CHUNK}{chunk.number:04d}.{plan_id}.json"
        return self._storage.create(name, write_document(chunk.to_document()))

    def chunks(self, plan_id: str) -> dict[int, DoneChunk]:
        """The finished chunks of a plan by number."""
        names = [name for name in self._chunk_names() if name.endswith(f".{plan_id}.json")]
        found = [self._read(name, DoneChunk.from_document) for name in names]
        return {chunk.number: chunk for chunk in found}

    def count_chunks(self, plan_id: str) -> int:
        """How many chunks of a plan are finished, without reading them."""
        return sum(name.endswith(f".{plan_id}.json") for name in self._chunk_names())

    def remove_chunks(self, but: str | None = None) -> None:
        """Remove the chunks of all plans, or of all but one."""
        for name in self._chunk_names():
            if but is None or not name.endswith(f".{but}.json"):
                self._storage.remove(name)

    def _read(self, name: str, make: Callable[[Json], T]) -> T:
        file = str(self.path / name)
        document = read_document(self._storage.get(name), file, TABLE_CURE)
        with parsing(file, TABLE_CURE):
            return make(document)

    def _chunk_names(self) -> list[str]:
        return [name for name in self._storage.names(".") if name.startswith(_CHUNK) and name.endswith(".json")]


def known_tables(root: Path) -> list[tuple[str, str]]:
    """The tables (namespace, name) that have a folder below ``root``."""
    folders = sorted(path.name for path in root.glob("*.*") if not path.name.startswith("."))
    return [(unquote(namespace), unquote(name)) for namespace, _, name in (f.partition(".") for f in folders)]


def _encode(name: str) -> str:
    """A dot inside a name must not look like the one between schema and table.

    Letters of any script stay: a file name has 255 bytes, and two names of 63 would need more as percent signs.
    """
    return "".join(char if ord(char) > 0x7F else quote(char, safe="").replace(".", "%2E") for char in name)
