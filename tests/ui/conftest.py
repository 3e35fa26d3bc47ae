from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.ui.shown import Shown
from wal2lake.ui.app import build_app
from wal2lake.ui.guard import Access
from wal2lake.ui.verifier import Verifier

Open = Callable[..., TestClient]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`make test` leaves out what needs a browser; it runs where `-m browser` asks for it."""
    if collection_path.name.startswith("test_browser") and "browser" not in str(config.getoption("markexpr")):
        return True
    return None


@pytest.fixture
def shown(tmp_path: Path) -> Shown:
    """One table that streams and one that is left out."""
    tables = {
        "shop.items": {
            "state": "streaming",
            "rows": 1200,
            "changes": 34,
            "changes_per_s": 5.0,
            "applied_lsn": "0/2F00",
        },
        "shop.orders": {"state": "quarantined", "reason": "A value cannot be held.", "applied_lsn": "0/2000"},
    }
    return Shown(tmp_path, tables, left_out=("shop.orders",))


@pytest.fixture
def open_page() -> Iterator[Open]:
    """A browser of ``shown``'s page, by the name of localhost; ``access`` as for Access."""
    with ExitStack() as stack:

        def opened(shown: Shown, base_url: str = "http://localhost:8432", **access: Any) -> TestClient:
            verifier = Verifier(shown.config)
            stack.callback(verifier.stop)
            app = build_app(shown.config, shown.watcher(), verifier, Access(**access))
            return stack.enter_context(TestClient(app, base_url, follow_redirects=False))

        yield opened
