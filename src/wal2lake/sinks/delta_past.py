"""What lies in a Delta table's folder beside the files of its newest version: its past, and what nobody ever named.

A removed file stands in the log as a tombstone until a checkpoint leaves it out, which any writer does by the table's
own property, whether the file is deleted or not. Nobody would know of it then: so whoever deletes reads the tombstones
first, then makes the checkpoint, and deletes; and no commit of ours makes a checkpoint by itself.

Source: Delta transaction log protocol, "Checkpoints" and "Add File and Remove File".
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

import pyarrow.parquet as pq

from wal2lake.deltadv.vectors import Vector, place_of
from wal2lake.files import ASIDE
from wal2lake.sinks.folder import File, Folder
from wal2lake.sinks.retention import Retention, interval_seconds
from wal2lake.sinks.sink_errors import using_file

REMOVED_FILES: Final = "delta.deletedFileRetentionDuration"
LOG: Final = "delta.logRetentionDuration"
_DEFAULT_S: Final = 7 * 86_400  # Delta's, where a table does not say
_FORMER: Final = {REMOVED_FILES: 86_400, LOG: 6 * 3600}  # what tables were given before there was a setting
_LOG_FOLDER: Final = "_delta_log/"
_CHECKPOINT: Final = re.compile(r"_delta_log/(\d{20})\.checkpoint(\.\d{10}\.\d{10})?\.parquet")
_COLUMNS: Final = ["remove.path", "remove.deletionTimestamp", "remove.size", "remove.deletionVector"]
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Past:
    """Of one table: the ``removed`` files that the log still names, those of the ``log``, ``unnamed`` files of data and
    vectors, and what a commit left that was not finished.

    ``checkpoint``: the version of the newest one, −1: there is none. ``live_bytes``: of the newest version's files.
    """

    removed: list[File]
    log: list[File]
    unnamed: list[File]
    checkpoint: int
    live_bytes: int
    now: float = field(default_factory=time.time)

    def settle(
        self, configuration: Mapping[str, str | None], ours: Mapping[str, int], retention: Retention
    ) -> dict[str, int]:
        """The retention properties that have to say something else from now on, in seconds; ``ours``: what we said.

        Any other value is the user's, and stays, unless it is what the setting says.
        """
        changes: dict[str, int] = {}
        for name, files, room in ((REMOVED_FILES, self.removed, self.live_bytes), (LOG, self.log, 0)):
            stands = interval_seconds(configuration.get(name) or "")
            if stands is None or stands not in (ours.get(name, _FORMER[name]), retention.seconds):
                continue
            seconds = retention.seconds_for([(self.now - file.since, file.size) for file in files], stands, room)
            if seconds != ours.get(name):
                changes[name] = seconds
        return changes

    def has_expired_log(self, configuration: Mapping[str, str | None]) -> bool:
        """Whether delta-rs would find something of the log to delete, for which it looks through all of it."""
        kept_s = interval_seconds(configuration.get(LOG) or "")
        return kept_s is None or any(file.since < self.now - kept_s for file in self.log)


def kept_seconds(uri: str, configuration: Mapping[str, str | None]) -> int:
    """For how long the table says that it keeps its removed files, as delta-rs understands it."""
    stands = configuration.get(REMOVED_FILES)
    seconds = None if stands is None else interval_seconds(stands)
    if stands is not None and seconds is None:
        _warn(uri, stands)
    return _DEFAULT_S if seconds is None else seconds


@cache
def _warn(uri: str, stands: str) -> None:
    """Once."""
    _logger.warning(
        "The Delta table at %s says %s = %r, which cannot be read: removed files are kept for 7 days, Delta's default."
        " Write it like 'interval 30 days'.",
        uri,
        REMOVED_FILES,
        stands,
    )


def read_past(folder: Folder, live: Mapping[str, int]) -> Past:
    """What lies there beside the files of the newest version, ``live``, with their sizes (0: another file's part)."""
    found = folder.files_below()
    log = [file for file in found if file.path.startswith(_LOG_FOLDER)]
    names = sorted(file.path for file in log)
    checkpoint, parts = _newest_checkpoint(names)
    removed = {} if not parts else _tombstones(folder, parts)
    for name in names:
        if name.endswith(".json") and name[len(_LOG_FOLDER) :][:20].isdigit() and _version(name) > checkpoint:
            _replay(folder, name, removed)
    gone = {path: file for path, file in removed.items() if path not in live}
    there = [file for file in found if _is_data(file.path)]
    unfinished = [file for file in log if file.path.endswith(ASIDE)]
    return Past(
        removed=[replace(gone[file.path], size=file.size) for file in there if file.path in gone],
        log=log,
        unnamed=[file for file in there if file.path not in live and file.path not in gone] + unfinished,
        checkpoint=checkpoint,
        live_bytes=sum(live.values()),
    )


def _is_data(path: str) -> bool:
    """Data or vectors, in the table's folder itself."""
    return (path.endswith(".parquet") and "/" not in path) or place_of(path) is not None


def _newest_checkpoint(names: Sequence[str]) -> tuple[int, list[str]]:
    """Its version and its files; another writer may have made several, of which all must be there."""
    parts: dict[int, list[str]] = {}
    for name in names:
        if match := _CHECKPOINT.fullmatch(name):
            parts.setdefault(int(match[1]), []).append(name)
    for version in sorted(parts, reverse=True):
        whole = [name for name in parts[version] if name.count(".") == 2]
        if whole or len(parts[version]) == int(parts[version][0].split(".")[-2]):
            return version, whole or parts[version]
    return -1, []


def _version(name: str) -> int:
    return int(name[len(_LOG_FOLDER) :][:20])


def _tombstones(folder: Folder, parts: Iterable[str]) -> dict[str, File]:
    found: dict[str, File] = {}
    for part in parts:
        with using_file(folder.uri), pq.ParquetFile(folder.files.open_input_file(part)) as file:
            actions = file.read(columns=_COLUMNS)
        rows = actions["remove"].drop_null().to_pylist() if actions.num_columns else []
        for row in rows:
            _remove(row, found)
    return found


def _replay(folder: Folder, name: str, removed: dict[str, File]) -> None:
    """A commit removes files, and may bring some back (RESTORE)."""
    with using_file(folder.uri), folder.files.open_input_stream(name) as stream:
        lines = stream.read().splitlines()
    for action in map(json.loads, lines):
        if "remove" in action:
            _remove(action["remove"], removed)
        elif "add" in action:
            removed.pop(action["add"]["path"], None)


def _remove(action: Mapping[str, Any], removed: dict[str, File]) -> None:
    """The file goes, and with it its vector. Whenever rows were marked it went as well, and came back: a checkpoint
    has all of that, in any order, and what counts is when it went last; so it does of a file of several vectors."""
    since = (action.get("deletionTimestamp") or 0) / 1000
    described = action.get("deletionVector")
    vector = None if described is None else Vector.of(described).path
    for path, size in ((action["path"], action.get("size") or 0), (vector, 0)):
        if path is not None and (path not in removed or removed[path].since <= since):
            removed[path] = File(path, size, since)
