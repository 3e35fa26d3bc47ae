"""A hostile server cannot have a base backup write anywhere but where the user said."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from wal2lake.errors import ConfigError, ProtocolError, Wal2LakeError
from wal2lake.postgres.physical.backup import BackupOptions, base_backup
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.testing.walsender import FakeWalsender, Session
from wal2lake.wire.messages import CopyData, CopyDone, CopyOutResponse

Member = tuple[str, bytes, bytes, str]  # name, type, content, where a link points to
FILE, FOLDER, LINK, HARD = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


def tar(members: Sequence[Member]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, kind, content, link in members:
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname, info.mode = kind, len(content), link, 0o4777
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def manifest() -> bytes:
    listed = b'{"PostgreSQL-Backup-Manifest-Version": 2, "Files": [], '
    own = b'"Manifest-Checksum": "' + hashlib.sha256(listed).hexdigest().encode() + b'"}'
    return listed + own


class Backup:
    """A server whose tablespaces and archives are the test's."""

    def __init__(self, tablespaces: Sequence[tuple[str, str]], archives: Sequence[tuple[str, bytes]]) -> None:
        self.tablespaces = tablespaces
        self.archives = archives

    def __call__(self, session: Session) -> None:
        session.result([("0/2000028", "1")])
        session.result([*((oid, location, "1") for oid, location in self.tablespaces), (None, None, "1")])
        session.send(CopyOutResponse(0, ()))
        for name, content in self.archives:
            session.send(CopyData(b"n" + name.encode() + b"\0\0"), CopyData(b"d" + content))
        session.send(CopyData(b"m"), CopyData(b"d" + manifest()), CopyDone())
        session.result([("0/2000100", "1")])
        session.answer(command="BASE_BACKUP")


def take(backup: Backup, folder: Path, **options: object) -> None:
    with FakeWalsender(lambda session: None, commands={"BASE_BACKUP": backup}) as server:
        base_backup(server.dsn, folder / "copy", BackupOptions(sync=False, **options))  # type: ignore[arg-type]


EXPLOITS: dict[str, tuple[list[Member], type[Wal2LakeError], str]] = {
    "a link to anywhere": ([("pg_tblspc/5", LINK, b"", "OUT")], ProtocolError, "neither file, folder nor tablespace"),
    "a file below a link": (
        [
            ("pg_tblspc", FOLDER, b"", ""),
            ("pg_tblspc/1", LINK, b"", "OUT"),
            ("pg_tblspc/1/authorized_keys", FILE, b"x", ""),
        ],
        ProtocolError,
        "below the link of a tablespace",
    ),
    "a file in place of a link": (
        [("pg_tblspc", FOLDER, b"", ""), ("pg_tblspc/1/x", FILE, b"x", "")],
        ProtocolError,
        "below",
    ),
    "a link elsewhere": ([("base", LINK, b"", "OUT"), ("base/x", FILE, b"x", "")], ProtocolError, "neither file"),
    "a hard link": ([("x", HARD, b"", "OUT/kept")], ProtocolError, "neither file"),
    "up": ([("../outside/x", FILE, b"x", "")], ProtocolError, "leads out"),
    "from the root": ([("OUT/x", FILE, b"x", "")], ProtocolError, "leads out"),
    "a device": ([("x", tarfile.CHRTYPE, b"", "")], ProtocolError, "neither file"),
    "a file twice": ([("x", FILE, b"1", ""), ("x", FILE, b"2", "")], ProtocolError, "cannot be made"),
}


@pytest.mark.parametrize("exploit", EXPLOITS)
def test_doors_no_archive_writes_elsewhere(tmp_path: Path, exploit: str) -> None:
    members, error, match = EXPLOITS[exploit]
    outside, moved = tmp_path / "outside", tmp_path / "moved"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    named = [(n.replace("OUT", str(outside)), k, c, t.replace("OUT", str(outside))) for n, k, c, t in members]
    backup = Backup([("1", "/server/space")], [("1.tar", tar([])), ("base.tar", tar(named))])
    with pytest.raises(error, match=match):
        take(backup, tmp_path, tablespaces={"/server/space": str(moved)})
    assert [entry.name for entry in tmp_path.rglob("*")] == ["outside", "kept"]


@pytest.mark.parametrize(
    ("tablespaces", "error"),
    [
        ([("1", "OUT")], ConfigError),
        ([("1", "../outside")], ProtocolError),
        ([("1", "pg_tblspc/2")], ProtocolError),
        ([("1", "")], ProtocolError),
        ([("1", "/a"), ("1", "/b")], ProtocolError),
    ],
)
def test_doors_no_tablespace_goes_where_the_server_wants(
    tmp_path: Path, tablespaces: list[tuple[str, str]], error: type[Wal2LakeError]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    named = [(oid, place.replace("OUT", str(outside))) for oid, place in tablespaces]
    content = tar([("x", FILE, b"x", "")])
    with pytest.raises(error) as refused:
        take(Backup(named, [("1.tar", content), ("base.tar", content)]), tmp_path)
    assert error is ProtocolError or f"-T {outside}=NEWDIR" in str(refused.value)
    assert [entry.name for entry in tmp_path.rglob("*")] == ["outside"]


@pytest.mark.server
@pytest.mark.parametrize("group", [False, True])
def test_doors_a_copy_is_as_closed_as_the_cluster(tmp_path: Path, group: bool) -> None:
    with EmbeddedPostgres() as server:
        if group:
            server.stop()
            for entry in [server.data_dir, *server.data_dir.rglob("*")]:
                entry.chmod(0o750 if entry.is_dir() else 0o640)
            server.start()
        options = BackupOptions(checkpoint="fast", sync=False, recovery_conf=True)
        base_backup(server.dsn, tmp_path / "plain", options)
        base_backup(server.dsn, tmp_path / "tar", BackupOptions(format="tar", checkpoint="fast", sync=False))
    found = {entry.stat().st_mode & 0o7777 for name in ("plain", "tar") for entry in (tmp_path / name).rglob("*")}
    assert found == ({0o750, 0o640} if group else {0o700, 0o600})
    assert (tmp_path / "plain").stat().st_mode & 0o7777 == (0o750 if group else 0o700)
