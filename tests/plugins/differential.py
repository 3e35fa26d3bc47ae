"""One scenario on a real server, decoded by its C plugins and by ours over pgoutput, and compared piece by piece.

A scenario has a database of its own, and slots of test_decoding, wal2json and pgoutput from before its first step. Most
are decoded afterwards, by peeking with one option set after the other. A live one is decoded by walsenders beside it,
one for each option set, because a transaction that is rolled back later can be decoded only while it is in progress.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, cast

import psycopg
from psycopg import sql

from tests.plugins.declared import declared
from tests.plugins.options import BOTH, OPTION_SETS, PLAIN, STREAMED, TWO_PHASE, OptionSet
from tests.plugins.oracle import WAL2JSON_MAJOR
from tests.plugins.scenario import WAIT, Scenario
from wal2lake.decoding import decode
from wal2lake.lsn import LSN
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.postgres.connection import connect_replication
from wal2lake.postgres.live_catalog import LiveCatalog
from wal2lake.postgres.logical import PluginOptions
from wal2lake.postgres.replication import start_logical
from wal2lake.postgres.waiting import wait
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.wire.commands import StartLogicalReplication
from wal2lake.wire.replication import StandbyStatusUpdate, XLogData, read_from_server, write_standby_status_update

V1, BINARY, ALL = "v1", "binary", "all"  # streams that our pgoutput is compared with, or translates
_SINCE = {V1: 13, PLAIN: 13, STREAMED: 14, BINARY: 14, TWO_PHASE: 15, BOTH: 15, ALL: 15}
_TO_V1 = (PLAIN, STREAMED)
Piece = str | bytes
Connection = psycopg.Connection[tuple[Any, ...]]


@dataclass
class Recording:
    """What the server said. ``theirs``: pieces per option set; ``feeds``: pgoutput's messages per stream; ``catalog``
    answers as of the scenario's end."""

    scenario: Scenario
    major: int
    theirs: dict[OptionSet, list[Piece]]
    feeds: dict[str, tuple[PgoutputOptions, list[tuple[LSN, bytes]]]]
    dsn: str


@contextmanager
def recorded(
    server: EmbeddedPostgres, scenario: Scenario, major: int, plugins: Sequence[str] | None = None
) -> Iterator[Recording]:
    """Run the scenario in a database of its own, which lives as long as the context. ``plugins``: the C plugins that
    the server has beside pgoutput; None: wal2json on 15, and test_decoding."""
    name = f"scenario_{scenario.name}"
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        dsn = server.dsn.replace("dbname=postgres", f"dbname={name}")
        try:
            yield _Run(dsn, scenario, major, plugins).record()
        finally:
            admin.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s", [name]
            )
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
            for origin in admin.execute("SELECT roname FROM pg_replication_origin").fetchall():
                admin.execute("SELECT pg_replication_origin_drop(%s)", origin)


