"""What a base backup refuses before it begins, what it does not wait for, and manifests that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from wal2lake.errors import ConfigError, ProtocolError
from wal2lake.postgres.physical.backup import BackupOptions, base_backup
from wal2lake.postgres.physical.manifest import read_manifest
from wal2lake.testing.embedded import EmbeddedPostgres


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


@pytest.mark.server
def test_wal_that_comes_along_need_not_be_archived_first(tmp_path: Path) -> None:
    with EmbeddedPostgres(settings={"archive_mode": "on", "archive_command": "false"}) as server:
        backup = base_backup(server.dsn, tmp_path / "copy", BackupOptions(checkpoint="fast", sync=False))
    assert backup.start_lsn < backup.end_lsn
