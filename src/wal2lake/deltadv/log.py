"""The data files of one version as the log names them, each with its vector, and the actions that change them.

A data file with another vector is another logical file: it comes by one action and the old one goes by another, in one
commit. Statistics of a file with a vector are those of all its rows, marked or not, and say so.

Source: Delta transaction log protocol, "Add File and Remove File", "Action Reconciliation", "Checkpoints",
"Per-file Statistics".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from wal2lake.deltadv.bitmap import VectorError
from wal2lake.deltadv.vectors import Vector

FEATURE: Final = "deletionVectors"
ENABLED: Final = "delta.enableDeletionVectors"
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(\.(\d{10})\.(\d{10}))?\.parquet")
_IMPLIED: Final = ("appendOnly", "invariants")  # what version 2 for writers means, in the words of version 7


@dataclass(frozen=True)
class DataFile:
    """``add``: the action that named it, as JSON has it; what it does not say is left out."""

    add: Mapping[str, Any]
    vector: Vector | None

    @classmethod
    def of(cls, add: Mapping[str, Any]) -> DataFile:
        described = add.get("deletionVector")
        return cls(add, None if described is None else Vector.of(described))

    @property
    def path(self) -> str:
        """Below the table's folder, without the log's escapes."""
        return unquote(self.add["path"])

    @property
    def rows(self) -> int | None:
        """All that are in it, those that are marked too; None where the log does not say."""
        return _statistics(self.add).get("numRecords")

    def marked(self, vector: Vector, data_change: bool) -> dict[str, Any]:
        """The action by which it stands in the log with this vector and no other."""
        statistics = json.dumps(_statistics(self.add) | {"tightBounds": False})
        changed = {"dataChange": data_change, "stats": statistics, "deletionVector": vector.action()}
        return {"add": {**self.add, **changed}}

    def removed(self, now_ms: int, data_change: bool) -> dict[str, Any]:
        """The action by which it is gone, with the vector that it had."""
        said = {
            "path": self.add["path"],
            "deletionTimestamp": now_ms,
            "dataChange": data_change,
            "extendedFileMetadata": True,
            "partitionValues": self.add.get("partitionValues", {}),
            "size": self.add["size"],
        }
        return {"remove": said if self.vector is None else {**said, "deletionVector": self.vector.action()}}


def _statistics(add: Mapping[str, Any]) -> dict[str, Any]:
    try:
        said = json.loads(add.get("stats") or "{}")
    except ValueError as error:
        raise VectorError("The log has statistics of a file that are no JSON.") from error
    return said if isinstance(said, dict) else {}


_Live = dict[tuple[str, str], DataFile]  # by path and vector


class LiveFiles:
    """The data files of one version after the other: what was read for one is read on for a later one, as long as the
    log is what it was. ``files``: the ``pyarrow.fs`` file system of the table's folder."""

    def __init__(self, files: Any) -> None:
        self._files = files
        self._version = -1
        self._live: _Live = {}

    def at(self, version: int) -> dict[str, DataFile]:
        """Those of ``version``, by path. Raises VectorError for a log that cannot be read, and OSError."""
        try:
            live = self._read_on(self._version, dict(self._live), version) if 0 <= self._version <= version else None
        except FileNotFoundError:  # the log before a checkpoint was cleaned up meanwhile
            live = None
        if live is None:
            start, parts = _last_checkpoint(self._files, version) or _newest_checkpoint(self._files, version)
            of_checkpoint = {_key(add): DataFile.of(add) for part in parts for add in _adds_of(self._files, part)}
            live = self._read_on(start, of_checkpoint, version)
        found = {file.path: file for file in live.values()}
        if len(found) < len(live):
            raise VectorError("The log names a data file twice, with different deletion vectors.")
        self._version, self._live = version, live
        return found

    def _read_on(self, start: int, live: _Live, version: int) -> _Live:
        """What is live in ``version``, of what is in ``start``, which it changes."""
        for number in range(start + 1, version + 1):
            actions = _actions_of(self._files, number)
            for action in actions:
                if "remove" in action:
                    live.pop(_key(action["remove"]), None)
            for action in actions:
                if "add" in action:
                    live[_key(action["add"])] = DataFile.of(action["add"])
        return live


