"""What is given of a wrong kind is one sentence that teaches, at every door of the library, and nothing is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.client.reading import NAME
from wal2lake import connect
from wal2lake.client import connect_physical
from wal2lake.decoding import decode
from wal2lake.errors import ConfigError, SlotMissingError
from wal2lake.lsn import LSN
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.postgres.connection import connect as connect_sql
from wal2lake.postgres.connection import connect_replication
from wal2lake.postgres.logical import LogicalStream
from wal2lake.postgres.slot_sql import slot_changes
from wal2lake.testing.embedded import EmbeddedPostgres


def to_connect(**given: Any) -> Callable[[], object]:
    return lambda: connect(**{"slot": "s", "publication": "p", **given})


def to_physical(**given: Any) -> Callable[[], object]:
    return lambda: connect_physical(**given)


def to_pgoutput(*given: Any, **further: Any) -> Callable[[], object]:
    return lambda: PgoutputOptions(*given, **further)


def to_stream(*given: Any, **further: Any) -> Callable[[], object]:
    return lambda: LogicalStream("", *given, **further)


def to_decode(options: Any) -> Callable[[], object]:
    return lambda: list(decode([], "test_decoding", options, stream=PgoutputOptions(("p",))))


def to_lsn(value: Any) -> Callable[[], object]:
    return lambda: LSN(value)


WRONG: list[tuple[Callable[[], object], str]] = [
    (to_connect(dsn=None), "dsn is a str, not None"),
    (to_connect(dsn=5), "dsn is a str, not an int"),
    (to_connect(dsn=b"dbname=shop"), "dsn is a str, not a bytes"),
    (to_connect(dsn="dbname=a\0b"), "dsn has a zero byte"),
    (to_connect(slot="a\0b"), "slot has a zero byte"),
    (to_connect(slot="a\udc80"), "slot has a lone surrogate"),
    (to_connect(publication="a\0b"), "publication has a zero byte"),
    (to_connect(publication=b"shop"), "publication is a str or several, not a bytes"),
    (to_connect(publication={"shop": 1}), "publication is a str or several, not a dict"),
    *((to_connect(**{flag: wrong}), f"{flag} is True or False, not {said}")
      for flag in ("create_slot", "messages", "binary", "two_phase", "reconnect")
      for wrong, said in (("no", "a str"), (1, "an int"), (None, "None"))),
    (to_connect(streaming=["on"]), "streaming is off, on or parallel"),
    (to_connect(origin=["none"]), "origin is any or none"),
    (to_connect(values=["text"]), "values is 'python' or 'text'"),
    (to_connect(on_wait=5), "on_wait is a function or None, not an int"),
    (to_connect(start_lsn=1.5), "start_lsn is an LSN, an integer, not a float"),
    (lambda: list(connect(slot="s", publication="p")), "Write `with connect(…) as stream:` first"),  # type: ignore[call-overload]
    (lambda: aiter(connect_physical()), "Write `async with connect(…) as stream:` first"),
    (to_physical(dsn=None), "dsn is a str, not None"),
    (to_physical(slot=5), "slot is a str, not an int"),
    (to_physical(timeline="2"), "timeline is an integer, not a str"),
    (to_physical(reconnect="no"), "reconnect is True or False, not a str"),
    (to_lsn("0/1"), "An LSN is an integer, not a str. LSN.parse reads PostgreSQL's text of one."),
    (to_lsn(1.5), "An LSN is an integer, not a float"),
    (to_lsn(True), "An LSN is an integer, not a bool"),
    (to_lsn(None), "An LSN is an integer, not a NoneType"),
    (lambda: LSN.parse(5), "5 is not an LSN"),  # type: ignore[arg-type]
    (lambda: LSN.parse(None), "None is not an LSN"),  # type: ignore[arg-type]
    (to_pgoutput((5,)), "A publication's name is a str, not an int"),
    (to_pgoutput((None,)), "A publication's name is a str, not None"),
    (to_pgoutput(b"shop"), "publication_names is a tuple of names, not a bytes"),
    (to_pgoutput({"shop"}), "publication_names is a tuple of names, not a set"),
    (to_pgoutput(("a\0b",)), "A publication's name has a zero byte"),
    (to_pgoutput(("p",), "1"), "protocol versions are 1 to 4, not '1'"),
    (to_pgoutput(("p",), 1.0), "protocol versions are 1 to 4, not 1.0"),
    (to_pgoutput(("p",), [1]), "protocol versions are 1 to 4"),
    (to_pgoutput(("p",), streaming=["on"]), "streaming is off, on or parallel"),
    *((to_pgoutput(("p",), 3, **{flag: wrong}), f"pgoutput's option {flag} is True or False, not")
      for flag in ("binary", "messages", "two_phase") for wrong in ("no", 1, None)),
    (to_stream(None), "slot is a str, not None"),
    (to_stream("s", "0/1"), "start_lsn is an LSN, an integer, not a str. LSN.parse"),
    (to_stream("s", status_interval_s="10"), "status_interval_s is a number of seconds"),
    (to_stream("s", plugin_options="a=1"), "plugin_options is a mapping or pairs of name and value, not a str"),
    (to_stream("s", plugin_options=5), "plugin_options is a mapping or pairs of name and value, not an int"),
    (to_stream("s", plugin_options=("proto_version", "1")), "pairs of name and value, and a str in it is none"),
    (to_stream("s", plugin_options=(("a", "b", "c"),)), "pairs of name and value, and a tuple in it is none"),
    (to_stream("s", plugin_options={"binary": True}), "The value of the option binary is a str or None, not a bool"),
    (to_stream("s", plugin_options={5: "1"}), "an option's name in plugin_options is a str, not an int"),
    (to_stream("s", plugin_options={"a": "b\0"}), "The option a has a zero byte"),
    (to_decode("a=1"), "options is a mapping or pairs of name and value, not a str"),
    (to_decode([("include-xids", 0)]), "The value of the option include-xids is a str or None, not an int"),
    (lambda: connect_sql(None), "dsn is a str, not None"),  # type: ignore[arg-type]
    (lambda: connect_replication(5), "dsn is a str, not an int"),  # type: ignore[arg-type]
]  # fmt: skip


@pytest.mark.parametrize(("call", "why"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_kind_of_value_is_refused_where_it_is_given(call: Callable[[], object], why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        call()
    assert why in str(refused.value)


@pytest.mark.parametrize("other", ["5", 1.5, None])
def test_an_lsn_is_moved_by_integers_alone(other: Any) -> None:
    with pytest.raises(TypeError):
        LSN(8) + other
    with pytest.raises(TypeError):
        LSN(8) - other


def test_names_may_be_a_list() -> None:
    assert PgoutputOptions(["a", "b"]) == PgoutputOptions(("a", "b"))  # type: ignore[arg-type]


def test_a_plugins_options_may_be_a_mapping(table: EmbeddedPostgres) -> None:
    options = {"proto_version": "1", "publication_names": NAME}
    with connect_sql(table.dsn, writable=True) as connection:
        assert list(slot_changes(connection, NAME, peek=True, plugin_options=options)) == []
        for wrong in ({"proto_version": 1}, 5, ("proto_version",)):
            with pytest.raises(ConfigError):
                list(slot_changes(connection, NAME, plugin_options=wrong))  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=r"LSN\.parse"):
            list(slot_changes(connection, NAME, upto_lsn="0/1", plugin_options=options))  # type: ignore[arg-type]
    with LogicalStream(table.dsn, NAME, plugin_options=options) as stream:
        assert not stream.ended


def test_a_missing_slot_is_made_by_the_means_at_hand(table: EmbeddedPostgres) -> None:
    """The cure is the library's, the commands' and the pipeline's."""
    with pytest.raises(SlotMissingError) as missing, LogicalStream(table.dsn, "absent"):
        pass
    with pytest.raises(SlotMissingError) as unread, connect(table.dsn, slot="absent", publication=NAME):
        pass
    for error in (missing.value, unread.value):
        for cure in ("create_slot=True", "`wal2lake slots create`", "`wal2lake drop --with-log`"):
            assert cure in str(error)
