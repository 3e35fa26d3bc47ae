"""The vectors can be made anew: today's servers still say everything that the documentation lists."""

from __future__ import annotations

import pytest

from tests.vectors import SERVERS
from tests.vectors.coverage import missing
from tests.vectors.make import make


@pytest.mark.servers
@pytest.mark.parametrize("major", SERVERS)
def test_a_server_says_everything_again(major: int) -> None:
    assert missing([make(major)]) == []