def data_files(files: Any, version: int) -> dict[str, DataFile]:
    """The data files of the table's version ``version``, by path. Raises as ``LiveFiles.at`` does."""
    return LiveFiles(files).at(version)


def _key(action: Mapping[str, Any]) -> tuple[str, str]:
    described = action.get("deletionVector")
    return unquote(action["path"]), "" if described is None else Vector.of(described).identity


def _actions_of(files: Any, version: int) -> list[dict[str, Any]]:
    with files.open_input_stream(f"_delta_log/{version:020d}.json") as stream:
        lines = stream.read().splitlines()
    try:
        return [json.loads(line) for line in lines if line.strip()]
    except ValueError as error:
        raise VectorError(f"Version {version} in the log is no JSON.") from error


def _adds_of(files: Any, path: str) -> Iterator[dict[str, Any]]:
    try:
        with files.open_input_file(path) as stream, pq.ParquetFile(stream) as file:
            rows = file.read(columns=["add"])
    except pa.ArrowException as error:
        raise VectorError(f"The checkpoint {path} is no Parquet file.") from error
    for row in rows["add"].drop_null().to_pylist() if rows.num_columns else []:
        said = {name: value for name, value in row.items() if value is not None and not name.endswith("_parsed")}
        maps = {name: dict(said[name]) for name in ("partitionValues", "tags") if name in said}
        vector = {name: value for name, value in (row.get("deletionVector") or {}).items() if value is not None}
        yield said | maps | ({"deletionVector": vector} if vector else {})


def _last_checkpoint(files: Any, version: int) -> tuple[int, Sequence[str]] | None:
    """As the log's own hint says, if that is there and can be right."""
    try:
        with files.open_input_stream("_delta_log/_last_checkpoint") as stream:
            hint = json.loads(stream.read())
        found, parts = int(hint["version"]), int(hint.get("parts") or 0)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    stem = f"_delta_log/{found:020d}.checkpoint"
    names = [f"{stem}.{part:010d}.{parts:010d}.parquet" for part in range(1, parts + 1)] or [f"{stem}.parquet"]
    there = all(info.type == pa.fs.FileType.File for info in files.get_file_info(names))
    return (found, names) if found <= version and there else None


def _newest_checkpoint(files: Any, version: int) -> tuple[int, Sequence[str]]:
    """By what lies in the log's folder; −1: there is none, and the log begins at its first version."""
    whole: dict[tuple[int, int], list[str]] = {}
    for info in files.get_file_info(pa.fs.FileSelector("_delta_log")):
        match = _CHECKPOINT.fullmatch(Path(info.path).name)
        if match is not None and int(match[1]) <= version:
            whole.setdefault((int(match[1]), int(match[4] or 1)), []).append(info.path)
    complete = {key: paths for key, paths in whole.items() if len(paths) == key[1]}
    if not complete:
        return -1, []
    newest = max(complete)
    return newest[0], complete[newest]


def feature_actions(
    protocol: tuple[int, int, Iterable[str], Iterable[str]], metadata: Mapping[str, Any]
) -> list[dict[str, Any]] | None:
    """What a commit has to say besides, so that it may mark rows; None: the table's protocol is none of ours.

    ``protocol``: versions for readers and writers, features for readers and writers. ``metadata``: as in the log.
    """
    reader, writer, reads, writes = protocol
    reads, writes = set(reads), set(writes)
    said: list[dict[str, Any]] = []
    if FEATURE not in reads or FEATURE not in writes:
        if reader not in (1, 3) or writer not in (1, 2, 7):
            return None
        writes |= {FEATURE, *reads, *(_IMPLIED if writer == 2 else ())}
        features = {"readerFeatures": sorted(reads | {FEATURE}), "writerFeatures": sorted(writes)}
        said.append({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}})
    if metadata["configuration"].get(ENABLED) != "true":
        said.append({"metaData": {**metadata, "configuration": {**metadata["configuration"], ENABLED: "true"}}})
    return said


def commit_file(version: int, actions: Iterable[Mapping[str, Any]]) -> tuple[str, bytes]:
    """The file that makes ``version`` of a table when it is put into its folder where none of that name is, durably.

    The files that the actions name must be durable.
    """
    lines = "".join(f"{json.dumps(action, separators=(',', ':'))}\n" for action in actions)
    return f"_delta_log/{version:020d}.json", lines.encode()
