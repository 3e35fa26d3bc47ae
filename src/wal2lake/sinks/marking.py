"""A Delta commit that swaps files, and may mark rows in others: delta-rs's own actions know no deletion vectors.

It says what delta-rs's commits of ours say, put if absent as they are, and the first one that marks rows of a table
says besides that it may have vectors. So vectors, data files and LSN are one commit, or none of them is.

Source: Delta transaction log protocol, "Commit Provenance Information", "Transaction Identifiers".
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from deltalake import DeltaTable
from deltalake.transaction import AddAction

from wal2lake.deltadv.log import ENABLED, FEATURE, DataFile, feature_actions
from wal2lake.deltadv.vectors import Vector

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.=/-]+")
_WORDS: Final = {
    "partition_values": "partitionValues",
    "modification_time": "modificationTime",
    "data_change": "dataChange",
}


def has_vectors(table: DeltaTable) -> bool:
    """Whether a file of the table may have one."""
    return FEATURE in (table.protocol().reader_features or ())


def may_mark(table: DeltaTable) -> bool:
    """Whether rows of the table may be marked: its protocol is one that we extend, and its properties do not say no."""
    protocol, configuration = table.protocol(), dict(table.metadata().configuration)
    versions = protocol.min_reader_version, protocol.min_writer_version
    features = protocol.reader_features or (), protocol.writer_features or ()
    known = feature_actions((*versions, *features), {"configuration": configuration}) is not None
    return known and configuration.get(ENABLED) != "false"


def commits_alike(table: DeltaTable) -> bool:
    """Whether a commit of our own making says all that delta-rs's would: the table's protocol is one that we know."""
    protocol = table.protocol()
    return protocol.min_reader_version in (1, 3) and protocol.min_writer_version in (1, 2, 7)


def is_plain(path: str) -> bool:
    """Whether the log has the file's name as it is: of other characters it has their numbers."""
    return _PLAIN.fullmatch(path) is not None


def enabling(table: DeltaTable) -> list[dict[str, Any]] | None:
    """What the first commit that marks rows says besides; None: this table's protocol is none that we extend."""
    protocol = table.protocol()
    versions = protocol.min_reader_version, protocol.min_writer_version
    features = protocol.reader_features or (), protocol.writer_features or ()
    return feature_actions((*versions, *features), _metadata(table))


def _metadata(table: DeltaTable) -> dict[str, Any]:
    """As the log has it."""
    metadata = table.metadata()
    return {
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": table.schema().to_json(),
        "partitionColumns": list(metadata.partition_columns),
        "configuration": dict(metadata.configuration),
        "createdTime": metadata.created_time,
    }


def enabling_actions(
    table: DeltaTable, said: Mapping[str, str], transactions: Mapping[str, int]
) -> list[dict[str, Any]]:
    """The commit after which rows of the table may be marked, whatever it said before; [] where there is none."""
    changed = enabling(table)
    return [*_entries("SET TBLPROPERTIES", said, transactions), *changed] if changed else []


def property_actions(
    table: DeltaTable, said: Mapping[str, str], transactions: Mapping[str, int], properties: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The commit that sets these properties and nothing else: delta-rs's, on a table that has features, names in it one
    more that nobody asked for (variantType), which older readers do not know.
    """
    metadata = _metadata(table)
    changed = {**metadata, "configuration": {**metadata["configuration"], **properties}}
    return [*_entries("SET TBLPROPERTIES", said, transactions), {"metaData": changed}]


def description_actions(
    table: DeltaTable, said: Mapping[str, str], transactions: Mapping[str, int], text: str
) -> list[dict[str, Any]]:
    """The commit that has the table described by ``text``. Asked to say so, delta-rs keeps Python's lock until a store
    has answered."""
    metadata = {**_metadata(table), "description": text}
    return [*_entries("UPDATE TABLE METADATA", said, transactions), {"metaData": metadata}]


def swapping_actions(
    table: DeltaTable,
    said: Mapping[str, str],
    transactions: Mapping[str, int],
    come: Sequence[AddAction],
    go: Sequence[DataFile],
    marked: Sequence[tuple[DataFile, Vector]],
    changed: bool,
) -> list[dict[str, Any]]:
    """The commit in which files ``come`` and ``go``, and others stand with another vector.

    ``said``: what the commit's own entry has besides; ``changed``: whether the table has other rows then.
    """
    now = time.time_ns() // 1_000_000
    actions = [*_entries("WRITE", said, transactions), *((enabling(table) or []) if marked else [])]
    actions += [file.removed(now, changed) for file in (*go, *(file for file, _ in marked))]
    actions += [file.marked(vector, changed) for file, vector in marked]
    return [*actions, *({"add": _as_json(add)} for add in come)]


def _entries(operation: str, said: Mapping[str, str], transactions: Mapping[str, int]) -> list[dict[str, Any]]:
    """What each of our commits begins with."""
    now = time.time_ns() // 1_000_000
    entry = {"timestamp": now, "operation": operation, "operationParameters": {}, "engineInfo": "wal2lake", **said}
    every = [{"txn": {"appId": of, "version": at, "lastUpdated": now}} for of, at in transactions.items()]
    return [{"commitInfo": entry}, *every]


def _as_json(add: AddAction) -> dict[str, Any]:
    return {_WORDS.get(name, name): value for name, value in asdict(add).items()}
