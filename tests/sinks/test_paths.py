"""Where a table lies in the lake: any name has a folder of its own, which every reader finds."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

from tests.apply.build import Event
from tests.sinks.test_delta import ROWS, as_table, folded, land, read
from wal2lake.apply.fold import Folded
from wal2lake.errors import SinkError
from wal2lake.lakes import table_uri
from wal2lake.sinks.delta import DeltaSink


def test_names_of_any_kind(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("Weird Name", pa.int64()),
            ("select", pa.string()),
            ('quo"te`', pa.string()),
            ("a.b", pa.int32()),
            ("é", pa.date32()),
        ]
    )
    sink = DeltaSink(table_uri(str(tmp_path), "My Schema", "50% / ..é"), "p")
    assert Path(sink.uri).relative_to(tmp_path) == Path("My~20Schema/50~25~20~2F~20..~C3~A9")
    row = (1, "a", "b", 2, date(2020, 2, 3))
    land(sink, as_table([row, (2, *row[1:])], schema), 1, None)
    other = (2, "z", None, 3, None)
    upserts = as_table([other], schema)
    key = upserts.select(["Weird Name"])
    sink.merge(Folded(("Weird Name",), False, upserts, key.slice(1), {}, key), 2, 1)
    assert sorted(read(sink), key=repr) == [row, other]
    with pytest.raises(SinkError, match="case only"):
        land(sink, as_table([], pa.schema([("id", pa.int64()), ("ID", pa.int64())])), 3, 2)


def test_any_lake_path_will_do_but_one_with_escapes(tmp_path: Path) -> None:
    sink = DeltaSink(table_uri(str(tmp_path / "50% é [x] q?#{*}"), "s", "t"), "p")
    land(sink, as_table(ROWS), 10, None)
    sink.merge(folded(Event("D", old=(0, None, None, None))), 11, 10)
    assert sorted(read(sink)) == ROWS[1:]
    with pytest.raises(SinkError, match="escape"):
        DeltaSink(str(tmp_path / "a%20b"), "p")


def test_paths_are_plain_and_differ() -> None:
    names = ["a", "A", "a b", "a~20b", "a%20b", ".", "..", "_a", "a/b", "é", "a\\b"]
    paths = [table_uri("lake/", "s", name) for name in names]
    assert len(set(paths)) == len(names)
    for path in paths:
        assert path.count("/") == 2
        assert path.rpartition("/")[2][0] not in "._"
        assert path.isascii()
