"""The one way in which tests wait: for a condition, up to a deadline that only a failure reaches."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
_POLL_S = 0.02


def eventually(
    condition: Callable[[], T], timeout_s: float = 60, errors: Sequence[Exception] = (), poll_s: float = _POLL_S
) -> T:
    """Return what ``condition`` returns as soon as that is true; raise the first of ``errors``, to which others may
    add, when there is one before."""
    deadline = time.monotonic() + timeout_s
    while not (held := condition()):
        if errors:
            raise errors[0]
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(poll_s)
    return held
