"""Which files a version has, and with which vectors, is what delta-rs says of it, however the log came to be."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from wal2lake.deltadv.bitmap import VectorError, marked
from wal2lake.deltadv.log import DataFile, LiveFiles, commit_file, data_files, feature_actions
from wal2lake.deltadv.vectors import read_vector, write_vectors
from wal2lake.files import create

ROWS = 100


def files_of(folder: Path) -> Any:
    return pa.fs.SubTreeFileSystem(str(folder), pa.fs.LocalFileSystem())


def enabling(table: DeltaTable) -> list[dict[str, Any]]:
    protocol, metadata = table.protocol(), table.metadata()
    actions = feature_actions(
        (
            *(protocol.min_reader_version, protocol.min_writer_version),
            *(protocol.reader_features or (), protocol.writer_features or ()),
        ),
        {
            **{"id": metadata.id, "name": None, "description": None, "format": {"provider": "parquet", "options": {}}},
            **{"schemaString": table.schema().to_json(), "partitionColumns": [], "createdTime": 0},
            "configuration": metadata.configuration,
        },
    )
    assert actions is not None
    return actions


def said(files: dict[str, DataFile]) -> dict[str, Any]:
    """What a checkpoint and the commits say alike."""
    return {path: (of.rows, of.vector) for path, of in files.items()}


def commit(folder: Path, version: int, actions: list[dict[str, Any]]) -> bool:
    name, data = commit_file(version, actions)
    return create(folder / name, data)


def mark(folder: Path, positions: list[int]) -> None:
    """Mark these rows of the table's only file, in a commit of its own."""
    table, files = DeltaTable(folder), files_of(folder)
    [of] = data_files(files, table.version()).values()
    vectors, _ = write_vectors(files, {of.path: marked(np.array(positions))})
    actions = [{"commitInfo": {"timestamp": 0}}, *enabling(table), of.removed(1, True)]
    assert commit(folder, table.version() + 1, [*actions, of.marked(vectors[of.path], True)])


def by_delta_rs(table: DeltaTable) -> dict[str, list[int]]:
    """The positions that are marked in each file, by delta-rs."""
    found: dict[str, list[int]] = {Path(uri).name: [] for uri in table.file_uris()}
    rows = pa.table(table.deletion_vectors().read_all())
    for path, kept in zip(rows["filepath"].to_pylist(), rows["selection_vector"].to_pylist(), strict=True):
        found[Path(path).name] = [at for at, keep in enumerate(kept) if not keep]
    return found


def by_us(folder: Path, version: int) -> dict[str, list[int]]:
    files = files_of(folder)
    named = data_files(files, version)
    return {path: [] if of.vector is None else list(read_vector(files, of.vector)) for path, of in named.items()}


def test_what_was_read_is_read_on_also_where_the_log_was_cleaned_up(tmp_path: Path) -> None:
    files, rows = LiveFiles(files_of(tmp_path)), pa.table({"id": [1]})
    write_deltalake(tmp_path, rows)
    assert len(files.at(0)) == 1
    for mode in ("append", "overwrite", "append"):
        write_deltalake(tmp_path, rows, mode=mode)
    DeltaTable(tmp_path).create_checkpoint()
    for version in range(3):
        os.remove(tmp_path / f"_delta_log/{version:020d}.json")
    write_deltalake(tmp_path, rows, mode="append")
    assert {*files.at(4)} == {Path(uri).name for uri in DeltaTable(tmp_path).file_uris()}
    assert len(files.at(3)) == 2


@pytest.mark.parametrize("seed", [1, 2])
def test_a_log_with_vectors_is_read_as_delta_rs_reads_it(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    files = files_of(tmp_path)
    write_deltalake(tmp_path, pa.table({"id": list(range(ROWS))}))
    reading_on = LiveFiles(files)
    for turn in range(14):
        table = DeltaTable(tmp_path)
        named = data_files(files, table.version())
        if turn % 5 == 4:
            table.create_checkpoint()
        if turn == 7:
            os.remove(tmp_path / "_delta_log/_last_checkpoint")
        what = rng.choice(["append", "mark", "mark", "remove", "delete"]) if turn else "mark"
        if what == "append":
            write_deltalake(tmp_path, pa.table({"id": list(range(ROWS))}), mode="append")
        elif what == "delete":  # by delta-rs, which rewrites files with vectors
            table.delete(f"id = {rng.randrange(ROWS)}")
        else:
            of = named[rng.choice(sorted(named))]
            held = [] if of.vector is None else list(read_vector(files, of.vector))
            positions = np.array(sorted({*held, *rng.sample(range(of.rows or 0), 7)}))
            vectors, _ = write_vectors(files, {of.path: marked(positions)})
            come = [of.marked(vectors[of.path], True)] if what == "mark" or len(named) == 1 else []
            actions = [{"commitInfo": {"timestamp": 0}}, *enabling(table), of.removed(1, True), *come]
            assert commit(tmp_path, table.version() + 1, actions)
        table = DeltaTable(tmp_path)
        assert by_us(tmp_path, table.version()) == by_delta_rs(table), f"turn {turn}, {what}"
        if turn % 3 != 1:
            assert said(reading_on.at(table.version())) == said(data_files(files, table.version()))
        kept = sum((of.rows or 0) for of in data_files(files, table.version()).values()) - sum(
            map(len, by_us(tmp_path, table.version()).values())
        )
        assert pa.table(table.scan()).num_rows == kept


def test_a_version_is_put_once(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"id": [1]}))
    before = (tmp_path / "_delta_log" / f"{0:020d}.json").read_bytes()
    assert not commit(tmp_path, 0, [{"commitInfo": {}}])
    assert (tmp_path / "_delta_log" / f"{0:020d}.json").read_bytes() == before
    assert [path.name for path in (tmp_path / "_delta_log").iterdir()] == [f"{0:020d}.json"]


