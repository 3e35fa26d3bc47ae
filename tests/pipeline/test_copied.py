"""How much of a copy is read is counted from what is durable: each chunk once, what an earlier run had read apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.pipeline.conftest import LocalEngine, LocalJobs, Site
from tests.pipeline.test_table_folder import CHUNK, PLAN
from wal2lake.changelog.documents import read_document
from wal2lake.pipeline.copied import Copied, Read, bytes_total
from wal2lake.pipeline.loop import Pipeline
from wal2lake.tables.chunks import BLOCK_BYTES
from wal2lake.tables.state import Chunk, TableState
from wal2lake.tables.table_folder import TableFolder

CUT = replace(PLAN, chunks=(Chunk(0, 0, 10), Chunk(1, 10, 20), Chunk(2, 20, None)), blocks=23)


def test_chunks_are_counted_once_by_rows_and_bytes(tmp_path: Path) -> None:
    folder = TableFolder(tmp_path, "p", "shop", "item")
    folder.write(TableState())
    folder.finish_chunk("p1", CHUNK)
    copied = Copied(CUT, folder)
    assert (copied.rows_read, copied.bytes_read, copied.lately) == (10, 10 * BLOCK_BYTES, Read(0, 0))
    folder.finish_chunk("p1", replace(CHUNK, number=2, rows=5))
    (tmp_path / folder.documents.folder / "chunk-0000.p1.json").write_text("read no more")
    copied.look()
    assert (copied.rows_read, copied.lately) == (15, Read(5, 3 * BLOCK_BYTES))
    folder.documents.remove_chunks()
    copied.look()
    assert copied.bytes_read == 13 * BLOCK_BYTES and bytes_total(CUT) == 23 * BLOCK_BYTES


def test_a_plan_that_noted_no_size_has_an_end_of_unknown_size(tmp_path: Path) -> None:
    folder = TableFolder(tmp_path, "p", "shop", "item")
    folder.write(TableState())
    folder.finish_chunk("p1", replace(CHUNK, number=2))
    assert Copied(replace(CUT, blocks=0), folder).bytes_read == 0


@pytest.mark.server
def test_while_spark_starts_the_status_says_so(site: Site) -> None:
    site.sql("CREATE TABLE public.a (id int PRIMARY KEY)")
    site.publish("a")
    site.capture()
    said: list[tuple[str, str | None]] = []

    class Engine(LocalEngine):
        def __enter__(self) -> LocalJobs:
            file = Path(site.config.log.path) / "status" / "pipeline.json"
            document = read_document(file.read_bytes(), "pipeline.json")
            said.append((document["state"], document["doing"]))
            return super().__enter__()

    Pipeline(site.config, Engine(site), site.stop).run()
    assert said == [("starting", "starting Spark")]
    assert site.status()["doing"] is None
