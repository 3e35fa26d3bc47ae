"""A table that could be read in part only: what was read counts as long as the stream has passed no change of it."""

from __future__ import annotations

import pytest

from tests.pipeline.conftest import Site
from wal2lake.errors import UnrepresentableError

pytestmark = pytest.mark.server


def test_changes_between_two_tries_to_read_a_table_are_not_lost(site: Site) -> None:
    site.configure_pipeline(snapshot_chunk_bytes=8192)
    site.sql(
        "CREATE TABLE public.t (id int PRIMARY KEY, n int, day date, pad text) WITH (autovacuum_enabled = off)",
        "INSERT INTO t SELECT i, 0, NULL, repeat('x', 300) FROM generate_series(1, 100) i",
        "UPDATE t SET day = 'infinity' WHERE id = 100",
    )
    site.publish("t")
    with pytest.raises(UnrepresentableError):
        site.run()
    assert site.count_chunks("public.t") > 1
    site.sql("UPDATE t SET n = 1 WHERE id <= 5", "DELETE FROM t WHERE id = 6")
    with pytest.raises(UnrepresentableError):
        site.run()
    site.sql("UPDATE t SET day = NULL")
    site.run()
    site.same("public.t")
