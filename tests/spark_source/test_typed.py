"""The typed stream's rows and its schema's rules, without a JVM."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.spark_source.conftest import LogScript
from wal2lake.errors import ConfigError, SchemaChangeError
from wal2lake.pgoutput.messages import Relation, RelationColumn, Truncate
from wal2lake.pgoutput.tuples import UNCHANGED
from wal2lake.spark import typed
from wal2lake.spark.typed import plan_typed, read_typed, typed_schema
from wal2lake.tables.committed import DecodeRules, open_log
from wal2lake.testing.stream import delete, insert, relation, update

TABLE = ("public", "t")
WIDE = relation(columns=("id", "v", "w"))
RULES = DecodeRules()


def schema(log: LogScript, end: int | None = None) -> pa.Schema:
    return typed_schema(open_log(log.path), TABLE, end, RULES)


def read(log: LogScript, target: pa.Schema, start: int | None = None) -> list[dict[str, Any]]:
    span = (log.start if start is None else start, log.ends[-1])
    found = []
    for group in plan_typed(open_log(log.path), TABLE, *span):
        for batch in read_typed(log.path, TABLE, group, span, target, RULES):
            assert batch.schema == target
            found += batch.to_pylist()
    return found


def columns(target: pa.Schema) -> list[str]:
    return [name for name in target.names if not name.startswith("_")]


def of_type(type_oid: int) -> Relation:
    return Relation(16384, "public", "t", "d", (RelationColumn(1, "id", 20, -1), RelationColumn(0, "v", type_oid, -1)))


def test_the_three_nothings_are_told_apart(log: LogScript) -> None:
    log.transactions([relation(), insert(1, "a"), update(1, None), update(1, UNCHANGED), delete(1, None)])
    found = [
        (row["_op"], row["id"], row["v"], row["_unchanged"], row["_unpublished"]) for row in read(log, schema(log))
    ]
    assert found == [
        ("I", 1, "a", [], []), ("U", 1, None, [], []), ("U", 1, None, ["v"], []), ("D", 1, None, [], ["v"]),
    ]  # fmt: skip


def test_a_delete_under_replica_identity_full_has_the_whole_row(log: LogScript) -> None:
    log.transactions([relation(identity="f"), delete(1, "a", kind="O")])
    (row,) = read(log, schema(log))
    assert (row["_op"], row["v"], row["_unpublished"]) == ("D", "a", [])


def test_a_truncate_has_nothing(log: LogScript) -> None:
    log.transactions([relation(), Truncate((16384,), 0)])
    (row,) = read(log, schema(log))
    assert (row["_op"], row["id"], row["_unpublished"]) == ("T", None, ["id", "v"])


def test_rows_before_an_added_column_say_that_they_lack_it(log: LogScript) -> None:
    log.transactions([relation(), insert(1, "a")], [WIDE, insert(2, "b", None)])
    found = [(row["w"], row["_unpublished"]) for row in read(log, schema(log))]
    assert found == [(None, ["w"]), (None, [])]


def test_a_column_added_after_the_query_started_stops_it(log: LogScript) -> None:
    log.transactions([relation(), insert(1, "a")])
    target = schema(log)
    log.transactions([WIDE, insert(2, "b", "c")])
    with pytest.raises(SchemaChangeError, match=r"did not have .*column w.* Start the query again"):
        read(log, target)
    assert len(read(log, schema(log), start=log.ends[0])) == 1


def test_a_column_dropped_since_is_left_out(log: LogScript) -> None:
    log.transactions([WIDE, insert(1, "a", "x")], [relation(), insert(2, "b")])
    assert columns(schema(log)) == ["id", "v"]
    assert [row["v"] for row in read(log, schema(log))] == ["a", "b"]


def test_a_widened_column_takes_the_narrow_rows(log: LogScript) -> None:
    log.transactions([of_type(23), insert(1, 5)], [of_type(20), insert(2, 6)])
    assert schema(log).field("v").type == pa.int64()
    assert [row["v"] for row in read(log, schema(log))] == [5, 6]


def test_another_type_is_refused_and_the_schema_of_an_earlier_end_reads_it(log: LogScript) -> None:
    log.transactions([of_type(25), insert(1, "five")], [of_type(23), insert(2, 6)])
    with pytest.raises(SchemaChangeError, match=r"column v.*endingLsn"):
        read(log, schema(log))
    assert schema(log, end=log.ends[0]).field("v").type == pa.string()


def test_a_table_made_anew_goes_on_under_its_name(log: LogScript) -> None:
    log.transactions([relation(), insert(1, "a")], [relation(20000), insert(2, "b", oid=20000)])
    assert [row["id"] for row in read(log, schema(log))] == [1, 2]


def test_a_renamed_table_ends_under_its_old_name(log: LogScript) -> None:
    log.transactions([relation(), insert(1, "a")], [relation(name="t_old"), insert(2, "b")])
    with pytest.raises(ConfigError, match=r"no table public.t.*public.t_old"):
        schema(log)
    assert [row["id"] for row in read(log, schema(log, end=log.ends[0]))] == [1]


def test_an_unknown_table_is_an_error_that_names_the_known(log: LogScript) -> None:
    with pytest.raises(ConfigError, match="Known: none yet"):
        schema(log)
    log.transactions([relation(name="u"), insert(1, "a")])
    with pytest.raises(ConfigError, match=r"Known: public.u\."):
        schema(log)


def test_a_column_named_like_the_envelopes_is_refused(log: LogScript) -> None:
    for name in ("_op", "_unpublished"):
        log.transactions([relation(columns=("id", name)), insert(1, "a")])
        with pytest.raises(SchemaChangeError, match="of its own"):
            schema(log)


def test_extents_are_grouped_and_those_without_the_table_skipped(
    log: LogScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typed, "PARTITION_ROWS", 5)
    log.transactions([relation(), relation(20000, "u"), insert(1, "a")])
    log.transactions([insert(1, "a", oid=20000)])
    log.transactions([insert(2, "b")])
    log.transactions([insert(3, "c")])
    log.transactions([insert(4, "d")])
    groups = plan_typed(open_log(log.path), TABLE, log.start, log.ends[-1])
    assert [[extent.seq for extent in group] for group in groups] == [[0], [2, 3], [4]]
    assert [row["id"] for row in read(log, schema(log))] == [1, 2, 3, 4]
