from __future__ import annotations

import pytest

from wal2lake.errors import ServerConfigError
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.server


def test_the_server_has_logical_wal(server: EmbeddedPostgres) -> None:
    assert server.psql("show wal_level") == "logical"


def test_a_crash_and_a_restart_keep_committed_rows() -> None:
    with EmbeddedPostgres() as server:
        server.psql("set synchronous_commit = on; create table kept as select 1 as id")
        server.kill()
        server.start()
        assert server.psql("select count(*) from kept") == "1"


def test_a_setting_that_cannot_be_is_named() -> None:
    with (
        pytest.raises(ServerConfigError, match="wal_level"),
        EmbeddedPostgres(settings={"wal_level": "none"}),
    ):
        pass


def test_what_a_program_says_before_it_fails_is_told(server: EmbeddedPostgres) -> None:
    with pytest.raises(ServerConfigError, match=r"initdb ended with code 1(.|\n)*exists but is not empty"):
        server.run_program("initdb", "-D", str(server.data_dir))