class _Run:
    def __init__(self, dsn: str, scenario: Scenario, major: int, plugins: Sequence[str] | None) -> None:
        self._dsn, self._scenario, self._major = dsn, scenario, major
        if plugins is None:
            plugins = ("test_decoding", "wal2json") if major == WAL2JSON_MAJOR else ("test_decoding",)
        self._sets = [chosen for chosen in OPTION_SETS if chosen.plugin in plugins and chosen.fits(scenario, major)]
        self._feeds = {feed: self._stream_options(feed) for feed in self._feed_names()}

    def record(self) -> Recording:
        with ExitStack() as stack:
            admin = stack.enter_context(psycopg.connect(self._dsn, autocommit=True))
            for statement in self._scenario.setup:
                admin.execute(statement.encode())
            for name, what in zip(self._scenario.publication_names, self._scenario.publications, strict=True):
                admin.execute(f"CREATE PUBLICATION {name} {what}".encode())
            if self._scenario.translated:
                admin.execute("CREATE PUBLICATION everything FOR ALL TABLES")
            if self._scenario.live:
                return self._record_live(admin)
            return self._record_afterwards(admin)

    # -- afterwards: a slot for each plugin, asked again and again

    def _record_afterwards(self, admin: Connection) -> Recording:
        for plugin in {chosen.plugin for chosen in self._sets} | {"pgoutput"}:
            for two_phase in {False, self._scenario.two_phase}:
                _create_slot(admin, _slot(self._scenario, plugin, two_phase), plugin, two_phase, self._major)
        self._play(admin)
        theirs = {chosen: self._peek(admin, chosen) for chosen in self._sets}
        feeds = {feed: (options, self._peek_feed(admin, feed, options)) for feed, options in self._feeds.items()}
        return Recording(self._scenario, self._major, theirs, feeds, self._dsn)

    def _peek(self, admin: Connection, chosen: OptionSet) -> list[Piece]:
        function = "pg_logical_slot_peek_binary_changes" if chosen.binary else "pg_logical_slot_peek_changes"
        slot = _slot(self._scenario, chosen.plugin, chosen.two_phase)
        rows = admin.execute(
            f"SELECT data FROM {function}(%s, NULL, NULL, VARIADIC %s)".encode(), [slot, _flat(chosen.options)]
        )
        return [row[0] for row in rows]

    def _peek_feed(self, admin: Connection, feed: str, options: PgoutputOptions) -> list[tuple[LSN, bytes]]:
        given = cast("list[tuple[str, str]]", options.build(admin.info.server_version))
        rows = admin.execute(
            "SELECT lsn::text, data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL, VARIADIC %s)",
            [_slot(self._scenario, "pgoutput", options.two_phase), _flat(given)],
        )
        return [(LSN.parse(lsn), bytes(data)) for lsn, data in rows]

    # -- live: a slot and a walsender for each option set

    def _record_live(self, admin: Connection) -> Recording:
        with ExitStack() as stack:
            elsewhere = stack.enter_context(psycopg.connect(self._dsn, dbname="postgres", autocommit=True))
            live: dict[OptionSet | str, _Live] = {}
            everything: list[OptionSet | str] = [*self._sets, *self._feeds]
            for number, chosen in enumerate(everything):
                slot = f"live_{number}"
                options: PluginOptions
                if isinstance(chosen, str):
                    feed = self._feeds[chosen]
                    plugin, two_phase, options = "pgoutput", feed.two_phase, feed.build(admin.info.server_version)
                else:
                    plugin, two_phase, options = chosen.plugin, chosen.two_phase, chosen.options
                _create_slot(admin, slot, plugin, two_phase, self._major)
                live[chosen] = _Live(self._dsn, slot, options)
                stack.callback(live[chosen].close)

            def wait() -> None:
                """A message in another database is decoded for none of the slots, and marks how far they must come."""
                row = elsewhere.execute("SELECT pg_logical_emit_message(false, 'so far', '')::text").fetchone()
                assert row is not None
                for walsender in live.values():
                    walsender.catch_up(LSN.parse(row[0]))

            self._play(admin, wait)
            wait()
        theirs: dict[OptionSet, list[Piece]] = {}
        for chosen in self._sets:
            pieces = [data for _, data in live[chosen].heard]
            theirs[chosen] = list(pieces) if chosen.binary else [data.decode() for data in pieces]
        feeds = {feed: (options, live[feed].heard) for feed, options in self._feeds.items()}
        return Recording(self._scenario, self._major, theirs, feeds, self._dsn)

    # -- both

    def _play(self, admin: Connection, wait: Any = None) -> None:
        with ExitStack() as stack:
            sessions: dict[str, Connection] = {}
            for session, statement in self._scenario.steps:
                if session not in sessions:
                    sessions[session] = stack.enter_context(psycopg.connect(self._dsn, autocommit=True))
                if statement != WAIT:
                    sessions[session].execute(statement.encode())
                elif wait is not None:
                    wait()

    def _feed_names(self) -> list[str]:
        asked = {PLAIN, STREAMED} | ({TWO_PHASE, BOTH} if self._scenario.two_phase else set())
        asked |= set() if self._scenario.live else {V1, BINARY}
        asked |= {ALL} if self._scenario.translated else set()
        return sorted(feed for feed in asked if self._major >= _SINCE[feed])

    def _stream_options(self, feed: str) -> PgoutputOptions:
        """As much as the server's version knows."""
        parallel = feed in (STREAMED, BOTH) and self._major >= 16
        least = {V1: 1, PLAIN: 1 if self._major < 14 else 2, TWO_PHASE: 3, BOTH: 3}.get(feed, 2)
        return PgoutputOptions(
            ("everything",) if feed == ALL else self._scenario.publication_names,
            proto_version=4 if parallel else least,
            binary=feed == BINARY,
            messages=self._major >= 14 and feed != V1,
            streaming=("parallel" if parallel else "on") if feed in (STREAMED, BOTH) else "off",
            two_phase=feed in (TWO_PHASE, BOTH),
        )


def _slot(scenario: Scenario, plugin: str, two_phase: bool) -> str:
    return f"{scenario.name}_{plugin}" + ("_two_phase" if two_phase else "")


def _create_slot(admin: Connection, slot: str, plugin: str, two_phase: bool, major: int) -> None:
    arguments: list[object] = [slot, plugin, False] + ([two_phase] if major >= 14 else [])
    marks = ", ".join(["%s"] * len(arguments))
    admin.execute(f"SELECT pg_create_logical_replication_slot({marks})".encode(), arguments)


def _flat(options: Sequence[tuple[str, str]]) -> list[str]:
    return [part for pair in options for part in pair]


