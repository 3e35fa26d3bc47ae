"""Transactions that lie in the log in chunks, between those of others, are applied as what they are."""

from __future__ import annotations

from contextlib import ExitStack

import psycopg
import pytest

from tests.pipeline.conftest import Site

pytestmark = pytest.mark.server

FLUSHED = "-c synchronous_commit=on"  # decoding sees only that


@pytest.mark.parametrize("mode", ["mirror", "append"])
def test_interleaved_transactions_with_savepoints_and_a_new_column(site: Site, mode: str) -> None:
    site.configure(site.folder_of_lake("t").parents[2], mode=mode)
    site.sql("CREATE TABLE public.t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (0, 'before')")
    site.publish("t")
    site.run()
    site.streaming = True
    site.sql("SET logical_decoding_work_mem = '64kB'")
    with ExitStack() as stack:
        one, two, gone = (stack.enter_context(psycopg.connect(site.dsn, options=FLUSHED)) for _ in range(3))
        for turn in range(2):
            for first, session in ((10_000, one), (20_000, two), (30_000, gone)):
                rows = f"SELECT g, 'v' || g FROM generate_series({first + turn * 500}, {first + turn * 500 + 499}) g"
                session.execute(f"INSERT INTO t {rows}; SAVEPOINT a".encode())
        gone.rollback()
        two.commit()
        one.execute(b"UPDATE t SET v = NULL WHERE id < 10100 AND id >= 10000; DELETE FROM t WHERE id = 10499")
        one.execute(b"ALTER TABLE t ADD w text; UPDATE t SET w = 'new' WHERE id = 10001")
        site.capture()  # in the midst, as a capture that was killed leaves it
        site.sql("CREATE TABLE public.u (id int)")
        one.commit()
    site.run()
    assert sum(segment.streamed for segment in site.log().segments) == 2
    if mode == "mirror":
        site.same("public.t")
    else:
        rows = site.lake_table("public.t").to_pylist()
        assert [row["_op"] for row in rows].count("I") == 2000 and len({row["_xid"] for row in rows}) == 3
