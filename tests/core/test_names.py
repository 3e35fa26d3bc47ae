from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wal2lake.names import printable, qualified, split_qualified

HARMFUL = "\n\r\x1b\x9b\u202e\u2028\udc80"


@given(st.lists(st.text(st.sampled_from('a.B" é\\nU&+0' + HARMFUL), min_size=1), min_size=1).map(tuple))
def test_no_two_names_share_a_text_and_each_can_be_shown_and_sent_back(parts: tuple[str, ...]) -> None:
    text = qualified(*parts)
    assert split_qualified(text) == parts
    assert printable(text) == text


@pytest.mark.parametrize("text", [r'U&"a\000Ab"', r'U&"a\+00000Ab"'])
def test_both_escapes_of_the_server_are_read(text: str) -> None:
    assert split_qualified(f"shop.{text}") == ("shop", "a\nb")


def test_usual_names_stand_as_they_are() -> None:
    assert qualified("shop", "Order lines") == "shop.Order lines"
    assert qualified("a.b", 'c"d') == '"a.b"."c""d"'


NO_NAMES = ["", ".", "a.", ".a", "a..b", '"a', 'a"b', '"a"b', '"a"".b', '""']
NO_ESCAPES = [r'U&"\zz"', r'U&"\+110000"', 'U&""', 'xU&"a"']


@pytest.mark.parametrize("text", [*NO_NAMES, *NO_ESCAPES])
def test_what_is_no_name_has_no_parts(text: str) -> None:
    assert split_qualified(text) == ()