class _Live:
    """A walsender that decodes for one option set while the scenario runs."""

    def __init__(self, dsn: str, slot: str, options: PluginOptions) -> None:
        pgconn = connect_replication(dsn, application_name="differential")
        command = StartLogicalReplication(slot, LSN(0), options)
        self.heard: list[tuple[LSN, bytes]] = []
        self._pgconn = pgconn
        self._stream = wait(start_logical(pgconn, command.build(pgconn.server_version)), pgconn.socket)

    def catch_up(self, target: LSN) -> None:
        """Receive until the walsender, asked for a sign of life again and again, has decoded up to ``target``."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            status = StandbyStatusUpdate(LSN(0), LSN(0), LSN(0), 0, True)
            self._pgconn.put_copy_data(write_standby_status_update(status))
            self._pgconn.flush()
            for message in map(read_from_server, wait(self._stream.receive(0.02), self._pgconn.socket)):
                if isinstance(message, XLogData):
                    self.heard.append((LSN(message.start_lsn), bytes(message.payload)))
                elif message.wal_end >= target:
                    return
        raise TimeoutError(f"A walsender did not reach {target}.")

    def close(self) -> None:
        self._pgconn.finish()


# -- ours, and the comparison


@dataclass
class Pair:
    """A scenario decoded with one option set from one feed. ``expected``: theirs, with what is declared put in;
    ``declared``: how many lines that changed; ``ours`` equals ``expected``, or the test has failed."""

    scenario: str
    major: int
    chosen: OptionSet
    feed: str
    expected: list[Piece]
    ours: list[Piece]
    lines: int
    declared: int

    @property
    def equal(self) -> bool:
        return self.ours == self.expected

    def difference(self) -> str:
        """The first piece that is not as it should be."""
        for place, (theirs, ours) in enumerate(zip_longest(self.expected, self.ours)):
            if theirs != ours:
                return f"piece {place}:\n  theirs: {theirs!r}\n  ours:   {ours!r}"
        return ""

    def __str__(self) -> str:
        return f"{self.scenario}, {self.chosen.plugin} {self.chosen.name}, from {self.feed}, server {self.major}"


def pairs(recording: Recording) -> Iterator[Pair]:
    """Ours, decoded from every feed of every option set."""
    name, major = recording.scenario.name, recording.major
    with closing(LiveCatalog(recording.dsn)) as catalog:
        for chosen, theirs in recording.theirs.items():
            expected, changed = with_declared(name, chosen, theirs)
            lines = sum(_lines(piece) for piece in theirs)
            for feed in chosen.feeds:
                if feed in recording.feeds:
                    stream, changes = recording.feeds[feed]
                    pieces = decode(
                        changes,
                        chosen.plugin,
                        chosen.options,
                        stream=stream,
                        catalog=catalog,
                        server_version=major * 10000,
                    )
                    ours = [piece.data for piece in pieces]
                    yield Pair(name, major, chosen, feed, expected, ours, lines, changed)


def encoder_pairs(recording: Recording) -> Iterator[Pair]:
    """Our pgoutput, byte for byte as the server's: from a stream of the same options, and translated from others."""
    translations = [("as it is", feed, feed) for feed in recording.feeds]
    if V1 in recording.feeds:
        translations += [("to version 1", feed, V1) for feed in _TO_V1 if feed in recording.feeds]
    if ALL in recording.feeds:
        translations.append(("to publications", ALL, PLAIN))
    with closing(LiveCatalog(recording.dsn)) as catalog:
        for name, feed, target in translations:
            stream, changes = recording.feeds[feed]
            wanted, oracle = recording.feeds[target]
            options = [*wanted.build(recording.major * 10000)]
            if wanted.publication_names == stream.publication_names:
                options = [(option, value) for option, value in options if option != "publication_names"]
            version = recording.major * 10000
            pieces = decode(changes, "pgoutput", options, stream=stream, catalog=catalog, server_version=version)
            ours = [piece.data for piece in pieces]
            theirs: list[Piece] = [payload for _, payload in oracle]
            if stream.streaming != wanted.streaming:
                ours, theirs = _news(ours), _news(theirs)
            chosen = OptionSet("pgoutput", name, (feed,), frozenset(), ())
            yield Pair(recording.scenario.name, recording.major, chosen, feed, theirs, ours, len(theirs), 0)


def _news(messages: Sequence[Piece]) -> list[Piece]:
    """Without what a Relation or Type message says again; when it does is the server's cache's to know."""
    kept: list[Piece] = []
    said: dict[Piece, Piece] = {}
    for message in messages:
        if message[:1] in (b"R", b"Y"):
            if said.get(message[:5]) == message:
                continue
            said[message[:5]] = message
        kept.append(message)
    return kept


def _lines(piece: Piece) -> int:
    return len(piece.splitlines()) or 1


def with_declared(scenario: str, chosen: OptionSet, theirs: Sequence[Piece]) -> tuple[list[Piece], int]:
    """What ours must be, and how many lines of theirs differ. Raises AssertionError where a declaration is not so."""
    expected: list[Piece | None] = list(theirs)
    lines = 0
    for exception in declared(scenario, chosen):
        said = theirs[exception.place] if exception.place < len(theirs) else None
        assert said == exception.theirs, f"{scenario}, {chosen.name}: {exception}, but theirs is {said!r}"
        assert exception.theirs != exception.ours, f"{exception} declares nothing"
        expected[exception.place] = exception.ours
        lines += _lines(exception.theirs)
    return [piece for piece in expected if piece is not None], lines
