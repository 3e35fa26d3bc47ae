"""Our pgoutput writes what the server's wrote, byte for byte, in every version, format and kind of stream."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.plugins.differential import BINARY, encoder_pairs, recorded
from tests.plugins.options import BOTH, PLAIN, STREAMED, TWO_PHASE
from tests.plugins.oracle import SETTINGS
from tests.plugins.scenario import FOLDER, read_scenario
from wal2lake.decoding import decode
from wal2lake.decoding.plugins.pgoutput import Pgoutput
from wal2lake.errors import ConfigError, PluginError
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.postgres.live_catalog import LiveCatalog
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.server
SCENARIOS = {
    "ddl": {PLAIN, STREAMED, BINARY},
    "messages": {PLAIN, STREAMED, BINARY},
    "origins": {PLAIN, STREAMED, BINARY},
    "partitions": {PLAIN, STREAMED, BINARY},
    "streamed_aborted": {PLAIN, STREAMED},
    "toast": {PLAIN, STREAMED, BINARY},
    "two_phase_streamed": {PLAIN, STREAMED, TWO_PHASE, BOTH},
    "unpublished": {PLAIN, STREAMED, BINARY, "all"},
    "user_types": {PLAIN, STREAMED, BINARY},
}


@pytest.fixture(scope="module")
def postgres() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(settings=SETTINGS) as running:
        yield running


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_bytes_are_the_servers(postgres: EmbeddedPostgres, name: str) -> None:
    with recorded(postgres, read_scenario(FOLDER / f"{name}.sql"), 18, plugins=()) as recording:
        pairs = list(encoder_pairs(recording))
        assert {pair.feed for pair in pairs} >= SCENARIOS[name]
        assert all(len(pair.expected) > 5 for pair in pairs)
        for pair in pairs:
            assert pair.equal, f"{pair}: {pair.difference()}"


def test_the_version_is_the_lowest_that_has_what_is_asked() -> None:
    stream = PgoutputOptions(("p",), proto_version=4, streaming="parallel", two_phase=True)
    for options, version in (
        ([], 1),
        ([("streaming", "on")], 2),
        ([("two_phase", "true"), ("streaming", "on")], 3),
        ([("streaming", "parallel")], 4),
    ):
        plugin = Pgoutput()
        list(decode([], plugin, options, stream=stream))
        assert plugin.options.proto_version == version


def test_what_cannot_be_translated_is_refused_at_the_start() -> None:
    text, binary = PgoutputOptions(("p",), proto_version=2), PgoutputOptions(("p",), proto_version=2, binary=True)
    with pytest.raises(ConfigError, match="needs the values in binary"):
        list(decode([], "pgoutput", [("proto_version", "2"), ("binary", "true")], stream=text))
    with pytest.raises(ConfigError, match="values are binary"):
        list(decode([], "pgoutput", [("proto_version", "2")], stream=binary))
    with pytest.raises(ConfigError, match="protocol versions are 1 to 4"):
        list(decode([], "pgoutput", [("proto_version", "9")], stream=text))
    with pytest.raises(ConfigError, match="no option colour"):
        list(decode([], "pgoutput", [("proto_version", "1"), ("colour", "red")], stream=text))


def test_a_row_filter_is_the_servers_to_evaluate(postgres: EmbeddedPostgres) -> None:
    with psycopg.connect(postgres.dsn, autocommit=True) as admin:
        admin.execute("CREATE TABLE filtered (id int PRIMARY KEY)")
        admin.execute("CREATE PUBLICATION filters FOR TABLE filtered WHERE (id > 1)")
        admin.execute("CREATE PUBLICATION whole FOR TABLE filtered")
        admin.execute("SELECT pg_create_logical_replication_slot('filtered', 'pgoutput')")
        admin.execute("INSERT INTO filtered VALUES (1)")
        stream = PgoutputOptions(("whole",))
        peek = "SELECT data FROM pg_logical_slot_peek_binary_changes('filtered', NULL, NULL, VARIADIC %s)"
        options = [part for pair in stream.build(180000) for part in pair]
        changes = [(0, bytes(data)) for (data,) in admin.execute(peek.encode(), [options])]
        catalog = LiveCatalog(postgres.dsn)
        try:
            with pytest.raises(PluginError, match="row filter in publication filters"):
                wanted = [("proto_version", "1"), ("publication_names", "filters")]
                list(decode(changes, "pgoutput", wanted, stream=stream, catalog=catalog))  # type: ignore[arg-type]
            with pytest.raises(ConfigError, match="There is no publication nowhere"):
                wanted = [("proto_version", "1"), ("publication_names", "nowhere")]
                list(decode([], "pgoutput", wanted, stream=stream, catalog=catalog))
        finally:
            catalog.close()
            admin.execute("SELECT pg_drop_replication_slot('filtered')")
