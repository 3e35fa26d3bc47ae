"""A committed transaction of protocol version 1 through test_decoding, without a server."""

from __future__ import annotations

import pytest

from wal2lake.decoding import OutputPlugin, decode, load_plugin
from wal2lake.errors import ConfigError, PluginError
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.testing.stream import ScriptedStream, delete, insert, relation, update
from wal2lake.wire.replication import read_xlog_data

STREAM = PgoutputOptions(("p",))


def test_a_transaction_is_printed_as_postgresql_prints_it() -> None:
    stream = ScriptedStream()
    payloads = stream.transaction(relation(), insert(1, "it's"), update(1, None), delete(1, None))
    changes = [(read.start_lsn, read.payload) for read in map(read_xlog_data, payloads)]
    assert [piece.data for piece in decode(changes, "test_decoding", stream=STREAM)] == [
        "BEGIN 701",
        "table public.t: INSERT: id[bigint]:1 v[text]:'it''s'",
        "table public.t: UPDATE: id[bigint]:1 v[text]:null",
        "table public.t: DELETE: id[bigint]:1",
        "COMMIT 701",
    ]


def test_an_unknown_option_is_refused_in_the_servers_words() -> None:
    with pytest.raises(ConfigError, match='option "x" = "1" is unknown'):
        list(decode([], "test_decoding", [("x", "1")], stream=STREAM))


class Incomplete(OutputPlugin):
    """Has no callback at all."""


def test_a_plugin_without_its_callbacks_is_refused_when_it_is_loaded() -> None:
    with pytest.raises(PluginError, match="does not define begin_cb, change_cb, commit_cb"):
        load_plugin("tests.decoding.test_first:Incomplete")
