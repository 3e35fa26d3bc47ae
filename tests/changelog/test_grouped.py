"""The rows of an extent by relation are those that one finds by looking at each row."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from wal2lake.changelog.format import SEGMENT_SCHEMA
from wal2lake.changelog.grouped import Grouped

ROW = st.tuples(st.sampled_from(list(b"IUDBCRT")), st.integers(1, 5))


def segment(rows: list[tuple[int, int]]) -> pa.RecordBatch:
    columns = {
        "lsn": range(len(rows)),
        "tag": [tag for tag, _ in rows],
        "relation_id": [of for _, of in rows],
        "xid": [0] * len(rows),
        "payload": [b"%d" % number for number in range(len(rows))],
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[field.name], field.type) for field in SEGMENT_SCHEMA], schema=SEGMENT_SCHEMA
    )


@given(st.lists(ROW, max_size=40), st.integers(0, 40), st.integers(0, 40))
def test_each_relations_changes_in_order(rows: list[tuple[int, int]], first: int, stop: int) -> None:
    batch = segment(rows)
    for relation in range(1, 7):
        found = Grouped(batch).of(relation)
        start, end = found.between(first, stop)
        kinds = b"IUDBCRT" if any(tag == ord("T") for tag, _ in rows) else b"IUD"
        mine = [
            number
            for number, (tag, of) in enumerate(rows)
            if first <= number < stop and tag in kinds and (of == relation or kinds != b"IUD")
        ]
        assert found.batch.slice(start, max(0, end - start))["lsn"].to_pylist() == mine
