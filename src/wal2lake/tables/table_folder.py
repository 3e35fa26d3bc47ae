"""What the change log holds of a table, as values: its state, and the chunks of its copy that are finished."""

from __future__ import annotations

from collections.abc import Collection

from wal2lake.changelog.local import storage_at
from wal2lake.changelog.log import Place
from wal2lake.changelog.tables import TableDocuments
from wal2lake.tables.state import DoneChunk, TableState


class TableFolder:
    """One table's documents in the log at ``log``. Every read is of what is there now.

    Raises LogCorruptError for a damaged one: never a table's fault, which would be made good from what it says.
    """

    def __init__(self, log: Place, pipeline: str, namespace: str, name: str) -> None:
        self.documents = TableDocuments(storage_at(log), pipeline, namespace, name)

    def read(self) -> TableState:
        """The state, of a table that nobody has seen yet if there is none."""
        return self.documents.read_state(TableState.from_document) or TableState()

    def write(self, state: TableState) -> None:
        """Replace the state that was read or written last; raises SlotInUseError where it is another now."""
        self.documents.write_state(state.to_document())

    def finish_chunk(self, plan_id: str, chunk: DoneChunk) -> bool:
        """Make the chunk durable; False when another task has done so before, whose files then count."""
        return self.documents.finish_chunk(plan_id, chunk.number, chunk.to_document())

    def chunks(self, plan_id: str, but: Collection[int] = ()) -> dict[int, DoneChunk]:
        """The finished chunks of a plan by number, ``but`` these, which are not read again."""
        return {chunk.number: chunk for chunk in self.documents.chunks(plan_id, DoneChunk.from_document, but)}
