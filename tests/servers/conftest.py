"""One server per supported major version, started when the first test asks for it and kept for all."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from wal2lake.testing.binaries import unprivileged_user, wheel_install
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.testing.servers import VERSIONS, versioned_server

SETTINGS = {
    "synchronous_commit": "on",  # what is committed can be decoded at once
    "max_prepared_transactions": "10",
    "logical_decoding_work_mem": "64kB",
    "max_replication_slots": "50",
    "max_wal_senders": "50",
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "servers: needs the servers of 13 to 18, which npm fetches (make test-servers)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`make test` leaves these out; they run where `-m servers` asks for them."""
    if "servers" in str(config.getoption("markexpr")):
        return
    ours = [item for item in items if Path(__file__).parent in item.path.parents]
    if ours:
        config.hook.pytest_deselected(items=ours)
        items[:] = [item for item in items if item not in ours]


@pytest.fixture(scope="session")
def _running() -> Iterator[dict[int, EmbeddedPostgres]]:
    with ExitStack() as stack:
        running = _Servers(stack)
        yield running


class _Servers(dict[int, EmbeddedPostgres]):
    def __init__(self, stack: ExitStack) -> None:
        super().__init__()
        self._stack = stack

    def __missing__(self, major: int) -> EmbeddedPostgres:
        settings = SETTINGS | ({"summarize_wal": "on"} if major >= 17 else {})
        self[major] = self._stack.enter_context(versioned_server(major, settings))
        return self[major]


@pytest.fixture(params=sorted(VERSIONS))
def versioned(request: pytest.FixtureRequest, _running: dict[int, EmbeddedPostgres]) -> EmbeddedPostgres:
    """A server with contrib; the test runs once for each major version."""
    return _running[request.param]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the servers' user can reach, gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix="wal2lake-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def program(name: str, major: int = 18) -> str:
    """One of PostgreSQL's client programs from the wheel (16 or 18)."""
    return str(wheel_install(major) / "bin" / name)


def give_to_server(folder: Path) -> None:
    """Let the servers' user own ``folder``."""
    user = unprivileged_user()
    if user is not None:
        subprocess.run(["chown", "-R", str(user.pw_uid), str(folder)], check=True)
