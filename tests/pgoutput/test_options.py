"""Options are refused before they are sent, with the version that knows them; names survive every quote and comma."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wal2lake.errors import ConfigError, ProtocolError, ServerConfigError
from wal2lake.pgoutput.options import PgoutputOptions, parse_publication_names, quote_publication_names

names = st.text(st.characters(codec="ascii", exclude_characters="\0"), min_size=1, max_size=60)
options = st.builds(
    PgoutputOptions,
    publication_names=st.lists(names, min_size=1, max_size=4).map(tuple),
    proto_version=st.just(4),
    binary=st.booleans(),
    messages=st.booleans(),
    streaming=st.sampled_from(["off", "on", "parallel"]),
    two_phase=st.booleans(),
    origin=st.sampled_from([None, "any", "none"]),
)


@given(options)
def test_what_is_built_is_parsed_back(asked: PgoutputOptions) -> None:
    assert PgoutputOptions.parse(asked.build(180000)) == asked


@given(st.lists(names, min_size=1, max_size=4))
def test_names_with_quotes_and_commas(publications: list[str]) -> None:
    assert parse_publication_names(quote_publication_names(publications)) == tuple(publications)


def test_quoting() -> None:
    assert quote_publication_names(['a,"b', "C"]) == '"a,""b","C"'
    assert parse_publication_names(' One , "Two" ') == ("one", "Two")


@pytest.mark.parametrize(
    ("arguments", "version", "knows"),
    [
        ({"proto_version": 2}, 130000, 14),
        ({"proto_version": 3}, 140000, 15),
        ({"proto_version": 4}, 150000, 16),
        ({"binary": True}, 130000, 14),
        ({"messages": True}, 130000, 14),
        ({"proto_version": 3, "two_phase": True}, 140000, 15),
        ({"origin": "none"}, 150000, 16),
        ({"proto_version": 4, "streaming": "parallel"}, 150000, 16),
    ],
)
def test_a_server_too_old(arguments: dict[str, Any], version: int, knows: int) -> None:
    asked = PgoutputOptions(("p",), **arguments)
    with pytest.raises(ServerConfigError, match=f"PostgreSQL {knows} and later do"):
        asked.build(version)
    assert asked.build(knows * 10000)


@pytest.mark.parametrize(
    "arguments",
    [
        {"publication_names": ()},
        {"proto_version": 5},
        {"streaming": "on"},
        {"streaming": "parallel", "proto_version": 3},
        {"two_phase": True, "proto_version": 2},
        {"publication_names": ("p", "")},
        {"proto_version": True},
        {"streaming": True, "proto_version": 2},
        {"streaming": "yes", "proto_version": 2},
        {"origin": "foo", "proto_version": 4},
    ],
)
def test_what_no_server_takes(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        PgoutputOptions(**({"publication_names": ("p",)} | arguments))


@pytest.mark.parametrize(
    "pairs",
    [
        [("proto_version", "x"), ("publication_names", "p")],
        [("proto_version", "1")],
        [("proto_version", "1"), ("publication_names", '"p')],
        [("proto_version", "1"), ("publication_names", "p"), ("colour", "red")],
        [("proto_version", "1"), ("publication_names", "p"), ("binary", "perhaps")],
        [("proto_version", "1"), ("publication_names", "p"), ("streaming", "on")],
        [("proto_version", "4"), ("publication_names", "p"), ("origin", "here")],
        [("proto_version", "1"), ("publication_names", "p"), ("publication_names", "q")],
        [("proto_version", "1"), ("publication_names", "p"), ("binary", "true"), ("binary", "true")],
        [("proto_version", "1_0"), ("publication_names", "p")],
        [("proto_version", "-1"), ("publication_names", "p")],
        [("proto_version", "\u0661"), ("publication_names", "p")],
        [("proto_version", None), ("publication_names", "p")],
    ],
)
def test_what_a_walsender_refuses(pairs: list[tuple[str, str]]) -> None:
    with pytest.raises(ProtocolError) as caught:
        PgoutputOptions.parse(pairs)
    assert caught.value.offset == 0


@pytest.mark.parametrize(("text", "offset"), [('"p', 0), ("a,b c", 2), ("a,", 0), ('a,""', 2), ("a b", 0), (",a", 0)])
def test_a_list_of_names_goes_wrong_at_a_place(text: str, offset: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_publication_names(text)
    assert caught.value.offset == offset


@pytest.mark.parametrize(
    ("arguments", "least"),
    [
        ({}, 1),
        ({"streaming": "on"}, 2),
        ({"two_phase": True}, 3),
        ({"streaming": "on", "two_phase": True}, 3),
        ({"streaming": "parallel"}, 4),
        ({"streaming": "parallel", "two_phase": True}, 4),
    ],
)
def test_the_lowest_version_that_has_it_will_do(arguments: dict[str, Any], least: int) -> None:
    assert PgoutputOptions(("p",), least, **arguments).least_proto_version == least
    if least > 1:
        with pytest.raises(ConfigError, match=f"needs protocol version {least}, not {least - 1}"):
            PgoutputOptions(("p",), least - 1, **arguments)


@pytest.mark.parametrize(
    ("given", "streaming"),
    [("parallel", "parallel"), ("PARALLEL", "parallel"), ("on", "on"), ("1", "on"), (None, "on"), ("off", "off")],
)
def test_streaming_is_a_boolean_or_parallel(given: str | None, streaming: str) -> None:
    pairs = [("proto_version", "4"), ("publication_names", "p"), ("streaming", given)]
    assert PgoutputOptions.parse(pairs).streaming == streaming


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("ÄPUB", ("Äpub",)),
        ('a"b', ('a"b',)),
        ("a\u00a0b,\u2003c", ("a\u00a0b", "\u2003c")),
        (' "A""B" ,\tc', ('A"B', "c")),
    ],
)
def test_names_are_read_as_split_identifier_string_does(text: str, read: tuple[str, ...]) -> None:
    assert parse_publication_names(text) == read


def test_one_name_is_not_taken_for_its_letters() -> None:
    with pytest.raises(ConfigError, match=r"Write \('shop',\)"):
        PgoutputOptions("shop")  # type: ignore[arg-type]


@pytest.mark.parametrize(("given", "origin"), [("any", "any"), ("NONE", "none"), (None, None)])
def test_origin_is_any_or_none(given: str | None, origin: str | None) -> None:
    assert (
        PgoutputOptions.parse([("proto_version", "4"), ("publication_names", "p"), ("origin", given)]).origin == origin
    )
