"""What takes long runs where it is asked for: `python -m bench docs`, which counts what of the pages was run."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`make test` leaves the tests of this folder out that are marked ``documents``."""
    if "documents" in str(config.getoption("markexpr")):
        return
    here = Path(__file__).parent
    ours = [item for item in items if here in item.path.parents and item.get_closest_marker("documents") is not None]
    if ours:
        config.hook.pytest_deselected(items=ours)
        items[:] = [item for item in items if item not in ours]
