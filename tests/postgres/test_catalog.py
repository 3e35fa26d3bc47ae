"""The catalog's answers, from a real server: column lists, filters, keys, domains, partitions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from wal2lake.errors import PublicationError
from wal2lake.postgres.catalog import PublishedTable, identify, published_tables
from wal2lake.postgres.connection import Connection, connect, replication_connection
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.server

SCHEMA = """
CREATE SCHEMA "The Catalog"; SET search_path = "The Catalog";
CREATE TYPE mood AS ENUM ('good', 'bad');
CREATE DOMAIN price AS numeric(10, 2);
CREATE DOMAIN net_price AS price;
CREATE TABLE item (
    dropped int, sku int, country varchar(2), cost net_price, moods mood[], secret text,
    doubled int GENERATED ALWAYS AS (sku * 2) STORED, PRIMARY KEY (country, sku) INCLUDE (cost));
ALTER TABLE item DROP COLUMN dropped;
INSERT INTO item (sku, country) VALUES (1, 'DE');
CREATE TABLE keyless (a int);
CREATE TABLE whole (a int, b int); ALTER TABLE whole REPLICA IDENTITY FULL;
CREATE TABLE indexed (a int, b int NOT NULL); CREATE UNIQUE INDEX by_b ON indexed (b);
ALTER TABLE indexed REPLICA IDENTITY USING INDEX by_b;
CREATE TABLE parted (a int PRIMARY KEY) PARTITION BY RANGE (a);
CREATE TABLE part1 PARTITION OF parted FOR VALUES FROM (0) TO (10);
CREATE PUBLICATION "The Catalog"
    FOR TABLE item (country, sku, cost, moods) WHERE (sku > 0), keyless, whole, indexed, parted
    WITH (publish_via_partition_root);
CREATE PUBLICATION leaves FOR TABLE parted;
CREATE PUBLICATION nothing;
CREATE PUBLICATION generated FOR TABLE item WITH (publish_generated_columns = stored);
CREATE PUBLICATION not_generated FOR TABLE item;
"""


@pytest.fixture(scope="module")
def connection(server: EmbeddedPostgres) -> Iterator[Connection]:
    with connect(server.dsn, writable=True) as opened:
        opened.execute(SCHEMA)
        yield opened
        opened.execute('DROP PUBLICATION "The Catalog", leaves, nothing, generated, not_generated')
        opened.execute('DROP SCHEMA "The Catalog" CASCADE')


@pytest.fixture(scope="module")
def tables(connection: Connection) -> dict[str, PublishedTable]:
    return {table.name: table for table in published_tables(connection, "The Catalog")}


def test_column_list_row_filter_and_key(tables: dict[str, PublishedTable]) -> None:
    item = tables["item"]
    assert [(c.name, c.attnum, c.key, c.not_null) for c in item.columns] == [
        ("sku", 2, True, True),
        ("country", 3, True, True),
        ("cost", 4, False, False),
        ("moods", 5, False, False),
    ]
    assert item.primary_key == ("country", "sku")
    assert item.row_filter == "(sku > 0)"
    assert (item.blocks, item.row_estimate, item.quoted) == (1, -1, '"The Catalog"."item"')


def test_a_domain_has_its_ultimate_base_type(tables: dict[str, PublishedTable]) -> None:
    cost, moods = tables["item"].columns[2:]
    assert (cost.base_oid, cost.base_type_name, cost.typmod) == (1700, "numeric", -1)
    assert (cost.type_oid != 1700, cost.output_function) == (True, "pg_catalog.numeric_out")
    assert (moods.base_oid, moods.output_function) == (moods.type_oid, "pg_catalog.array_out")


@pytest.mark.parametrize(
    ("table", "identity", "keys"),
    [("keyless", "d", []), ("whole", "f", ["a", "b"]), ("indexed", "i", ["b"]), ("parted", "d", ["a"])],
)
def test_replica_identity(tables: dict[str, PublishedTable], table: str, identity: str, keys: list[str]) -> None:
    assert tables[table].replica_identity == identity
    assert [column.name for column in tables[table].columns if column.key] == keys


def test_partitions_are_named_as_the_stream_names_them(
    connection: Connection, tables: dict[str, PublishedTable]
) -> None:
    assert (tables["parted"].partitioned, tables["parted"].blocks) == (True, 0)
    assert [(table.name, table.partitioned) for table in published_tables(connection, "leaves")] == [("part1", False)]


def test_generated_columns_are_there_when_they_are_published(connection: Connection) -> None:
    names = [
        [column.name for column in published_tables(connection, publication)[0].columns]
        for publication in ("generated", "not_generated")
    ]
    assert names[0] == [*names[1], "doubled"]


def test_no_tables_and_no_publication_differ(connection: Connection) -> None:
    assert published_tables(connection, "nothing") == []
    with pytest.raises(PublicationError, match="CREATE PUBLICATION"):
        published_tables(connection, "absent")


def test_both_kinds_of_connection_identify_the_same(server: EmbeddedPostgres, connection: Connection) -> None:
    with replication_connection(server.dsn) as pgconn:
        told, asked = identify(pgconn), identify(connection)
    assert (told.system_id, told.timeline, told.dbname) == (asked.system_id, 1, "postgres")
    assert told.wal_lsn <= asked.wal_lsn
