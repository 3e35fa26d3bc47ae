"""Names, literals, times and types print as the server prints them: the server is asked."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.decoding.walsender import ONE_PIECE, Listening, Walsender
from wal2lake.decoding.sql import KEYWORDS, parse_bool, quote_identifier, quote_literal, timestamptz_to_str
from wal2lake.decoding.types import BUILT_IN, ELEMENTS, TypeNames
from wal2lake.errors import PluginError
from wal2lake.pgoutput.messages import Type
from wal2lake.postgres.live_catalog import LiveCatalog
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.testing.stream import insert, relation

pytestmark = pytest.mark.server

NAMES = ["a", "A", "a b", "1a", "_1", 'q"q', "ä", "select", "user", "name", "text", "int", "a\n", "a$", *KEYWORDS]
LITERALS = ["", "a", "it's", "back\\slash", "both'\\", "new\nline", "ü"]
BOOLEANS = ["t", "tr", "true", "TRUE", "y", "yes", "on", "o", "of", "off", "f", "no", "n", "1", "0", "10", "", "maybe"]
TIMES = [0, 1, -1, 250_000, 823_456_789_012_345, -63_000_000_000_000_000, (1 << 63) - 1, -(1 << 63)]
TYPMODS = {
    1042: (-1, 5, 104),
    1043: (-1, 5, 104),
    1700: (-1, (10 << 16 | 2) + 4, (3 << 16 | 0x7FF) + 4, (1000 << 16) + 4),
    1083: (-1, 0, 6),
    1266: (-1, 3),
    1114: (-1, 0, 3),
    1184: (-1, 6),
    1560: (-1, 1, 8),
    1562: (-1, 64),
    25: (-1,),
    20: (-1,),
}
INTERVALS = [
    "interval", "interval(3)", "interval year", "interval month", "interval day", "interval hour", "interval minute",
    "interval second", "interval second(2)", "interval year to month", "interval day to hour", "interval day to minute",
    "interval day to second(4)", "interval hour to minute", "interval hour to second", "interval minute to second(0)",
]  # fmt: skip


@pytest.fixture(scope="module")
def connection(server: EmbeddedPostgres) -> Iterator[psycopg.Connection[tuple[str, ...]]]:
    with psycopg.connect(f"{server.dsn} options='-c timezone=UTC'", autocommit=True) as opened:
        yield opened


def test_names_and_literals_are_quoted_as_the_server_quotes(connection: psycopg.Connection[tuple[str, ...]]) -> None:
    for name in NAMES:
        (said,) = connection.execute("SELECT quote_ident(%s)", [name]).fetchone() or ("",)
        assert quote_identifier(name) == said, name
    for text in LITERALS:
        (said,) = connection.execute("SELECT quote_literal(%s)", [text]).fetchone() or ("",)
        assert quote_literal(text) == said, text


def test_booleans_are_read_as_the_server_reads_them(connection: psycopg.Connection[tuple[str, ...]]) -> None:
    for text in BOOLEANS:
        try:
            row = connection.execute("SELECT %s::text::boolean", [text]).fetchone()
            said = None if row is None else row[0]
        except psycopg.errors.InvalidTextRepresentation:
            said = None
        assert parse_bool(text) is said, text


def test_times_are_printed_as_the_server_prints_them(connection: psycopg.Connection[tuple[str, ...]]) -> None:
    for micros in TIMES:
        if abs(micros) > 1 << 62:
            said = "infinity" if micros > 0 else "-infinity"
        else:
            query = "SELECT (timestamptz '2000-01-01 00:00:00+00' + %s * interval '1 microsecond')::text"
            (said,) = connection.execute(query, [micros]).fetchone() or ("",)
        assert timestamptz_to_str(micros) == said


def test_every_built_in_type_has_the_servers_name(connection: psycopg.Connection[tuple[str, ...]]) -> None:
    names = TypeNames({})
    rows = connection.execute("SELECT oid::bigint, format_type(oid, NULL) FROM pg_type WHERE oid < 10000").fetchall()
    assert {oid for oid, _ in rows} == BUILT_IN.keys() | ELEMENTS.keys()
    for oid, said in rows:
        assert names.format_type(int(oid)) == said
    for oid, typmods in TYPMODS.items():
        for typmod in typmods:
            (said,) = connection.execute("SELECT format_type(%s, %s)", [oid, typmod]).fetchone() or ("",)
            assert names.format_type(oid, typmod) == said


def test_intervals_keep_their_fields_and_precision(connection: psycopg.Connection[tuple[str, ...]]) -> None:
    columns = ", ".join(f'"{place}" {kind}, "{place}a" {kind}[]' for place, kind in enumerate(INTERVALS))
    connection.execute(f"CREATE TEMP TABLE intervals ({columns})")
    query = """SELECT atttypid::bigint, atttypmod, format_type(atttypid, atttypmod) FROM pg_attribute
                WHERE attrelid = 'intervals'::regclass AND attnum > 0"""
    names = TypeNames({})
    for oid, typmod, said in connection.execute(query).fetchall():
        assert names.format_type(int(oid), int(typmod)) == said


@pytest.fixture(scope="module")
def schema(server: EmbeddedPostgres) -> str:
    server.psql("""
        CREATE SCHEMA plugins; CREATE TYPE plugins."Mood" AS ENUM ('a'); CREATE DOMAIN plugins.positive AS int;
        CREATE TYPE visible AS (a int);
        CREATE TABLE plugins.told (id int PRIMARY KEY, what text) WITH (user_catalog_table = true);
        CREATE TABLE plugins.secret (id int);
        INSERT INTO plugins.told VALUES (1, 'one'), (2, 'two');
    """)
    return "plugins"


def test_a_domain_and_an_array_have_their_own_names_where_a_catalog_is(
    server: EmbeddedPostgres, connection: psycopg.Connection[tuple[str, ...]], schema: str
) -> None:
    catalog = LiveCatalog(server.dsn)
    names = TypeNames({}, catalog)
    for kind in ('plugins."Mood"', 'plugins."Mood"[]', "plugins.positive", "visible", "visible[]"):
        (oid,) = connection.execute("SELECT to_regtype(%s)::oid::bigint", [kind]).fetchone() or ("0",)
        assert names.format_type(int(oid)) == kind
    assert names.format_type(1) == "???"
    catalog.close()


def test_a_type_that_was_renamed_since_has_the_name_of_its_time(
    server: EmbeddedPostgres, connection: psycopg.Connection[tuple[str, ...]], schema: str
) -> None:
    catalog, kinds = LiveCatalog(server.dsn), ('plugins."Mood"', 'plugins."Mood"[]', "plugins.positive", "visible[]")
    oids = [connection.execute("SELECT to_regtype(%s)::oid::bigint", [kind]).fetchone() for kind in kinds]
    mood, moods, positive, visible = (int(oid) for (oid,) in oids if oid)
    announced = {
        mood: Type(mood, "plugins", "feeling"),
        moods: Type(moods, "plugins", "_feeling"),
        positive: Type(positive, "", "int4"),
        visible: Type(visible, "public", "_visible"),
    }
    names = TypeNames(announced, catalog)
    assert [names.format_type(oid) for oid in announced] == [
        "plugins.feeling", "plugins.feeling[]", "plugins.positive", "visible[]",
    ]  # fmt: skip
    assert [names.catalog_name(oid) for oid in announced] == ["feeling", "_feeling", "positive", "_visible"]
    catalog.close()


def test_without_a_catalog_the_announcement_names_a_type() -> None:
    announced = {
        1: Type(1, "plugins", "Mood"),
        2: Type(2, "plugins", "_Mood"),
        3: Type(3, "", "int4"),
        4: Type(4, "public", "v"),
    }
    names = TypeNames(announced)
    assert [names.format_type(oid) for oid in (1, 2, 3, 4)] == ['plugins."Mood"', 'plugins."Mood"[]', "integer", "v"]


def test_plugins_read_catalogs_and_nothing_else(server: EmbeddedPostgres, schema: str) -> None:
    catalog = LiveCatalog(server.dsn)
    assert catalog.scan("plugins.told", {"id": 2}) == [{"id": 2, "what": "two"}]
    assert [row["nspname"] for row in catalog.scan("pg_catalog.pg_namespace", {"nspname": "plugins"})] == ["plugins"]
    assert len(catalog.scan("plugins.told", {})) == 2
    for refused in ("plugins.secret", "pg_catalog.pg_tables"):
        with pytest.raises(PluginError, match="neither a system catalog nor"):
            catalog.scan(refused, {})
    with pytest.raises(PluginError, match="There is no relation"):
        catalog.scan("told", {})
    catalog.close()


@pytest.mark.parametrize("value, told", [("x", "'x'"), ("it's %s", "'it''s %s'"), ("", "''"), (None, "null")])
def test_a_row_is_written_at_once_or_by_columns_alike(value: str | None, told: str) -> None:
    sender = Walsender(ONE_PIECE)
    sender.transaction(701, relation(columns=("id", "50%s")), insert(1, value))
    assert f"""INSERT: id[bigint]:1 "50%s"[text]:{told}""" in Listening("test_decoding", ONE_PIECE).hear(sender)[1]
