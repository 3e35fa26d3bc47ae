"""What a merge of three rows costs after a day of versions, beside what it costs after a hundred.

A table of 50,000 rows takes a hundred merges, with maintenance as it falls due. A copy of it then gets 19,900 versions
more, one in four seconds, the last just now: commits as the sink's are, in each of which a small file of one row goes
and another comes, written into the log directly, with some of the checkpoints that the sink would have made. It is
maintained once, which is told. Then both take merges of three rows, by turns, and maintenance as it falls due, which
counts. What counts is this process's CPU, all threads. The ratio is the older table's to the younger's.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

from deltalake import DeltaTable

from bench import common
from bench.mirror_scale import SCHEMA, filled, rows, spread
from wal2lake.sinks.delta import MAINTAIN_EVERY, DeltaSink

BAR = 1.5
ROWS = 50_000
YOUNG = 100
EVERY_S = 4
CHECKPOINT_EVERY = 500


def main(argv: list[str]) -> int:
    """`python -m bench uptime [--versions N] [--merges N]`."""
    parser = argparse.ArgumentParser(prog="python -m bench uptime", description=__doc__)
    parser.add_argument("--versions", type=int, default=20_000, help="of the older table (20000)")
    parser.add_argument("--merges", type=int, default=100, help="that are measured in each table (100)")
    options = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="wal2lake-uptime"))
    try:
        young = filled(folder / "young", ROWS, True)
        for turn in range(YOUNG):
            _merge(young, turn)
        shutil.copytree(folder / "young", folder / "old")
        old = DeltaSink(str(folder / "old"), "bench", deletion_vectors=True)
        _age(old, options.versions - YOUNG)
        began, files = time.process_time(), _files(old)
        old.maintain()
        print(f"maintenance: {time.process_time() - began:.2f} s CPU, from {files} to {_files(old)} files in the log")
        took = {young: 0.0, old: 0.0}
        for turn in range(options.merges):
            for sink in took:
                took[sink] += _merge(sink, turn)
        for sink, seconds in took.items():
            version, each = DeltaTable(sink.uri).version(), seconds / options.merges
            print(f"version {version:,}: {each * 1000:.1f} ms CPU a merge, {_files(sink)} files in the log")
    finally:
        shutil.rmtree(folder)
    return common.judge("ratio", took[old] / took[young], BAR, at_most=True)


def _merge(sink: DeltaSink, turn: int) -> float:
    """CPU seconds, maintenance included."""
    state, batch = sink.state(), spread(ROWS, 3, turn)
    assert state is not None
    began = time.process_time()
    if sink.merge(batch, state.applied_lsn + 1, state.applied_lsn):
        sink.maintain()
    return time.process_time() - began


def _files(sink: DeltaSink) -> int:
    return len(os.listdir(f"{sink.uri}/_delta_log"))


def _age(sink: DeltaSink, count: int) -> None:
    """So many versions more, which became the table's one after the other up to now."""
    state, folder = sink.state(), Path(sink.uri)
    assert state is not None
    [like] = sink.write_files(rows([ROWS], 0).to_batches(), SCHEMA)
    now, before = time.time(), None
    for there in folder.rglob("*"):
        os.utime(there, (now - count * EVERY_S, now - count * EVERY_S))
    for number in range(1, count + 1):
        path = f"part-{number:036d}.zstd.parquet"
        shutil.copyfile(folder / like.path, folder / path)
        then = now - (count - number) * EVERY_S
        stats = json.dumps({"numRecords": 1, "minValues": {"id": ROWS}, "maxValues": {"id": ROWS}, "nullCount": {}})
        said = {"path": path, "size": like.size, "partitionValues": {}, "dataChange": True}
        actions = [
            {"commitInfo": {"timestamp": int(then * 1000), "operation": "WRITE", "operationParameters": {}}},
            {
                "txn": {
                    "appId": "wal2lake:bench",
                    "version": state.applied_lsn + number,
                    "lastUpdated": int(then * 1000),
                }
            },
            {"add": {**said, "modificationTime": int(then * 1000), "stats": stats}},
        ]
        if before is not None:
            actions.append({"remove": {**before, "deletionTimestamp": int(then * 1000), "extendedFileMetadata": True}})
        before = said
        log = folder / f"_delta_log/{state.version + number:020d}.json"
        log.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
        written = [log, folder / path]
        if number % CHECKPOINT_EVERY == 0 or number == count // MAINTAIN_EVERY * MAINTAIN_EVERY:
            DeltaTable(folder).create_checkpoint()
            written.append(log.with_suffix(".checkpoint.parquet"))
        for file in written:
            os.utime(file, (then, then))
    (folder / like.path).unlink()
