"""The one way in which tests wait: for a condition, up to a deadline that only a failure reaches.

A sleep anywhere else is what the test is about (a slow program, a killing at any moment), and says so beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
_POLL_S = 0.02


def eventually(
    condition: Callable[[], T],
    errors: Sequence[Exception] = (),
    *,
    timeout_s: float = 60,
    alive: Callable[[], object] = lambda: True,
    poll_s: float = _POLL_S,
) -> T:
    """Return what ``condition`` returns as soon as that is true. Raises the first of ``errors``, to which other threads
    may add, and fails when ``alive`` is no longer true: then it is waited for in vain."""
    deadline = time.monotonic() + timeout_s
    while not (held := condition()):
        if errors:
            raise errors[0]
        assert alive(), "what was to bring it about has ended"
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(poll_s)
    return held
