"""A change feed of plain Parquet files: each batch is a folder that is put in place whole, by one rename.

``<table>/after_lsn=<a>/to-<b>-part-<i>-rows-<n>.parquet``: the batch behind LSN a, up to b (decimal, as in
``_commit_lsn``). The folder's name is where the batch begins, so a table has one successor to each LSN: of two tasks
that land something behind it, whatever that is, one finds the name taken. The newest folder's files say the LSN that is
applied; there is no other log. What a snapshot read has its plan's id in its files' names.

A folder is filled below ``.staged``, by links to the files that tasks wrote there, made durable and renamed. So a crash
leaves a table with the whole batch or without it, and what is staged can be landed again. Nothing that has landed is
ever changed or removed: a column that comes later is NULL in it, and new columns alone are an empty file more.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from wal2lake.apply.unify import Fill
from wal2lake.errors import RESYNC, SchemaChangeError
from wal2lake.files import flush, make_folder
from wal2lake.lsn import LSN
from wal2lake.sinks.base import FileAction, SinkConflictError, SinkState, TargetError, is_applied
from wal2lake.sinks.columns import evolved
from wal2lake.sinks.datafiles import write_data_files, write_empty_file
from wal2lake.sinks.history import STAGED, HistorySink
from wal2lake.sinks.sink_errors import failure

AFTER: Final = "after_lsn"
_BATCH: Final = re.compile(rf"{AFTER}=([0-9]{{1,20}})")
_FILE: Final = re.compile(r"to-([0-9]{1,20})-part-([0-9]+)-rows-([0-9]+)(?:-plan-([0-9a-f]{12}))?\.parquet")
_PIPELINE: Final = "wal2lake.pipeline"
_NOT_OURS: Final = "Move it away, or choose another lake.path or pipeline.name."

_SEEN: Final[dict[str, int]] = {}  # where a table's newest batch began, when this process looked last


@dataclass(frozen=True, slots=True)
class _Batch:
    """One that has landed: ``files`` in order, of which the last has the newest columns."""

    after: int
    lsn: int
    plan_id: str | None
    files: tuple[Path, ...]


class ParquetSink(HistorySink):
    """A ``Sink`` for histories alone (sinks/history.py)."""

    def state(self) -> SinkState | None:
        """``Sink.state``; the columns are those of the newest file."""
        with self._mapped_errors():
            batch = self._newest()
            if batch is None:
                return None
            footer = pq.read_metadata(batch.files[-1])
            said = (footer.metadata or {}).get(_PIPELINE.encode(), b"").decode()
            if said != self.pipeline:
                raise TargetError(f"Pipeline {self.pipeline!r} did not land the files at {self.uri}.", hint=_NOT_OURS)
            schema = pa.schema([(field.name, field.type) for field in footer.schema.to_arrow_schema()])
            return SinkState(batch.after, LSN(batch.lsn), schema, plan_id=batch.plan_id)

    def is_gone(self) -> bool:
        """``Sink.is_gone``."""
        with self._mapped_errors():
            return self._newest() is None

    def count_rows(self) -> int:
        """The rows of all batches, by the files' names."""
        with self._mapped_errors():
            names = (_FILE.fullmatch(file.name) for file in Path(self.uri).glob(f"{AFTER}=*/*.parquet"))
            return sum(int(name[3]) for name in names if name is not None)

    def write_files(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> list[FileAction]:
        """``Sink.write_files``; each file's footer names the pipeline."""
        return write_data_files(self.staged, batches, schema, {_PIPELINE: self.pipeline})

    def commit_files(
        self,
        actions: Sequence[FileAction],
        lsn: int,
        schema: pa.Schema,
        applied: int | None,
        plan_id: str | None = None,
    ) -> bool:
        """``Sink.commit_files``: the batch's folder gets its name. One without rows has an empty file."""
        if AFTER in schema.names:
            hint = "Rename it, leave it out of the publication's column list, or use another lake.format."
            raise SchemaChangeError("The folders of a Parquet change feed have a column of this name.", hint=hint,
                                    column=AFTER)  # fmt: skip
        with self._mapped_errors():
            state = self.state()
            if is_applied(self.uri, state, lsn, applied):
                return False
            if state is None:
                self._require_empty()
            elif not state.schema.equals(schema):
                raise SchemaChangeError(f"The files to land do not have the columns of those at {self.uri}.",
                                        hint="Evolve the table before files are written for it.")  # fmt: skip
            plan = "" if plan_id is None else f"-plan-{plan_id.zfill(12)}"
            landed = list(actions) or [self._empty_file(schema)]
            names = [f"to-{int(lsn)}-part-{part}-rows-{file.rows}{plan}.parquet" for part, file in enumerate(landed)]
            self._land(self._folder(int(applied or 0)), dict(zip(names, landed, strict=True)))
            self.staged.remove(file.path for file in landed)
        return False

    def evolve(self, schema: pa.Schema, fill: Fill | None = None) -> None:
        """``Sink.evolve``: an empty file of the newest batch has the columns from now on."""
        with self._mapped_errors():
            state, batch = self.state(), self._newest()
            if state is None or batch is None:
                raise TargetError(f"There are no files at {self.uri}.", hint=RESYNC)
            want = evolved(state.schema, schema)
            if want.equals(state.schema):
                return
            action = self._empty_file(want)
            plan = "" if batch.plan_id is None else f"-plan-{batch.plan_id}"
            name = f"to-{batch.lsn}-part-{len(batch.files)}-rows-0{plan}.parquet"
            self._link(action, batch.files[0].with_name(name))
            flush(batch.files[0].parent)
            self.staged.remove([action.path])

    def _land(self, place: Path, files: dict[str, FileAction]) -> None:
        aside = Path(self.staged.uri, f"batch-{uuid.uuid4()}")
        make_folder(aside)
        for name, action in files.items():
            self._link(action, aside / name)
        flush(aside)
        try:
            os.rename(aside, place)
        except OSError as error:
            shutil.rmtree(aside)
            if not place.exists():
                raise
            raise SinkConflictError(f"Another task has landed {place} meanwhile.") from error
        flush(place.parent)
        flush(aside.parent)

    def _link(self, action: FileAction, place: Path) -> None:
        """Raises SinkConflictError where there is such a file."""
        try:
            os.link(Path(self.staged.uri, action.path), place)
        except FileExistsError as error:
            raise SinkConflictError(f"Another task has landed {place} meanwhile.") from error

    def _empty_file(self, schema: pa.Schema) -> FileAction:
        return write_empty_file(self.staged, schema, {_PIPELINE: self.pipeline})

    def _starts(self) -> list[int]:
        """Where the batches begin that are there."""
        try:
            names = map(_BATCH.fullmatch, os.listdir(self.uri))
        except FileNotFoundError:
            return []
        return [int(name[1]) for name in names if name is not None]

    def _newest(self) -> _Batch | None:
        """From the one that was seen last, each folder's files name the next; only without one are all looked through,
        of which there may be very many."""
        known = _SEEN.get(self.uri)
        if known is None or not self._folder(known).is_dir():
            if not (starts := self._starts()):
                return None
            known = max(starts)
        batch = self._batch(known)
        while self._folder(batch.lsn).is_dir():
            batch = self._batch(batch.lsn)
        if _SEEN.get(self.uri) != batch.after:
            flush(self.uri)  # whoever renamed it may have died before this
            _SEEN[self.uri] = batch.after
        return batch

    def _folder(self, after: int) -> Path:
        return Path(self.uri, f"{AFTER}={after}")

    def _batch(self, after: int) -> _Batch:
        folder = self._folder(after)
        found = {file: _FILE.fullmatch(file.name) for file in folder.iterdir()}
        parts = sorted((int(name[2]), file, name) for file, name in found.items() if name is not None)
        if not parts or len({name[1] for _, _, name in parts}) > 1 or parts[-1][0] != len(parts) - 1:
            raise TargetError(f"Files of {folder} are lost, or are not its own.", hint=f"Put them back. {RESYNC}")
        last = parts[-1][2]
        return _Batch(after, int(last[1]), last[4], tuple(file for _, file, _ in parts))

    def _require_empty(self) -> None:
        foreign = {name for name in os.listdir(self.uri) if name != STAGED} if Path(self.uri).exists() else set()
        if foreign:
            raise TargetError(f"{self.uri} holds files that are not this table's: {min(foreign)}.", hint=_NOT_OURS)
        make_folder(Path(self.staged.uri))

    @contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise failure(self.uri, error) from error
