"""One table's changes out of a real log, without a JVM."""

from __future__ import annotations

import pytest

from tests.spark_source.conftest import LogScript
from wal2lake.errors import LogMismatchError
from wal2lake.pgoutput.messages import Truncate
from wal2lake.tables.committed import CommittedChanges, DecodeRules, open_log, read_extent
from wal2lake.testing.stream import delete, insert, relation, update

T, OTHER = 16384, 16390


def read(
    script: LogScript, relation_id: int, start: int, end: int, rules: DecodeRules | None = None
) -> list[CommittedChanges]:
    """All changes of the relation in (start, end]."""
    log = open_log(script.path)
    transactions = log.transactions(start, end)
    return [
        found for extent in log.plan(start, end) for found in read_extent(log, extent, relation_id, transactions, rules)
    ]


def kinds(found: list[CommittedChanges]) -> str:
    return "".join(chr(kind) for item in found for kind in item.changes.kind)


def test_a_range_has_its_transactions_and_no_others(log: LogScript) -> None:
    log.transactions([relation(), insert(1, "a")], [update(1, "b"), insert(2, None)])
    log.transactions([delete(1, None)])
    assert kinds(read(log, T, log.start, log.ends[2])) == "IUID"
    assert kinds(read(log, T, log.ends[0], log.ends[1])) == "UI"
    assert kinds(read(log, T, log.ends[2], log.ends[2])) == ""


def test_each_row_knows_how_it_committed(log: LogScript) -> None:
    log.transactions([relation(), insert(1, "a")], [insert(2, "b"), insert(3, "c")])
    (found,) = read(log, T, log.start, log.ends[1])
    assert found.commits.end_lsn.tolist() == [log.ends[0], log.ends[1], log.ends[1]]
    assert found.changes.xid.tolist() == [701, 702, 702]
    assert (found.commits.final_lsn < found.commits.end_lsn).all()


def test_a_transaction_may_span_segments(log: LogScript) -> None:
    payloads = log.stream.transaction(relation(), insert(1, "a"), insert(2, "b"))
    log.append(payloads[:3])
    assert open_log(log.path).last_end_lsn == log.start
    log.append(payloads[3:])
    found = read(log, T, log.start, int(log.stream.lsn))
    assert [item.changes.new[0].to_pylist() for item in found] == [[1], [2]]
    assert {int(lsn) for item in found for lsn in item.commits.end_lsn} == {int(log.stream.lsn)}


def test_tables_and_schema_versions_are_kept_apart(log: LogScript) -> None:
    log.transactions(
        [relation(), relation(OTHER, "u"), insert(1, "a"), insert(7, "z", oid=OTHER)],
        [relation(columns=("id", "v", "w")), insert(2, "b", "c")],
    )
    found = read(log, T, log.start, log.ends[1])
    assert [[c.name for c in item.changes.schema.columns] for item in found] == [["id", "v"], ["id", "v", "w"]]
    assert kinds(read(log, OTHER, log.start, log.ends[1])) == "I"
    assert read(log, 1, log.start, log.ends[1]) == []


def test_a_truncate_counts_for_every_table_it_names(log: LogScript) -> None:
    log.transactions([relation(), relation(OTHER, "u"), insert(1, "a"), Truncate((T, OTHER), 0), insert(2, "b")])
    assert kinds(read(log, T, log.start, log.ends[0])) == "ITI"
    assert kinds(read(log, OTHER, log.start, log.ends[0])) == "T"


def test_columns_can_be_asked_for_as_text(log: LogScript) -> None:
    log.transactions([relation(), insert(1, "a")])
    rules = DecodeRules(text_columns=("public.t.id",))
    (found,) = read(log, T, log.start, log.ends[0], rules)
    assert found.changes.new[0].to_pylist() == ["1"]


def test_what_retention_removed_is_an_error_not_a_gap(log: LogScript) -> None:
    log.transactions([relation(), insert(1, "a")])
    log.transactions([insert(2, "b")])
    reader = open_log(log.path)
    reader.release("any", log.ends[0])
    reader.trim(retention_s=0)
    assert kinds(read(log, T, log.ends[0], log.ends[1])) == "I"
    with pytest.raises(LogMismatchError, match="retention"):
        read(log, T, log.start, log.ends[1])
