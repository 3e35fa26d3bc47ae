from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wal2lake.names import qualified, split_qualified


@given(st.lists(st.text(st.sampled_from('a.B" é'), min_size=1), min_size=1).map(tuple))
def test_no_two_names_share_a_text(parts: tuple[str, ...]) -> None:
    assert split_qualified(qualified(*parts)) == parts


def test_usual_names_stand_as_they_are() -> None:
    assert qualified("shop", "Order lines") == "shop.Order lines"
    assert qualified("a.b", 'c"d') == '"a.b"."c""d"'


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", '"a', 'a"b', '"a"b', '"a"".b', '""'])
def test_what_is_no_name_has_no_parts(text: str) -> None:
    assert split_qualified(text) == ()
