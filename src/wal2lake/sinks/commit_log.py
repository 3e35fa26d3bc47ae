"""A Delta table's log where our commits end: what makes one last, and what is left of one that did not come about.

A file that a commit was to name goes only when no version since then names it: whether a commit that failed is there
or not, its error does not tell.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from wal2lake.deltadv.log import commit
from wal2lake.deltadv.vectors import place_of
from wal2lake.sinks.base import SinkConflictError
from wal2lake.sinks.folder import Folder


class CommitLog:
    """The log of the table in ``folder``."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def put(self, table: DeltaTable, actions: Sequence[Mapping[str, Any]], lsn: int | None = None) -> None:
        """A commit of our own making, durable, if nobody else has made that version; local tables alone."""
        if not commit(Path(self._folder.uri), table.version() + 1, actions):
            uri = self._folder.uri
            raise SinkConflictError(f"Someone else committed to the Delta table at {uri} meanwhile.", lsn=lsn)

    @contextmanager
    def durably(self, table: DeltaTable) -> Iterator[None]:
        """What the block commits to ``table`` is on stable storage when it ends."""
        loaded = table.version()
        yield
        self.sync(loaded)

    def sync(self, loaded: int) -> None:
        """Make durable what delta-rs wrote to the log beyond the version that was loaded, checkpoints included.

        The files tell: delta-rs leaves a table at the version it was loaded in when it writes a transaction.
        """
        written: list[str] = []
        for version in count(loaded + 1):
            stem = f"_delta_log/{version:020d}"
            found = self._folder.unsynced([f"{stem}.json", f"{stem}.checkpoint.parquet"])
            written += [*found, "_delta_log/_last_checkpoint"] if len(found) > 1 else found
            if not found:
                break
        self._folder.sync(written)

    @contextmanager
    def removing_if_refused(self, table: DeltaTable, paths: Collection[str]) -> Iterator[None]:
        """Remove files that the block was to commit to ``table``, and that no version since then names.

        Not on an object store: a commit whose answer was lost may arrive there yet.
        """
        loaded = table.version()
        try:
            yield
        except BaseException:
            if self._folder.is_local:
                named = b"".join(self._commits_after(loaded))
                self._folder.remove(path for path in paths if (place_of(path) or path).encode() not in named)
            raise

    def _commits_after(self, loaded: int) -> Iterator[bytes]:
        for version in count(loaded + 1):
            try:
                with self._folder.files.open_input_stream(f"_delta_log/{version:020d}.json") as stream:
                    yield stream.read()
            except FileNotFoundError:
                return
