"""A base backup of every version starts as a server; PostgreSQL's own programs accept it and build on it."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.servers.clients import Clients, run
from tests.servers.conftest import give_to_server
from wal2lake.cli.protocol import app
from wal2lake.errors import ConfigError, InterruptedByUser, ProtocolError, ServerConfigError
from wal2lake.postgres.physical.backup import BackupOptions, BackupProgress, base_backup
from wal2lake.postgres.physical.backup_stream import MANIFEST
from wal2lake.postgres.physical.manifest import ReceivedFiles, read_manifest
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.servers


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


def rows(server: EmbeddedPostgres, root: Path) -> str:
    """Start a server from the data directory below ``root`` and count what it has."""
    give_to_server(root)
    with EmbeddedPostgres(settings=server.settings, data_dir=root, install=server.install) as copy:
        return copy.psql("SELECT (SELECT count(*) FROM backed), (SELECT count(*) FROM backed_away)")


def test_plain(filled: EmbeddedPostgres, folder: Path) -> None:
    told: list[BackupProgress] = []
    root = folder / "plain"
    backup = base_backup(filled.dsn, root / "data", options(folder, "moved"), on_progress=told.append)
    assert backup.start_lsn < backup.end_lsn
    assert told[-1].received == backup.received > 0
    assert backup.files == len(read_manifest((root / "data" / MANIFEST).read_bytes()))
    give_to_server(folder / "moved")
    assert rows(filled, root) == "1000|1000"
    with pytest.raises(ConfigError, match="not empty"):
        base_backup(filled.dsn, root / "data")


def test_the_commands_backup_is_accepted(filled: EmbeddedPostgres, folder: Path, clients: Clients) -> None:
    mapping = f"{folder / 'space'}={folder / 'moved'}"
    chosen = ["--checkpoint", "fast", "--no-sync", "-T", mapping, "--dsn", filled.dsn]
    done = CliRunner().invoke(app, ["basebackup", str(folder / "plain"), *chosen])
    assert done.exit_code == 0, done.output
    clients.verify(folder / "plain")


def test_a_tablespace_within_the_data_directory(versioned: EmbeddedPostgres, folder: Path, clients: Clients) -> None:
    versioned.psql("SET allow_in_place_tablespaces = on; CREATE TABLESPACE here LOCATION ''")
    versioned.psql("CREATE TABLE within TABLESPACE here AS SELECT g FROM generate_series(1, 1000) g")
    try:
        base_backup(versioned.dsn, folder / "plain" / "data", options(folder, "moved"))
    finally:
        versioned.psql("DROP TABLE within; DROP TABLESPACE here")
    clients.verify(folder / "plain" / "data")
    give_to_server(folder / "plain")
    settings = {**versioned.settings, "allow_in_place_tablespaces": "on"}
    with EmbeddedPostgres(settings=settings, data_dir=folder / "plain", install=versioned.install) as copy:
        assert copy.psql("SELECT count(*) FROM within") == "1000"


def test_what_is_interrupted_leaves_nothing_behind(filled: EmbeddedPostgres, folder: Path) -> None:
    def interrupt(progress: BackupProgress) -> None:
        if (folder / "moved").exists():
            raise InterruptedByUser("Interrupted.")

    (folder / "found").mkdir()
    for name in ("new", "found"):
        with pytest.raises(InterruptedByUser):
            base_backup(filled.dsn, folder / name, options(folder, "moved"), on_progress=interrupt)
        assert sorted(entry.name for entry in folder.iterdir()) == ["found", "space"], name
        assert not list((folder / "found").iterdir())
    kept = options(folder, "moved", clean=False)
    with pytest.raises(InterruptedByUser):
        base_backup(filled.dsn, folder / "new", kept, on_progress=interrupt)
    assert (folder / "new").is_dir() and (folder / "moved").is_dir()


def test_tar(filled: EmbeddedPostgres, folder: Path, clients: Clients) -> None:
    target, root = folder / "tar", folder / "extracted"
    base_backup(filled.dsn, target, options(folder, "unused", format="tar"))
    if not (filled.data_dir / "PG_VERSION").read_text().startswith("17"):
        clients.verify_tar(target)
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


@pytest.mark.parametrize("versioned", [13, 14, 15, 16], indirect=True)
def test_incremental_is_refused_before_17(versioned: EmbeddedPostgres, folder: Path) -> None:
    (folder / MANIFEST).touch()
    with pytest.raises(ServerConfigError, match="17"):
        base_backup(versioned.dsn, folder / "incremental", options(folder, "unused", incremental=folder / MANIFEST))


@pytest.mark.parametrize("versioned", [17, 18], indirect=True)
def test_an_incremental_chain_is_combined(filled: EmbeddedPostgres, folder: Path, clients: Clients) -> None:
    chain = [folder / name for name in ("full", "first", "second")]
    full = base_backup(filled.dsn, chain[0], options(folder, "full_space"))
    for before, backup in pairwise(chain):
        for table in ("backed", "backed_away"):
            filled.psql(f"INSERT INTO {table} SELECT g FROM generate_series(1, 10) g")
        chosen = options(folder, f"{backup.name}_space", incremental=before / MANIFEST)
        assert base_backup(filled.dsn, backup, chosen).received < 0.6 * full.received  # most of it is a WAL segment
    root = folder / "combined"
    root.mkdir()
    mapping = f"{folder / 'second_space'}={folder / 'combined_space'}"
    major = int((chain[0] / "PG_VERSION").read_text())
    run(clients.require(major) / "pg_combinebackup", *chain, "-o", root / "data", "-T", mapping)
    for backup in (*chain, root / "data"):
        clients.verify(backup)
    give_to_server(folder / "combined_space")
    assert rows(filled, root) == "1020|1020"


def test_a_difference_from_the_manifest_is_found(versioned: EmbeddedPostgres, folder: Path) -> None:
    base_backup(versioned.dsn, folder / "tar", options(folder, "unused", format="tar", wal=False))
    manifest = (folder / "tar" / MANIFEST).read_bytes()
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