def test_the_feature_is_named_beside_what_the_versions_meant() -> None:
    metadata = {"configuration": {"delta.enableDeletionVectors": "false", "delta.appendOnly": "false"}, "id": "x"}
    actions = feature_actions((1, 2, (), ()), metadata)
    assert actions is not None
    assert actions[0]["protocol"] == {
        **{"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]},
        "writerFeatures": ["appendOnly", "deletionVectors", "invariants"],
    }
    expected = {"delta.enableDeletionVectors": "true", "delta.appendOnly": "false"}
    assert actions[1]["metaData"] == {"configuration": expected, "id": "x"}
    with_time = feature_actions((3, 7, ["timestampNtz"], ["timestampNtz"]), metadata)
    assert with_time is not None
    assert with_time[0]["protocol"]["readerFeatures"] == ["deletionVectors", "timestampNtz"]
    assert with_time[0]["protocol"]["writerFeatures"] == ["deletionVectors", "timestampNtz"]
    both = ["deletionVectors"]
    assert feature_actions((3, 7, both, both), {"configuration": expected}) == []
    assert feature_actions((1, 4, (), ()), metadata) is None


def test_a_marked_file_keeps_what_the_log_said_of_it(tmp_path: Path) -> None:
    add = {"path": "a%20b.parquet", "size": 9, "partitionValues": {}, "modificationTime": 5, "dataChange": False}
    add |= {"stats": json.dumps({"numRecords": 3, "minValues": {"id": 1}}), "tags": {"x": "y"}}
    file = DataFile.of(add)
    assert (file.path, file.rows) == ("a b.parquet", 3)
    vectors, _ = write_vectors(files_of(tmp_path), {"a b.parquet": marked(np.array([1]))})
    said = file.marked(vectors["a b.parquet"], True)["add"]
    assert json.loads(said["stats"]) == {"numRecords": 3, "minValues": {"id": 1}, "tightBounds": False}
    assert said["tags"] == {"x": "y"} and said["dataChange"] is True
    assert file.removed(7, True)["remove"] == {
        **{"path": "a%20b.parquet", "deletionTimestamp": 7, "dataChange": True, "extendedFileMetadata": True},
        **{"partitionValues": {}, "size": 9},
    }
    assert DataFile.of(said).removed(7, True)["remove"]["deletionVector"] == vectors["a b.parquet"].action()


def test_a_log_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"id": [1]}))
    files, log = files_of(tmp_path), tmp_path / "_delta_log"
    with pytest.raises(FileNotFoundError):
        data_files(files, 1)
    (log / f"{1:020d}.json").write_text("{")
    with pytest.raises(VectorError, match="Version 1"):
        data_files(files, 1)
    [add] = [of.add for of in data_files(files, 0).values()]
    other = add | {"deletionVector": {"storageType": "i", "pathOrInlineDv": "", "sizeInBytes": 0, "cardinality": 0}}
    (log / f"{1:020d}.json").write_text(json.dumps({"add": other}))
    with pytest.raises(VectorError, match="twice"):
        data_files(files, 1)
    (log / f"{1:020d}.json").write_text(json.dumps({"add": add | {"stats": "{"}}))
    with pytest.raises(VectorError, match="statistics"):
        _ = data_files(files, 1)[add["path"]].rows
    (log / f"{1:020d}.checkpoint.parquet").write_bytes(b"PAR1")
    with pytest.raises(VectorError, match="no Parquet"):
        data_files(files, 1)
    pq.write_table(
        pa.table({"txn": [None]}, schema=pa.schema([("txn", pa.int8())])), log / f"{1:020d}.checkpoint.parquet"
    )
    assert data_files(files, 1) == {}
