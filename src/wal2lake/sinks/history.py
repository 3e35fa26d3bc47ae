"""What sinks have in common that keep a history (lake.mode = "append"): rows come, and none is ever taken back.

A history is never merged into, replaced or searched by key. So who extends ``HistorySink`` says how a target stands and
how many rows it has, how rows that are staged become its own in one step with their LSN, and how it gets more columns;
the rest is here. Rows are staged as Parquet files below the table's folder, where no reader looks.

The rule for ``commit_files``: whatever kills it, what a reader finds afterwards is all of the rows with their LSN, or
none of them, and doing it again ends in the former.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, NoReturn

import pyarrow as pa

from wal2lake.errors import SinkError
from wal2lake.lakes import table_uri
from wal2lake.sinks.base import FileAction, SinkState
from wal2lake.sinks.datafiles import read_batches, write_data_files
from wal2lake.sinks.folder import Folder

if TYPE_CHECKING:
    from wal2lake.apply.fold import Folded, FoldedRows
    from wal2lake.apply.row_index import Mask
    from wal2lake.apply.unify import Fill
    from wal2lake.config import LakeConfig

STAGED: Final = ".staged"  # hidden from readers, which pass over names that begin with a dot
ORPHAN_S: Final = 7 * 86_400  # longer than any snapshot takes, whose files wait for its end


class HistorySink:
    """One table's history. ``staged``: where rows lie that are written and not committed."""

    modes: ClassVar[tuple[str, ...]] = ("append",)

    def __init__(self, lake: LakeConfig, pipeline: str, namespace: str, name: str) -> None:
        self.uri = table_uri(lake.path, namespace, name)
        self.pipeline = pipeline
        self.staged = Folder(f"{self.uri}/{STAGED}")

    def state(self) -> SinkState | None:
        """``Sink.state``."""
        raise NotImplementedError

    def count_rows(self) -> int:
        """``Sink.count_rows``."""
        raise NotImplementedError

    def commit_files(
        self,
        actions: Sequence[FileAction],
        lsn: int,
        schema: pa.Schema,
        applied: int | None,
        plan_id: str | None = None,
    ) -> bool:
        """``Sink.commit_files``; what is staged may be deleted when it is done."""
        raise NotImplementedError

    def evolve(self, schema: pa.Schema, fill: Fill | None = None) -> None:
        """``Sink.evolve``."""
        raise NotImplementedError

    def is_gone(self) -> bool:
        """``Sink.is_gone``; False where only a look at the target itself would tell."""
        return False

    def write_files(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> list[FileAction]:
        """``Sink.write_files``: durable Parquet files in ``staged``."""
        return write_data_files(self.staged, batches, schema)

    def read_files(self, actions: Iterable[FileAction], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """``Sink.read_files``, as long as they are staged."""
        for action in actions:
            yield from read_batches(self.staged, action.path, schema)

    def maintain(self) -> float | None:
        """``Sink.maintain``: lets go of what was staged long ago, by writers that never committed it."""
        before = time.time() - ORPHAN_S
        self.staged.remove(file.path for file in self.staged.files_below() if file.since < before)
        return None

    def without(self, actions: Sequence[FileAction], keys: pa.Table, schema: pa.Schema) -> list[FileAction]:
        """Not of a history."""
        self._refuse()

    def replace_files(
        self, actions: Sequence[FileAction], lsn: int, schema: pa.Schema, applied: int, plan_id: str | None = None
    ) -> None:
        """Not of a history."""
        self._refuse()

    def merge(self, folded: Folded | FoldedRows, lsn: int, applied: int, converges_lsn: int | None = None) -> bool:
        """Not of a history."""
        self._refuse()

    def merge_pieces(self, pieces: Iterable[Folded | FoldedRows], lsn: int, applied: int) -> bool:
        """Not of a history."""
        self._refuse()

    def holds(self, keys: pa.Table) -> Mask:
        """Not of a history."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        hint = 'Set lake.mode = "append", or a lake.format that can be a mirror.'
        raise SinkError(f"The table at {self.uri} is a history, which is no mirror.", hint=hint)
