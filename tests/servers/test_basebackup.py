"""A base backup of every version starts as a server; PostgreSQL's own programs accept what they can read."""

from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.conftest import give_to_server, program
from wal2lake.errors import ConfigError, ProtocolError, ServerConfigError
from wal2lake.postgres.backup_stream import MANIFEST
from wal2lake.postgres.basebackup import BackupOptions, Progress, base_backup
from wal2lake.postgres.manifest import ReceivedFiles, read_manifest
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.servers

FIRST_MANIFEST_VERSION = range(13, 17)  # what pg_verifybackup of 16 reads; the wheel's of 18 does not run


@pytest.fixture
def filled(versioned: EmbeddedPostgres, folder: Path) -> Iterator[EmbeddedPostgres]:
    """The server with two tables, one of them in a tablespace."""
    space = folder / "space"
    space.mkdir()
    give_to_server(space)
    versioned.psql(f"CREATE TABLESPACE away LOCATION '{space}'")
    versioned.psql("CREATE TABLE backed AS SELECT g FROM generate_series(1, 1000) g")
    versioned.psql("CREATE TABLE backed_away TABLESPACE away AS SELECT g FROM generate_series(1, 1000) g")
    yield versioned
    versioned.psql("DROP TABLE backed, backed_away")
    versioned.psql("DROP TABLESPACE away")


def options(folder: Path, name: str, **changes: object) -> BackupOptions:
    values = {"checkpoint": "fast", "sync": False, "tablespaces": {str(folder / "space"): str(folder / name)}}
    return BackupOptions(**{**values, **changes})  # type: ignore[arg-type]


def verify(data: Path) -> None:
    major = int((data / "PG_VERSION").read_text())
    if major in FIRST_MANIFEST_VERSION:
        subprocess.run([program("pg_verifybackup", 16), "-n", str(data)], check=True, capture_output=True)


def rows(server: EmbeddedPostgres, root: Path) -> str:
    """Start a server from the data directory below ``root`` and count what it has."""
    give_to_server(root)
    with EmbeddedPostgres(settings=server.settings, data_dir=root, install=server.install) as copy:
        return copy.psql("SELECT (SELECT count(*) FROM backed), (SELECT count(*) FROM backed_away)")


def test_plain(filled: EmbeddedPostgres, folder: Path) -> None:
    told: list[Progress] = []
    root = folder / "plain"
    backup = base_backup(filled.dsn, root / "data", options(folder, "moved"), on_progress=told.append)
    assert backup.start_lsn < backup.end_lsn
    assert told[-1].received == backup.received > 0
    assert backup.files == len(read_manifest((root / "data" / MANIFEST).read_bytes()))
    verify(root / "data")
    give_to_server(folder / "moved")
    assert rows(filled, root) == "1000|1000"
    with pytest.raises(ConfigError, match="not empty"):
        base_backup(filled.dsn, root / "data")


def test_tar(filled: EmbeddedPostgres, folder: Path) -> None:
    target, root = folder / "tar", folder / "extracted"
    base_backup(filled.dsn, target, options(folder, "unused", format="tar"))
    archives = sorted(path.name for path in target.glob("*.tar"))
    assert len(archives) == 2 and archives[1] == "base.tar"
    (root / "data").mkdir(parents=True)
    for name in archives:
        assert (target / name).read_bytes()[-1024:] == bytes(1024)
        where = root / "data" if name == "base.tar" else folder / "moved"
        with tarfile.open(target / name) as archive:
            archive.extractall(where, filter="fully_trusted")
    (root / "data").chmod(0o700)
    oid = archives[0].removesuffix(".tar")
    (root / "data" / "tablespace_map").write_text(f"{oid} {folder / 'moved'}\n")
    give_to_server(folder / "moved")
    assert rows(filled, root) == "1000|1000"


def test_incremental(filled: EmbeddedPostgres, folder: Path) -> None:
    base_backup(filled.dsn, folder / "full", options(folder, "full_space"))
    chosen = options(folder, "incremental_space", incremental=folder / "full" / MANIFEST)
    major = int((folder / "full" / "PG_VERSION").read_text())
    if major < 17:
        with pytest.raises(ServerConfigError, match="17"):
            base_backup(filled.dsn, folder / "incremental", chosen)
        return
    filled.psql("INSERT INTO backed SELECT g FROM generate_series(1, 10) g; CHECKPOINT")
    backup = base_backup(filled.dsn, folder / "incremental", chosen)
    assert backup.received < sum(path.stat().st_size for path in (folder / "full").rglob("*") if path.is_file())
    if major != 18:  # pg_combinebackup of another version refuses pg_control
        return
    root = folder / "combined"
    root.mkdir()
    mapping = f"{folder / 'incremental_space'}={folder / 'combined_space'}"
    command = [program("pg_combinebackup"), str(folder / "full"), str(folder / "incremental")]
    subprocess.run([*command, "-o", str(root / "data"), "-T", mapping], check=True, capture_output=True)
    give_to_server(folder / "combined_space")
    assert rows(filled, root) == "1010|1000"


def test_a_difference_from_the_manifest_is_found(filled: EmbeddedPostgres, folder: Path) -> None:
    base_backup(filled.dsn, folder / "full", options(folder, "moved"))
    manifest = (folder / "full" / MANIFEST).read_bytes()
    listed = read_manifest(manifest)
    came = ReceivedFiles({path: (told.size, told.checksum or "") for path, told in listed.items()})
    assert came.check(manifest) == len(listed)
    path, (size, checksum) = next((path, came.files[path]) for path in listed if came.files[path][0])
    for wrong in ((size + 1, checksum), (size, "00" + checksum[2:] if checksum[:2] != "00" else "ff" + checksum[2:])):
        with pytest.raises(ProtocolError, match=path):
            ReceivedFiles({**came.files, path: wrong}).check(manifest)
    with pytest.raises(ProtocolError, match="lacks"):
        ReceivedFiles({p: told for p, told in came.files.items() if p != path}).check(manifest)
    with pytest.raises(ProtocolError, match="does not list"):
        ReceivedFiles({**came.files, "base/stray": (0, "")}).check(manifest)
    with pytest.raises(ProtocolError, match="own checksum"):
        read_manifest(manifest.replace(b'"Size": 8192', b'"Size": 8193', 1))
