"""A sink applies each batch exactly once: the LSN it has applied is in the same commit as the data.

Every call that changes data names the LSN at which the target must stand (``applied``) and the LSN at which it will
stand (``lsn``). A target already at ``lsn`` or beyond is left alone, one that stands elsewhere refuses, and one that
moves meanwhile refuses as well (SinkConflictError): whoever calls reads the state again and decides. So a task that
runs twice, at once or later, can never apply anything twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

import pyarrow as pa

from wal2lake.apply.fold import Folded, FoldedRows
from wal2lake.apply.row_index import Mask
from wal2lake.apply.unify import Fill
from wal2lake.errors import SinkError
from wal2lake.lsn import LSN

if TYPE_CHECKING:
    from wal2lake.config import LakeConfig

_NOWHERE = LSN(0)

Bound = int | str

COMMENT: Final = "comment"  # metadata of a schema, or of a column: what its owner says of it


class SinkConflictError(SinkError):
    """The target moved since its state was read; nothing was written. Read the state again."""

    transient: ClassVar[bool] = True


class SinkUnavailableError(SinkError):
    """The lake's storage does not answer now, or this process is out of file handles or memory: nothing is lost."""

    transient: ClassVar[bool] = True


class TargetError(SinkError):
    """This target is not ours, not a copy, or cannot be one, however often it is tried; others are not concerned."""


class NotACopyError(TargetError):
    """The target lacks what a change builds on: only reading the table anew makes it a copy again."""


@dataclass(frozen=True)
class SinkState:
    """A target as it stands: its own version number, the LSN applied, its columns.

    ``converges_lsn``: up to there a change may build on a row that the target does not have (Sink.merge); 0: none.
    ``plan_id``: of the snapshot that its rows began with, as commit_files was told; None: it was told none.
    """

    version: int
    applied_lsn: LSN
    schema: pa.Schema
    converges_lsn: LSN = _NOWHERE
    plan_id: str | None = None


@dataclass(frozen=True)
class FileAction:
    """A data file that is written and not yet committed; JSON by ``dataclasses.asdict``, and back by its fields.

    ``path`` is relative to the table, ``size`` in bytes, ``modification_time`` in ms since 1970. By column, where it
    is known: ``nulls``, how many there are, and ``low`` and ``high``, which no value is below or above. Those are
    integers, days or µs since 1970, unscaled decimals, or strings; each sink makes what its format says of them.
    """

    path: str
    size: int
    modification_time: int
    rows: int
    nulls: dict[str, int]
    low: dict[str, Bound]
    high: dict[str, Bound]


class OpenSink(Protocol):
    """What makes a format's sinks: a class or a function, named in the factory or by an entry point.

    It may say in ``modes`` which of lake.mode it can do; one that says nothing keeps histories ("append") alone.
    """

    def __call__(self, lake: LakeConfig, pipeline: str, namespace: str, name: str) -> Sink:
        """The table ``namespace.name`` of ``lake`` as the target of ``pipeline``. Nothing is read or made yet: it is
        called for every look at a table, in several processes at once."""


class Sink(Protocol):
    """One target table, at ``uri``. All LSNs are end LSNs of transactions. A change tells if ``maintain`` is due.

    A history needs no ``without``, ``replace_files``, ``merge``, ``merge_pieces`` and ``holds`` (sinks/history.py).
    """

    uri: str

    def state(self) -> SinkState | None:
        """How the target stands; None when there is none. Raises TargetError when something else lies there."""

    def is_gone(self) -> bool:
        """Nothing of a target is there, where that can be told at once: an object store is not asked."""

    def count_rows(self) -> int:
        """The rows that stand there now; 0 if there is no target."""

    def write_files(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> list[FileAction]:
        """Write data files beside the target, invisible until they are committed (any process may do it).

        ``batches`` may lack columns of ``schema``, which are NULL then, and have narrower types.
        """

    def read_files(self, actions: Iterable[FileAction], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of files that ``write_files`` wrote, committed or not, in ``schema``'s columns."""

    def without(self, actions: Sequence[FileAction], keys: pa.Table, schema: pa.Schema) -> list[FileAction]:
        """Files of ``schema``'s columns that hold the rows of ``actions`` but for those with one of ``keys``.

        Files that hold none of them stay; others' rows are written anew. Nothing is committed, nothing removed.
        """

    def commit_files(
        self,
        actions: Sequence[FileAction],
        lsn: int,
        schema: pa.Schema,
        applied: int | None,
        plan_id: str | None = None,
    ) -> bool:
        """Append the files. ``applied`` None creates the target, which must not exist; ``plan_id`` (12 hexadecimal
        digits) names the snapshot of which they are then."""

    def replace_files(
        self, actions: Sequence[FileAction], lsn: int, schema: pa.Schema, applied: int, plan_id: str | None = None
    ) -> None:
        """Exchange all rows and columns for the files'. Where the rows of another snapshot than ``plan_id`` stand,
        ``lsn`` is not applied, wherever that stands."""

    def merge(self, folded: Folded | FoldedRows, lsn: int, applied: int, converges_lsn: int | None = None) -> bool:
        """Apply a fold in one commit. Raises TargetError when the target lacks rows that it builds on.

        ``converges_lsn`` becomes the state's in the same commit, unless it is None.
        """

    def merge_pieces(self, pieces: Iterable[Folded | FoldedRows], lsn: int, applied: int) -> bool:
        """Apply folds, oldest first, in one commit, though no more than one is held at once; without any, too."""

    def holds(self, keys: pa.Table) -> Mask:
        """bool[keys]: the target has a row with this key."""

    def evolve(self, schema: pa.Schema, fill: Fill | None = None) -> None:
        """Add the columns that ``schema`` has more, widen those it has wider; existing rows get ``fill``, else NULL."""

    def maintain(self) -> float | None:
        """Compact and clean up, as its retention says; never changes rows or the applied LSN.

        Returns after how many seconds there may be more to clean up, though nothing be changed; None: never.
        """


def is_applied(uri: str, state: SinkState | None, lsn: int, applied: int | None) -> bool:
    """Whether the target at ``uri`` has ``lsn`` applied already. Raises SinkConflictError where it does not stand at
    ``applied``, which is what the change was made for (None: there is no target)."""
    if state is not None and state.applied_lsn >= lsn:
        return True
    require_at(uri, state, lsn, applied)
    return False


def require_at(uri: str, state: SinkState | None, lsn: int, applied: int | None) -> None:
    """Raise SinkConflictError where the target at ``uri`` does not stand at ``applied``; ``lsn``: what is committed."""
    stands = None if state is None else state.applied_lsn
    if stands != applied:
        at = "does not exist" if stands is None else f"stands at {stands}"
        told = "none was expected" if applied is None else f"{LSN(applied)} was expected"
        raise SinkConflictError(f"The table at {uri} {at}, but {told}.", lsn=lsn)
