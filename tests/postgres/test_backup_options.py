"""What a base backup refuses before it begins, what it does not wait for, and manifests that are none."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from wal2lake.cli.protocol import app
from wal2lake.errors import ConfigError, ProtocolError, ServerError
from wal2lake.postgres.physical.backup import BackupOptions, base_backup
from wal2lake.postgres.physical.manifest import read_manifest
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.testing.walsender import FakeWalsender


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"[]",
        b'{"Manifest-Checksum": "", "Files": [1]}',
        b'{"Manifest-Checksum": "", "Files": [{"Path": "a", "Size": Infinity}]}',
        b'{"Manifest-Checksum": "", "Files": ' + b"[" * 100_000,
        b'{"Manifest\\u002dChecksum": "", "Files": []}',
    ],
)
def test_what_is_no_manifest_is_called_that(manifest: bytes) -> None:
    with pytest.raises(ProtocolError, match="manifest cannot be read"):
        read_manifest(manifest)


@pytest.mark.parametrize("mapping", [{"old": "/new"}, {"/old": "new"}])
def test_a_tablespace_moves_between_absolute_paths(mapping: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="absolute"):
        BackupOptions(tablespaces=mapping)


def test_a_tablespaces_old_location_may_be_written_in_many_ways() -> None:
    assert BackupOptions(tablespaces={"/old//place/": "/new"}).tablespaces == {"/old/place": "/new"}


@pytest.mark.parametrize(
    ("arguments", "version", "asked"),
    [
        (["-r", "10M"], "18.0", "MAX_RATE 10240,"),
        (["-r", "512 k"], "18.0", "MAX_RATE 512,"),
        (["-r", "0.5M"], "18.0", "MAX_RATE 512,"),
        (["-r", "1e3"], "18.0", "MAX_RATE 1000,"),
        (["-r", "33.9"], "14.0", "MAX_RATE 33 "),
        (["--no-verify-checksums"], "18.0", "VERIFY_CHECKSUMS 'false',"),
        (["--no-verify-checksums"], "14.0", "NOVERIFY_CHECKSUMS "),
        (["--manifest-force-encode"], "18.0", "MANIFEST 'force-encode', MANIFEST_CHECKSUMS 'SHA256'"),
        (["--manifest-force-encode"], "14.0", "MANIFEST 'force-encode' MANIFEST_CHECKSUMS 'SHA256'"),
        (["--no-manifest"], "18.0", "WAIT 'false')"),
    ],
)
def test_what_the_command_asks_for(tmp_path: Path, arguments: list[str], version: str, asked: str) -> None:
    refusing = {"BASE_BACKUP": lambda session: session.fail("XX000", "not today")}
    with FakeWalsender(lambda session: None, commands=refusing, server_version=version) as server:
        done = CliRunner().invoke(app, ["basebackup", str(tmp_path / "copy"), "--dsn", server.dsn, *arguments])
    assert isinstance(done.exception, ServerError), done.output
    assert asked in server.queries[-1]


@pytest.mark.parametrize("rate", ["10G", "10m", "fast", "-5", "", "1e999", "\u0661"])
def test_what_is_no_rate(tmp_path: Path, rate: str) -> None:
    done = CliRunner().invoke(app, ["basebackup", str(tmp_path / "copy"), "--dsn", "", "-r", rate])
    assert isinstance(done.exception, ConfigError) and "no transfer rate" in str(done.exception)


def test_a_rate_that_no_server_takes(tmp_path: Path) -> None:
    with FakeWalsender(lambda session: None) as server:
        done = CliRunner().invoke(app, ["basebackup", str(tmp_path / "copy"), "--dsn", server.dsn, "-r", "2000M"])
    assert isinstance(done.exception, ConfigError) and "between 32 and 1048576" in str(done.exception)


@pytest.mark.server
def test_wal_that_comes_along_need_not_be_archived_first(tmp_path: Path) -> None:
    with EmbeddedPostgres(settings={"archive_mode": "on", "archive_command": "false"}) as server:
        backup = base_backup(server.dsn, tmp_path / "copy", BackupOptions(checkpoint="fast", sync=False))
    assert backup.start_lsn < backup.end_lsn
