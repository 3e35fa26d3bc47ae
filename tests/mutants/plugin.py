"""The tests of one run: the quick before the slow, and none without an end."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, settings

import wal2lake
from tests.mutants import COPY, DURATIONS, PROFILE

_DATA_BYTES: Final = 4 << 30  # a mutant may allocate for ever

settings.register_profile(
    PROFILE,
    derandomize=True,
    database=None,
    max_examples=40,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # which example fails is of no interest, so none is made smaller
    suppress_health_check=list(HealthCheck),
)
resource.setrlimit(resource.RLIMIT_DATA, (_DATA_BYTES, _DATA_BYTES))
_durations: dict[str, float] = {}


def pytest_configure() -> None:
    assert wal2lake.__file__ is not None
    assert Path(wal2lake.__file__).is_relative_to(os.environ[COPY]), "the tests would run against another code"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """``timeout``: how long each took without a change, and much more."""
    file = Path(os.environ[DURATIONS])
    if file.exists():
        took = json.loads(file.read_text())
        items.sort(key=lambda item: took.get(item.nodeid, 0.0))
        for item in items:
            item.add_marker(pytest.mark.timeout(20 + 5 * took.get(item.nodeid, 0.0)))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _durations[report.nodeid] = _durations.get(report.nodeid, 0.0) + report.duration


def pytest_sessionfinish() -> None:
    file = Path(os.environ[DURATIONS])
    if not file.exists():
        file.write_text(json.dumps(_durations))
