"""Changes against a naive reader of the same messages, row by row: made at random, and streamed by a real server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.columnar.stream import SESSION, LogRow, batch, peek, schemas
from wal2lake.columnar import changes as module
from wal2lake.columnar.changes import Changes, decode_changes, iter_changes
from wal2lake.columnar.types import TableSchema
from wal2lake.pgoutput.codec import read_message, write_message
from wal2lake.pgoutput.messages import Begin, Delete, Insert, PgoutputMessage, Truncate, Update
from wal2lake.pgoutput.tuples import NULL, UNCHANGED, OldTuple, TupleColumn, TupleData
from wal2lake.testing.embedded import EmbeddedPostgres

MINE, OTHER = 7, 0xFFFFFFFE
Values = list[str | None]


@dataclass
class Expected:
    """What Changes must say, as plain lists; ``unchanged`` and values are per change, then per column."""

    heads: list[tuple[str, int, int, int, str]] = field(default_factory=list)
    new: list[Values | None] = field(default_factory=list)
    unchanged: list[list[bool]] = field(default_factory=list)
    old: list[Values | None] = field(default_factory=list)


def text_schema(columns: int, relation_id: int = MINE) -> TableSchema:
    return TableSchema.build(relation_id, "s", "t", [(f"c{place}", 25, -1, None, False) for place in range(columns)])


def as_text(schema: TableSchema) -> TableSchema:
    """The same table with every column as text, so that the naive reader needs no types."""
    columns = [(c.name, 25, -1, None, c.key) for c in schema.columns]
    return TableSchema.build(schema.relation_id, schema.namespace, schema.name, columns)


def values(columns: Sequence[TupleColumn]) -> Values:
    return [None if column.data is None else column.data.decode() for column in columns]


def naive(rows: Sequence[LogRow], relation_id: int, columns: int) -> Expected:
    expected = Expected()
    new: TupleData | None
    old: OldTuple | None
    for place, (lsn, xid, payload) in enumerate(rows):
        match read_message(payload):
            case Insert() as insert if insert.relation_id == relation_id:
                old, new = None, insert.new
            case Update() as update if update.relation_id == relation_id:
                old, new = update.old, update.new
            case Delete() as delete if delete.relation_id == relation_id:
                old, new = delete.old, None
            case Truncate() as truncate if relation_id in truncate.relation_ids:
                old, new = None, None
            case _:
                continue
        expected.heads.append((chr(payload[0]), place, lsn, xid, old.kind if old else "\0"))
        expected.old.append(values(old.columns) if old else None)
        expected.unchanged.append([False] * columns)
        expected.new.append(values(new.columns) if new else None)
        for number, column in enumerate(new.columns if new else ()):
            if column.kind == "u":
                from_old = old is not None and old.kind == "O" and old.columns[number].kind != "u"
                expected.unchanged[-1][number] = not from_old
                expected.new[-1][number] = expected.old[-1][number] if from_old else None  # type: ignore[index]
    return expected


def assert_same(changes: Changes, expected: Expected) -> None:
    heads = zip(changes.kind, changes.row, changes.lsn, changes.xid, changes.old_kind, strict=True)
    assert [(chr(k), int(r), int(n), int(x), chr(o)) for k, r, n, x, o in heads] == expected.heads
    count = len(changes.schema.columns)
    for number in range(count):
        changes.new[number].validate(full=True)
        assert changes.new[number].to_pylist() == [new and new[number] for new in expected.new]
        mask = changes.unchanged[number]
        assert mask is None or mask.any()
        assert [False] * len(changes) == [u[number] for u in expected.unchanged] if mask is None else (
            mask.tolist() == [u[number] for u in expected.unchanged]
        )  # fmt: skip
        if changes.old is not None:
            assert changes.old[number].to_pylist() == [old and old[number] for old in expected.old]
    assert (changes.old is None) == all(old is None for old in expected.old)


texts = st.sampled_from(["", "a", "N", "é", "\0", "😀", "null", "x" * 127, "x" * 128, "é" * 130, "y" * 70_000]).map(
    str.encode
)
cells = st.sampled_from([NULL, UNCHANGED]) | st.builds(TupleColumn, st.sampled_from("tb"), texts)


@st.composite
def log_rows(draw: st.DrawFn) -> tuple[int, list[LogRow]]:
    columns = draw(st.integers(0, 4))
    tuples = st.tuples(*[cells] * columns)
    relation = st.sampled_from([MINE, OTHER])
    new, old = tuples.map(TupleData), st.builds(OldTuple, st.sampled_from("KO"), tuples)
    message = st.one_of(
        st.builds(Insert, relation, new),
        st.builds(Update, relation, st.none() | old, new),
        st.builds(Delete, relation, old),
        st.builds(
            Truncate,
            options=st.sampled_from([0, 1, 2, 3]),
            relation_ids=st.lists(relation, min_size=1, max_size=3).map(tuple),
        ),
        st.just(Begin(1, 2, 3)),  # type: ignore[arg-type]
    )
    messages: list[PgoutputMessage] = draw(st.lists(message, max_size=12))
    return columns, [(100 + place, place % 3, write_message(m)) for place, m in enumerate(messages)]


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(log_rows(), st.integers(0, 12), st.integers(0, 12))
def test_against_the_naive_reader(made: tuple[int, list[LogRow]], one: int, two: int) -> None:
    columns, rows = made
    schema, whole = text_schema(columns), batch(rows)
    assert_same(decode_changes(whole, schema), naive(rows, MINE, columns))
    first, after = sorted(min(edge, len(rows)) for edge in (one, two))
    part = decode_changes(whole, schema, (first, after))
    blanked = [row if first <= place < after else (0, 0, rows_begin()) for place, row in enumerate(rows)]
    assert_same(part, naive(blanked, MINE, columns))


def rows_begin() -> bytes:
    return write_message(Begin(1, 2, 3))  # type: ignore[arg-type]


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(log_rows())
def test_parts_are_the_same_as_the_whole(made: tuple[int, list[LogRow]]) -> None:
    columns, rows = made
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wal2lake.columnar.buffer.BLOCK_ROWS", 2)
        parts = list(iter_changes(batch(rows), text_schema(columns)))
        assert all(len(part) <= 2 for part in parts)
        assert_same(Changes.concat(parts), naive(rows, MINE, columns))


def test_the_bytes_of_old_tuples_count() -> None:
    value = TupleData((TupleColumn("t", b"12345678"),))
    inserted, updated = (
        decode_changes(batch([(1, 1, write_message(message))]), text_schema(1))
        for message in (Insert(MINE, value), Update(MINE, OldTuple("O", value.columns), value))
    )
    assert inserted.nbytes > 0
    assert updated.nbytes == 2 * inserted.nbytes


def test_a_slice_of_a_batch_is_read_in_place() -> None:
    rows = [(n, 1, write_message(Insert(MINE, TupleData((TupleColumn("t", b"%d" % n),))))) for n in range(9)]
    changes = decode_changes(batch(rows).slice(3, 4), text_schema(1))
    assert changes.new[0].to_pylist() == ["3", "4", "5", "6"]
    assert changes.lsn.tolist() == [3, 4, 5, 6]


def test_inserts_are_decoded_with_nothing_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(n, 1, write_message(Insert(MINE, TupleData((TupleColumn("t", b"1"),))))) for n in range(3)]
    monkeypatch.setattr(module, "TupleColumns", None)  # what holds tuples that were moved to other rows
    assert len(decode_changes(batch(rows), text_schema(1))) == 3


@pytest.mark.server
def test_a_real_stream(server: EmbeddedPostgres) -> None:
    rows = _real_rows(server)
    found = schemas(rows)
    assert set(found) == {"plain", "whole", "none"}
    seen = set()
    for schema in found.values():
        expected = naive(rows, schema.relation_id, len(schema.columns))
        changes = decode_changes(batch(rows), as_text(schema))
        assert_same(changes, expected)
        for kind, old_kind, unchanged in zip(changes.kind, changes.old_kind, expected.unchanged, strict=True):
            seen.add((chr(kind), chr(old_kind), any(unchanged)))
    assert seen >= {
        ("I", "\0", False), ("U", "\0", False), ("U", "\0", True), ("U", "K", True), ("U", "O", False),
        ("D", "K", False), ("D", "O", False), ("T", "\0", False),
    }  # fmt: skip
    full = decode_changes(batch(rows), found["whole"])
    updated = [n for n, kind in enumerate(full.kind) if kind == ord("U")]
    assert {len(full.new[2][n].as_py()) for n in updated} == {0, 10_000}  # unchanged TOAST came from the old tuple


def _real_rows(server: EmbeddedPostgres) -> list[LogRow]:
    with psycopg.connect(server.dsn, autocommit=True, options=SESSION) as connection:
        connection.execute("SET synchronous_commit TO on")
        connection.execute("DROP SCHEMA IF EXISTS chg CASCADE; CREATE SCHEMA chg; SET search_path TO chg")
        for name in ("plain", "whole", "none"):
            connection.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, a int, big text)")
            connection.execute(f"ALTER TABLE {name} ALTER big SET STORAGE EXTERNAL")
        connection.execute("ALTER TABLE whole REPLICA IDENTITY FULL; ALTER TABLE none REPLICA IDENTITY NOTHING")
        connection.execute("CREATE PUBLICATION chg FOR TABLES IN SCHEMA chg")
        connection.execute("SELECT pg_create_logical_replication_slot('chg', 'pgoutput')")
        try:
            for name in ("plain", "whole", "none"):
                connection.execute(f"INSERT INTO {name} SELECT i, i, repeat('ü', 10000) FROM generate_series(1, 5) i")
            for name in ("plain", "whole"):
                connection.execute(f"UPDATE {name} SET a = NULL WHERE id < 3; UPDATE {name} SET id = 10 WHERE id = 4")
                connection.execute(f"UPDATE {name} SET big = '' WHERE id = 10; DELETE FROM {name} WHERE id IN (1, 10)")
                connection.execute(f"UPDATE {name} SET id = id + 100; INSERT INTO {name} VALUES (1, 2, NULL)")
            connection.execute("TRUNCATE plain; TRUNCATE plain, whole, none")
            return peek(server.dsn, "chg", "chg")
        finally:
            connection.execute("SELECT pg_drop_replication_slot('chg'); DROP PUBLICATION chg; DROP SCHEMA chg CASCADE")


def test_no_rows_at_all() -> None:
    changes = decode_changes(batch([]), text_schema(2))
    assert len(changes) == 0
    assert [array.type for array in changes.new] == [pa.string(), pa.string()]


def test_a_relation_with_few_rows_among_many_is_one_part() -> None:
    mine, other = (write_message(Insert(rel, TupleData((TupleColumn("t", b"x" * 3000),)))) for rel in (MINE, OTHER))
    rows = [(n, 1, mine if n % 100 == 0 else other) for n in range(1000)]
    parts = list(iter_changes(batch(rows), text_schema(1)))
    assert [len(part) for part in parts] == [10]
    assert_same(parts[0], naive(rows, MINE, 1))
