"""What names a row in the mirror is what the server itself goes by, and nothing that only looks like a key."""

from __future__ import annotations

import pytest

from tests.pipeline.conftest import Site

pytestmark = pytest.mark.server


@pytest.mark.parametrize("when", ["DEFERRABLE", "DEFERRABLE INITIALLY DEFERRED"])
def test_a_deferrable_primary_key_does_not_name_rows(site: Site, when: str) -> None:
    """Amid a transaction two rows may share such a key, so folding by it would lose one of them."""
    site.sql(
        f"CREATE TABLE public.place (id int PRIMARY KEY {when}, note text)",
        "ALTER TABLE place REPLICA IDENTITY FULL",
        "INSERT INTO place SELECT i, 'n' || i FROM generate_series(1, 5) i",
    )
    site.publish("place")
    site.run()
    site.sql("UPDATE place SET id = id + 1", "DELETE FROM place WHERE id = 4")
    site.run()
    site.same("public.place")


def test_a_deferrable_primary_key_without_full_identity_takes_inserts(site: Site) -> None:
    site.sql("CREATE TABLE public.place (id int PRIMARY KEY DEFERRABLE)", "INSERT INTO place VALUES (1)")
    site.publish("place")
    site.run()
    site.sql("INSERT INTO place VALUES (2)")
    site.run()
    site.same("public.place")


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_a_part_of_the_key_names_no_row(site: Site, identity: str) -> None:
    """A publication of inserts alone need not list the whole key."""
    site.sql(
        "CREATE TABLE public.part (a int, b int, note text, PRIMARY KEY (a, b))",
        f"ALTER TABLE part REPLICA IDENTITY {identity}",
        "INSERT INTO part VALUES (1, 1, 'x'), (2, 1, 'x')",
    )
    site.publish("part (b, note)")
    site.sql("ALTER PUBLICATION pub SET (publish = 'insert')")
    site.run()
    site.sql("INSERT INTO part VALUES (3, 1, 'y')")
    site.run()
    assert site.lake("public.part") == [(1, "x"), (1, "x"), (1, "y")]
