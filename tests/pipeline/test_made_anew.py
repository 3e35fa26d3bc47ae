"""Two tables of one name: what the log says of the one that is gone is nothing to the other."""

from __future__ import annotations

import pytest

from tests.pipeline.conftest import Site
from wal2lake.errors import SchemaChangeError

pytestmark = pytest.mark.server

ANEW = ("DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY, x text)", "ALTER PUBLICATION pub ADD TABLE t")


@pytest.mark.parametrize("change", ["INSERT INTO t VALUES (1, 1)", "TRUNCATE t"])
def test_a_table_that_was_gone_before_the_snapshot_is_passed_over(site: Site, change: str) -> None:
    site.sql("CREATE TABLE public.t (id int PRIMARY KEY, n int)")
    site.publish("t")
    site.sql(change, *ANEW, "INSERT INTO t VALUES (5, 'x')")
    site.run()
    site.same("public.t")
    site.sql("INSERT INTO t VALUES (6, 'y')")
    site.run()
    site.same("public.t")


def test_a_table_made_anew_after_the_snapshot_stops(site: Site) -> None:
    site.sql("CREATE TABLE public.t (id int PRIMARY KEY, n int)")
    site.publish("t")
    site.run()
    site.sql("INSERT INTO t VALUES (1, 1)", *ANEW, "INSERT INTO t VALUES (5, 'x')")
    with pytest.raises(SchemaChangeError, match="another has its name"):
        site.run()
    assert site.lake("public.t") == []
