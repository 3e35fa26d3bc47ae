from __future__ import annotations

from typing import Any

from tests.spark_source.conftest import LogScript
from wal2lake.pgoutput.messages import Truncate
from wal2lake.pipeline.control import CONTROL_SCHEMA, control_rows, read_control
from wal2lake.tables.committed import DecodeRules, open_log
from wal2lake.testing.stream import delete, insert, relation, update

T, OTHER = 16384, 16390


def rows(log: LogScript, start: int, end: int) -> list[dict[str, Any]]:
    return list(control_rows(open_log(log.path), start, end, DecodeRules()))


def counts(row: dict[str, Any]) -> tuple[str, int, int, int, int]:
    return row["table"], row["inserts"], row["updates"], row["deletes"], row["truncates"]


def test_one_row_per_extent_and_table(log: LogScript) -> None:
    log.transactions([relation(), relation(OTHER, "u"), insert(1, "a"), update(1, "b"), insert(5, "x", oid=OTHER)])
    log.transactions([delete(1, None), Truncate((T, OTHER), 0)])
    found = rows(log, log.start, log.ends[1])
    assert [counts(row) for row in found] == [
        ("t", 1, 1, 0, 0),
        ("u", 1, 0, 0, 0),
        ("t", 0, 0, 1, 1),
        ("u", 0, 0, 0, 1),
    ]
    assert [row["seq"] for row in found] == [0, 0, 1, 1]
    assert {(row["start_lsn"], row["end_lsn"]) for row in found} == {(log.start, log.ends[1])}


def test_part_of_a_segment_is_counted_by_itself(log: LogScript) -> None:
    log.transactions([relation(), insert(1, "a")], [insert(2, "b"), insert(3, "c")], [delete(1, None)])
    assert [counts(row) for row in rows(log, log.ends[0], log.ends[1])] == [("t", 2, 0, 0, 0)]


def test_a_change_of_schema_divides_the_extent(log: LogScript) -> None:
    log.transactions([relation(), insert(1, "a")], [relation(columns=("id", "v", "w")), insert(2, "b", "c")])
    first, second = rows(log, log.start, log.ends[1])
    assert first["schema_digest"] != second["schema_digest"]
    assert first["row_stop"] == second["row_start"]
    assert (first["inserts"], second["inserts"]) == (1, 1)


def test_a_range_without_changes_has_no_rows(log: LogScript) -> None:
    log.transactions([relation()])
    assert list(read_control(log.path, log.start, log.ends[0], DecodeRules())) == []


def test_the_batch_has_the_constant_schema(log: LogScript) -> None:
    log.transactions([relation(), insert(1, "a")])
    (batch,) = read_control(log.path, log.start, log.ends[0], DecodeRules())
    assert batch.schema == CONTROL_SCHEMA
