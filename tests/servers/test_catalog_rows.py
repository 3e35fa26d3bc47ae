"""The catalogs of 13 to 18 tell alike what was kept from the stream, and what was not."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from wal2lake.postgres.catalog_rows import CatalogRows, look
from wal2lake.postgres.connection import connect
from wal2lake.tables.doubt import doubt, unexplained
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.servers

_MADE = (
    "CREATE TABLE seen.t (id int PRIMARY KEY, v text)",
    "INSERT INTO seen.t VALUES (1, 'x')",
    "CREATE TABLE seen.root (id int PRIMARY KEY) PARTITION BY RANGE (id)",
    "CREATE TABLE seen.leaf PARTITION OF seen.root FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE seen.other (id int PRIMARY KEY)",
    "CREATE PUBLICATION seen FOR TABLE seen.t, seen.root WITH (publish_via_partition_root)",
)
DOUBTFUL = (
    "ALTER PUBLICATION seen DROP TABLE seen.t; ALTER PUBLICATION seen ADD TABLE seen.t",
    "ALTER PUBLICATION seen SET (publish = 'insert'); ALTER PUBLICATION seen SET (publish = 'insert, update, delete')",
    "ALTER TABLE seen.root DETACH PARTITION seen.leaf;"
    " ALTER TABLE seen.root ATTACH PARTITION seen.leaf FOR VALUES FROM (0) TO (10)",
    "TRUNCATE seen.leaf",
    "ALTER TABLE seen.t ADD u uuid DEFAULT gen_random_uuid(); ALTER TABLE seen.t ALTER u DROP DEFAULT",
    "ALTER TABLE seen.t RENAME v TO w",
)
BENIGN = (
    "GRANT SELECT ON seen.t TO PUBLIC; COMMENT ON TABLE seen.t IS 'x'; CREATE INDEX ON seen.t (v); ANALYZE seen.t",
    "ALTER TABLE seen.t ADD n int DEFAULT 3; ALTER TABLE seen.t ALTER n DROP DEFAULT",
    "CREATE TABLE seen.leaf_2 PARTITION OF seen.root FOR VALUES FROM (10) TO (20)",
    "ALTER PUBLICATION seen ADD TABLE seen.other",
)


@pytest.fixture
def made(versioned: EmbeddedPostgres) -> Iterator[psycopg.Connection]:
    drop = "DROP PUBLICATION IF EXISTS seen; DROP SCHEMA IF EXISTS seen CASCADE"
    with psycopg.connect(versioned.dsn, autocommit=True) as connection:
        connection.execute(f"{drop}; CREATE SCHEMA seen".encode())
        for statement in _MADE:
            connection.execute(statement.encode())
        yield connection
        connection.execute(drop.encode())


def _rows(dsn: str, oids: list[int]) -> dict[int, CatalogRows]:
    with connect(dsn) as connection:
        return dict(look(connection, "seen", oids).rows)


@pytest.mark.parametrize("script", DOUBTFUL + BENIGN)
def test_what_the_catalog_tells(versioned: EmbeddedPostgres, made: psycopg.Connection, script: str) -> None:
    oids = [row[0] for row in made.execute("SELECT unnest('{seen.t, seen.root}'::regclass[])::oid::bigint")]
    before = _rows(versioned.dsn, oids)
    for statement in script.split(";"):
        made.execute(statement.encode())
    after = _rows(versioned.dsn, oids)
    reasons = [doubt(before[oid], after[oid]) or unexplained(before[oid], after[oid]) for oid in oids]
    assert any(reasons) == (script in DOUBTFUL), reasons
