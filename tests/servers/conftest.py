"""One server per supported major version, started when the first test asks for it and kept for all.

With `pytest -n` several versions are tested at a time, each in a process of its own.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.servers.clients import Clients
from wal2lake.testing.binaries import unprivileged_user
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.testing.servers import VERSIONS, versioned_server

SETTINGS = {
    "synchronous_commit": "on",  # what is committed can be decoded at once
    "max_prepared_transactions": "10",
    "logical_decoding_work_mem": "64kB",
    "max_replication_slots": "50",
    "max_wal_senders": "50",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`make test` leaves these out; they run where `-m servers` asks for them."""
    if "servers" in str(config.getoption("markexpr")):
        return
    ours = [item for item in items if Path(__file__).parent in item.path.parents]
    if ours:
        config.hook.pytest_deselected(items=ours)
        items[:] = [item for item in items if item not in ours]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """How `pytest -n` deals the tests out to its processes."""
    return _ByServer(config, log)


class _ByServer(LoadScopeScheduling):
    """Tests that share a server run in one process, else each process would start every server."""

    def _split_scope(self, nodeid: str) -> str:
        major = re.search(r"\[(\d\d)\b", nodeid)
        return major[1] if major else super()._split_scope(nodeid)


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


@pytest.fixture(scope="session")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Clients:
    return Clients(tmp_path_factory.mktemp("clients"))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the servers' user can reach, gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix="wal2lake-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def give_to_server(folder: Path) -> None:
    """Let the servers' user own ``folder``."""
    user = unprivileged_user()
    if user is not None:
        subprocess.run(["chown", "-R", str(user.pw_uid), str(folder)], check=True)
