"""A Delta table's log where our commits end: what each says, what makes it last, and what is left of one that failed.

Most are files of our own making: delta-rs lists the log's folder for each, which grows with the past that the table
keeps, and its actions know no deletion vectors (marking.py). Such a commit is durable when it is there at all. A
file that a commit was to name goes only when no version since then names it: whether a commit that failed is there
or not, its error does not tell. On an object store delta-rs's may have counted and its answer been lost, and what was
put again is refused then because of itself: so each has a name of its own there, by which it is known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, Final
from uuid import uuid4

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction

from wal2lake.deltadv.log import DataFile, commit_file
from wal2lake.deltadv.vectors import place_of, write_vectors
from wal2lake.lsn import LSN
from wal2lake.sinks.base import SinkConflictError
from wal2lake.sinks.dead_rows import DeadRows
from wal2lake.sinks.folder import Folder
from wal2lake.sinks.marking import swapping_actions

_NO_HOOKS: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


class CommitLog:
    """The log of the table in ``folder``, a target of ``pipeline``. ``app_id``: of the app transactions that are the
    applied LSN."""

    def __init__(self, folder: Folder, pipeline: str) -> None:
        self.app_id: Final = f"wal2lake:{pipeline}"
        self._folder = folder
        self._pipeline = pipeline
        self._name = ""

    def said(self, lsn: int | None, marks: Mapping[str, int | None]) -> tuple[dict[str, str], dict[str, int]]:
        """The entries in a commit's own words, and its app transactions; ``marks``: those beside the LSN's."""
        said = {"wal2lake.pipeline": self._pipeline} | ({} if lsn is None else {"wal2lake.lsn": str(LSN(lsn))})
        every = {self.app_id: lsn, **marks}
        return said, {name: int(mark) for name, mark in every.items() if mark is not None}

    def options(self, lsn: int | None, marks: Mapping[str, int | None] | None = None) -> dict[str, Any]:
        """The same as delta-rs's options."""
        said, every = self.said(lsn, marks or {})
        if not self._folder.is_local:
            self._name = said["wal2lake.commit"] = uuid4().hex
        properties = CommitProperties(
            said,
            max_commit_retries=0,
            app_transactions=[Transaction(name, mark) for name, mark in every.items()],
        )
        return {"commit_properties": properties, "post_commithook_properties": _NO_HOOKS}

    def swap(
        self,
        table: DeltaTable,
        come: Sequence[AddAction],
        removed: Sequence[str],
        dead: DeadRows,
        known: Mapping[str, DataFile],
        lsn: int | None,
        marks: Mapping[str, int | None],
    ) -> None:
        """Commit that files ``come`` and others are ``removed``, and what ``dead`` says is marked now in those that
        stay. ``known``: the files of which it speaks."""
        gone = set(removed)
        marked_now = {path: positions for path, positions in dead.marked.items() if path not in gone}
        vectors, file = write_vectors(self._folder.files, marked_now) if marked_now else ({}, None)
        written = [] if file is None else [file]
        with self.removing_if_refused(table, written):
            self._folder.sync(written)
            go = [known[path] for path in removed]
            marked = [(known[path], vector) for path, vector in vectors.items()]
            self.put(table, swapping_actions(table, *self.said(lsn, marks), come, go, marked, lsn is not None), lsn)

    def put(self, table: DeltaTable, actions: Sequence[Mapping[str, Any]], lsn: int | None = None) -> None:
        """A commit of our own making, durable, if nobody else has made that version."""
        name, data = commit_file(table.version() + 1, actions)
        if not self._folder.put_if_absent(name, data):
            uri = self._folder.uri
            raise SinkConflictError(f"Someone else committed to the Delta table at {uri} meanwhile.", lsn=lsn)

    @contextmanager
    def durably(self, table: DeltaTable, *, one: bool = False) -> Iterator[None]:
        """What the block commits to ``table`` is on stable storage when it ends; ``one``: it is one commit and no more,
        which counts when it is there."""
        loaded = table.version()
        try:
            yield
        except (DeltaError, OSError):
            if not one or not self.is_named(loaded + 1):
                raise
        self.sync(loaded)

    def is_named(self, version: int) -> bool:
        """This version is delta-rs's commit that was named last."""
        if self._folder.is_local:
            return False
        try:
            with self._folder.files.open_input_stream(f"_delta_log/{version:020d}.json") as stream:
                return self._name.encode() in stream.read()
        except FileNotFoundError:
            return False

    def sync(self, loaded: int) -> None:
        """Make durable what delta-rs wrote to the log beyond the version that was loaded, checkpoints included; −1: and
        that there is a log.

        The files tell: delta-rs leaves a table at the version it was loaded in when it writes a transaction.
        """
        written: list[str] = []
        for version in count(loaded + 1):
            stem = f"_delta_log/{version:020d}"
            found = self._folder.unsynced([f"{stem}.json", f"{stem}.checkpoint.parquet"])
            written += [*found, "_delta_log/_last_checkpoint"] if len(found) > 1 else found
            if not found:
                break
        self._folder.sync(written, new=loaded < 0)

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
