"""Chunks cover every block exactly once, and a plan is void as soon as rows may have moved without an event."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.conftest import LocalJobs
from wal2lake.columnar.framing import Framed
from wal2lake.config import Config
from wal2lake.pipeline.interrupts import Interrupts
from wal2lake.pipeline.snapshots import Snapshots
from wal2lake.postgres.catalog import CatalogColumn, PublishedTable
from wal2lake.postgres.catalog_rows import CatalogRows
from wal2lake.tables.chunk_copy import one_large_at_a_time
from wal2lake.tables.chunks import mirror_key, plan_chunks, plan_snapshot, still_holds
from wal2lake.tables.table import Tables

ID = CatalogColumn("id", 1, 20, -1, 20, "bigint", "pg_catalog.int8out", True, True)
NOTE = CatalogColumn("note", 2, 25, -1, 25, "text", "pg_catalog.textout", False, False)
TABLE = PublishedTable(7, "shop", "item", "d", (ID, NOTE), ("id",), 1000, -1, None)


@given(st.integers(0, 1 << 32), st.integers(1 << 20, 1 << 30), st.integers(1, 64))
def test_chunks_cover_the_table_once_and_stay_open_at_the_end(blocks: int, chunk_bytes: int, parallelism: int) -> None:
    blocks = min(blocks, chunk_bytes // 8)  # keeps the number of chunks within reason
    chunks = plan_chunks(blocks, chunk_bytes, parallelism)
    assert [chunk.number for chunk in chunks] == list(range(len(chunks)))
    assert chunks[0].block_from == 0
    assert chunks[-1].block_to is None
    for left, right in itertools.pairwise(chunks):
        assert left.block_to == right.block_from > left.block_from
    for chunk in chunks[:-1]:
        assert chunk.block_to is not None
        assert (chunk.block_to - chunk.block_from) * 8192 <= chunk_bytes + 8192


def test_an_empty_or_small_table_is_one_chunk() -> None:
    assert len(plan_chunks(0, 1 << 20, 8)) == len(plan_chunks(128, 1 << 20, 8)) == 1


def test_several_chunks_keep_all_cores_busy() -> None:
    assert len(plan_chunks(300, 1 << 20, 2)) == 4


def test_a_plan_is_void_when_columns_filter_table_or_heap_change() -> None:
    plan = plan_snapshot(TABLE, "1663/5/16400", 1 << 20, 2)
    assert still_holds(plan, TABLE, "1663/5/16400")
    assert still_holds(plan, replace(TABLE, blocks=2000, row_estimate=9), "1663/5/16400")
    assert not still_holds(plan, TABLE, "1663/5/16999")
    for changed in (
        replace(TABLE, relation_id=8),
        replace(TABLE, columns=(ID,)),
        replace(TABLE, row_filter="(id > 5)"),
        replace(TABLE, columns=(ID, replace(NOTE, type_oid=1043))),
    ):
        assert not still_holds(plan, changed, "1663/5/16400")
    assert not still_holds(plan, TABLE, "1663/5/16400", text_columns=("shop.item.id",))


def test_the_mirrors_key_is_the_replica_identity_and_under_full_the_primary_key() -> None:
    assert mirror_key(TABLE) == ("id",)
    full = replace(TABLE, replica_identity="f", columns=(ID, replace(NOTE, key=True)))
    assert mirror_key(full) == ("id",)
    assert mirror_key(replace(full, primary_key=())) == ()
    assert mirror_key(replace(TABLE, columns=(replace(ID, key=False), NOTE), primary_key=())) == ()


ROWS = CatalogRows("shop.item", (), True, (), ())
KEYLESS = replace(TABLE, replica_identity="f", columns=(ID, replace(NOTE, key=True)), primary_key=())


@pytest.mark.parametrize(
    ("table", "mode", "kept"), [(TABLE, "mirror", True), (KEYLESS, "mirror", False), (TABLE, "append", False)]
)
def test_only_rows_with_a_key_go_on_under_a_later_rounds_plan(
    table: PublishedTable, mode: str, kept: bool, tmp_path: Path
) -> None:
    """A killed driver's task may outlive it: what it finishes must not count where snapshots cannot be joined."""
    lake, log = str(tmp_path / "lake"), str(tmp_path / "log")
    config = Config.from_dict({"lake": {"mode": mode, "path": lake}, "log": {"path": log}})
    tables = Tables(config)
    known = tables.of("shop", "item")
    snapshots = Snapshots(config, LocalJobs(), tables, 1, Interrupts(threading.Event()))
    plans = []
    for _ in range(2):
        snapshots.plan(known, table, "heap", ROWS)
        plans.append(known.plan.plan_id)
    assert (plans[0] == plans[1]) is kept


def test_of_large_chunks_threads_read_one_at_a_time() -> None:
    """Whatever their heap's size said: the second waits where it becomes one, until the first is through."""
    piece = Framed.of([bytes(6 << 20)])
    first, second = (one_large_at_a_time(iter([piece] * 3)) for _ in range(2))
    light = one_large_at_a_time(iter([piece]))
    assert (next(first), next(first), next(second)) == (piece, piece, piece)
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(lambda: next(second))
        assert list(light) == [piece]
        with pytest.raises(TimeoutError):
            waiting.result(0.05)
        assert list(first) == [piece]
        assert waiting.result(10) is piece
    second.close()
    assert len(list(one_large_at_a_time(iter([piece] * 3)))) == 3
