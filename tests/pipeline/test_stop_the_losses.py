"""A damaged file of the log's folder stops all, with its name and cure; no table is left out or wrong for it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.changelog.test_stop_the_losses import bits_flipped
from tests.pipeline.conftest import Site
from tests.pipeline.test_table_folder import CHUNK, PLAN
from wal2lake.errors import LogCorruptError
from wal2lake.lsn import LSN
from wal2lake.tables.asking import ask
from wal2lake.tables.state import Followed, Landed, Quarantine, TableState
from wal2lake.tables.table_folder import TableFolder


def read_all(folder: TableFolder) -> None:
    folder.read()
    folder.chunks("p1")


def test_any_bit_of_a_tables_documents(tmp_path: Path) -> None:
    folder = TableFolder(tmp_path, "p", "shop", "item")
    landed = Landed("p1", 5, (CHUNK.snapshot,), 7)
    quarantine = Quarantine("SchemaChangeError", "The column changed its type.", 1.5)
    folder.write(TableState("quarantined", LSN(42), PLAN, landed, Followed.of(PLAN), quarantine))
    folder.finish_chunk("p1", CHUNK)
    files = sorted((tmp_path / folder.documents.folder).glob("*.json"))
    assert len(files) == 2
    for file in files:
        whole, named = file.read_bytes(), re.escape(str(file.relative_to(tmp_path)))
        for damaged in bits_flipped(whole):
            file.write_bytes(damaged)
            with pytest.raises(LogCorruptError, match=f"{named} cannot be read.*resync"):
                read_all(folder)
        file.write_bytes(whole)
    read_all(folder)


@pytest.fixture
def two(site: Site) -> Site:
    """Two tables in the lake, and a change of each that has not been applied."""
    site.sql("CREATE TABLE a (id int PRIMARY KEY, day date)", "CREATE TABLE b (id int PRIMARY KEY)")
    site.publish("a", "b")
    site.sql("INSERT INTO a VALUES (1, '2024-01-01')")
    site.run()
    site.sql("INSERT INTO a VALUES (2, '2024-01-22')", "INSERT INTO b VALUES (2)")
    return site


@pytest.mark.server
def test_a_damaged_segment_is_no_tables_fault(two: Site) -> None:
    """The flipped bit makes a date of which there is none, which would be the table's if it were the server's."""
    two.capture()
    (file,) = (f for f in (Path(two.config.log.path) / "segments").iterdir() if b"2024-01-22" in f.read_bytes())
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"2024-01-22", b"2024-01-62"))
    with pytest.raises(LogCorruptError, match=f"{file.name}.*Restore"):
        two.run()
    assert two.state("public.a").quarantine is None
    file.write_bytes(whole)
    two.run()
    two.same("public.a", "public.b")


@pytest.mark.server
def test_a_damaged_document_stops_the_pipeline_and_its_cure_works(two: Site) -> None:
    file = two.documents("public.a") / "state.json"
    file.write_bytes(re.sub(rb"\d", lambda digit: bytes([digit[0][0] ^ 1]), file.read_bytes(), count=1))
    with pytest.raises(LogCorruptError, match=r"public\.a/state\.json.*wal2lake resync"):
        two.run()
    ask(two.config, ["public.a"], "resync")
    two.run()
    two.same("public.a", "public.b")
