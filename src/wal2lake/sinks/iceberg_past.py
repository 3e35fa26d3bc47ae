"""How long an Iceberg table keeps its snapshots, and what goes from the disk with them.

A snapshot is let go when its successor is older than what is kept: so long may a query run that began with it. What a
snapshot has removed goes with the last one before it; and manifests that the oldest one left does not name, for in a
line of snapshots none comes back. Where a branch or tag keeps an older snapshot, files stay.

The time is as in retention.py. Iceberg's own property of the table, ``history.expire.max-snapshot-age-ms``, counts
alone where somebody set it.

Source: Iceberg, "Table Spec", "Snapshot Retention Policy".
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from wal2lake.sinks.folder import Folder
from wal2lake.sinks.history import ORPHAN_S
from wal2lake.sinks.retention import Retention

MAINTAIN_EVERY: Final = 10  # snapshots; each overwrite leaves a manifest that all after it look into
_AGE: Final = "history.expire.max-snapshot-age-ms"
_SWEEP_EVERY: Final = 50  # maintenances: it reads what all snapshots name
_METADATA_FILES: Final = 4  # of a commit: two manifests, their list, the table's metadata


def maintenance_due(table: Table) -> bool:
    """Whether the commit that made this version is the one that maintenance comes with."""
    return (table.metadata.next_sequence_number() - 1) % MAINTAIN_EVERY == 0


def has_dead_manifests(table: Table) -> bool:
    """Some list nothing but files that are gone: each overwrite leaves one behind, which all after it carry along."""
    snapshot = table.current_snapshot()
    manifests = [] if snapshot is None else snapshot.manifests(table.io)
    return not all(manifest.has_added_files() or manifest.has_existing_files() for manifest in manifests)


class Past:
    """What the table at ``uri`` was."""

    def __init__(self, table: Table, uri: str, retention: Retention) -> None:
        self._table = table
        self._folder = Folder(uri)
        self._retention = retention
        self._now = time.time()
        self._line = list(_ancestors(table))  # newest first

    def settle(self) -> float | None:
        """Let go of what need not be kept. Returns after how many seconds there is more; None: never."""
        kept_s = self._kept_seconds()
        keep = 1 + sum(self._age(snapshot) <= kept_s for snapshot in self._line)  # those, and what came before them
        gone, line = self._line[keep:], self._line[:keep]
        expendable = {snapshot.snapshot_id for snapshot in gone} - self._pinned()
        if expendable:
            dead = self._dead_files(gone, line, expendable)
            self._table.maintenance.expire_snapshots().by_ids(sorted(expendable)).commit()
            self._remove(dead)
        if (self._table.metadata.next_sequence_number() - 1) % (MAINTAIN_EVERY * _SWEEP_EVERY) == 0 or len(
            self._line
        ) == 1:
            self._sweep(max(kept_s, ORPHAN_S))
        return max(0.0, kept_s - self._age(line[-2])) if len(line) > 1 else None

    def _kept_seconds(self) -> float:
        if (own := self._table.metadata.properties.get(_AGE, "")).isdigit():
            return int(own) / 1000
        past = [(self._age(snapshot), size) for snapshot in self._line for size in _took(snapshot)]
        stands = int(_summary(self._line[0], "total-files-size")) if self._line else 0
        return self._retention.seconds_for(past, None, stands)

    def _age(self, snapshot: Snapshot) -> float:
        return self._now - snapshot.timestamp_ms / 1000

    def _pinned(self) -> set[int]:
        return {reference.snapshot_id for reference in self._table.metadata.refs.values()}

    def _dead_files(self, gone: Sequence[Snapshot], line: Sequence[Snapshot], expendable: set[int]) -> list[str]:
        """What is named by none of the snapshots that stay."""
        io = self._table.io
        dead = [snapshot.manifest_list for snapshot in gone if snapshot.snapshot_id in expendable]
        if len(expendable) < len(gone):
            return dead  # one that is pinned may name any of the rest
        manifests = {
            manifest.manifest_path: manifest for snapshot in [*gone, line[-1]] for manifest in snapshot.manifests(io)
        }
        named = {manifest.manifest_path for manifest in line[-1].manifests(io)}
        removers = {snapshot.snapshot_id for snapshot in [*gone, line[-1]]}
        for path, manifest in manifests.items():
            if path not in named:
                dead.append(path)
            if manifest.added_snapshot_id in removers and manifest.deleted_files_count != 0:
                entries = manifest.fetch_manifest_entry(io, discard_deleted=False)
                dead += [entry.data_file.file_path for entry in entries
                         if entry.status == ManifestEntryStatus.DELETED and entry.snapshot_id in removers]  # fmt: skip
        return dead

    def _sweep(self, older_s: float) -> None:
        """Files that nothing names: of writers that died, and of commits that were refused."""
        if not self._folder.is_local:
            return
        found = {file.path for file in self._folder.files_below() if self._now - file.since > older_s}
        if found:
            named = set(self._named())
            self._folder.remove(path for path in found if f"{self._folder.uri}/{path}" not in named)

    def _named(self) -> Iterator[str]:
        io, metadata = self._table.io, self._table.metadata
        yield from (_plain(entry.metadata_file) for entry in metadata.metadata_log)
        yield _plain(self._table.metadata_location)
        for snapshot in metadata.snapshots:
            yield _plain(snapshot.manifest_list)
            for manifest in snapshot.manifests(io):
                yield _plain(manifest.manifest_path)
                yield from (_plain(entry.data_file.file_path) for entry in manifest.fetch_manifest_entry(io))

    def _remove(self, paths: Sequence[str]) -> None:
        for path in dict.fromkeys(paths):
            try:
                self._table.io.delete(path)
            except FileNotFoundError:
                continue


def _ancestors(table: Table) -> Iterator[Snapshot]:
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)


def _took(snapshot: Snapshot) -> list[int]:
    """The bytes of the files that a commit has left behind on the disk: what it removed, and its own metadata."""
    return [int(_summary(snapshot, "removed-files-size")), *[0] * _METADATA_FILES]


def _summary(snapshot: Snapshot, name: str) -> str:
    return (snapshot.summary[name] if snapshot.summary is not None else None) or "0"


def _plain(place: str) -> str:
    return str(Path(place.removeprefix("file://").removeprefix("file:")))
