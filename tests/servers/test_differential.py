"""Some of what `python -m bench plugins` compares: our plugins beside the server's own C plugins, on 13 to 18."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.plugins.differential import encoder_pairs, pairs, recorded
from tests.plugins.oracle import oracle_server
from tests.plugins.scenario import FOLDER, read_scenario
from wal2lake.errors import ConfigError
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.testing.servers import VERSIONS

pytestmark = pytest.mark.servers
SCENARIOS = ["generated", "keys", "messages", "savepoints", "streamed_aborted", "toast", "two_phase", "types"]


@pytest.fixture(scope="module", params=sorted(VERSIONS))
def judge(request: pytest.FixtureRequest) -> Iterator[tuple[int, EmbeddedPostgres]]:
    """A server with the C plugins; wal2json is among them on 15."""
    try:
        starting = oracle_server(request.param)
    except ConfigError as error:
        pytest.skip(f"{error.message} {error.hint}")
    with starting as server:
        yield request.param, server


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_output_is_the_c_plugins(judge: tuple[int, EmbeddedPostgres], name: str) -> None:
    major, server = judge
    scenario = read_scenario(FOLDER / f"{name}.sql")
    if scenario.since > major:
        pytest.skip(f"{name} needs {scenario.since}")
    with recorded(server, scenario, major) as recording:
        for pair in (*pairs(recording), *encoder_pairs(recording)):
            assert pair.equal, f"{pair}: {pair.difference()}"
