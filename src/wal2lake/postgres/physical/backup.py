"""pg_basebackup's job: a copy of the cluster, as tar files or as a data directory that a server starts from.

Every archive is parsed as it comes, whatever the format, so each file's size and checksum are compared with the
manifest, and nothing is written outside the target (archive.py) but where the user wants tablespaces. WAL that the copy
needs comes along in the same stream (WAL option: pg_basebackup's ``--wal-method=fetch``). The target must be empty, and
a failure leaves it so.

Source: PostgreSQL documentation, "pg_basebackup", "BASE_BACKUP", "Backup Manifest Format".
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal

from psycopg import pq
from psycopg.errors import Diagnostic

from wal2lake.errors import ConfigError, ProtocolError
from wal2lake.files import flush_file, put, writing
from wal2lake.login import Dsn, as_login
from wal2lake.lsn import LSN
from wal2lake.postgres import exchange
from wal2lake.postgres.connection import next_result, replication_connection, run, start
from wal2lake.postgres.exchange import PGconn
from wal2lake.postgres.physical.archive import Archive, create
from wal2lake.postgres.physical.backup_stream import MANIFEST, BackupStream, Tablespace
from wal2lake.postgres.physical.folders import NewFolders
from wal2lake.postgres.physical.manifest import ReceivedFiles
from wal2lake.postgres.physical.standby import primary_conninfo, write_recovery_conf
from wal2lake.postgres.system import Permissions, data_directory_permissions
from wal2lake.wire.base_backup import BaseBackup
from wal2lake.wire.commands import UploadManifest

_PIECE = 1 << 20

Format = Literal["plain", "tar"]


@dataclass(frozen=True, slots=True)
class BackupProgress:
    """Bytes so far, of about ``total`` (which does not count the WAL)."""

    received: int
    total: int


@dataclass(frozen=True, slots=True)
class Backup:
    """A finished backup: from ``start_lsn`` on, WAL up to ``end_lsn`` makes it consistent. ``files``: those that the
    manifest lists and that were compared with it."""

    start_lsn: LSN
    end_lsn: LSN
    timeline: int
    received: int
    files: int


@dataclass(frozen=True, slots=True)
class BackupOptions:
    """``max_rate`` in kB/s. ``incremental``: the manifest of the backup to build on (17+, summarize_wal = on).
    ``manifest_checksums``: with CRC32C or NONE only sizes are compared here. ``tablespaces``: old → new location, for
    plain format. ``sync``: return when all is durable. ``clean``: a failure or Ctrl-C leaves nothing behind.
    ``manifest`` False: none comes, so nothing is compared; "force-encode": one with every path in hexadecimal.
    ``verify_checksums`` False: the server does not check its pages' checksums. ``recovery_conf``: a server started from
    the copy, which is of plain format, is a standby of this one."""

    format: Format = "plain"
    label: str = "wal2lake base backup"
    checkpoint: Literal["fast", "spread"] = "spread"
    wal: bool = True
    max_rate: int | None = None
    manifest_checksums: str = "SHA256"
    incremental: Path | None = None
    tablespaces: Mapping[str, str] = field(default_factory=dict)
    sync: bool = True
    clean: bool = True
    manifest: bool | Literal["force-encode"] = True
    verify_checksums: bool = True
    recovery_conf: bool = False

    def __post_init__(self) -> None:
        """Raise ConfigError for a tablespace that would end up where the server does not look, and for a standby's
        settings that have no place."""
        if self.recovery_conf and self.format == "tar":
            raise ConfigError("A standby's settings are written in plain format only.", hint="Leave out format tar.")
        for location in (part for pair in self.tablespaces.items() for part in pair):
            if not os.path.isabs(location):
                raise ConfigError(f"A tablespace's location is an absolute path; {location} is not.")
        normal = {os.path.normpath(old): new for old, new in self.tablespaces.items()}
        object.__setattr__(self, "tablespaces", normal)


def base_backup(
    dsn: Dsn,
    target: Path,
    options: BackupOptions | None = None,
    *,
    on_progress: Callable[[BackupProgress], None] | None = None,
    on_wait: Callable[[], None] | None = None,
    on_notice: Callable[[str], None] | None = None,
) -> Backup:
    """Take a backup into the empty or new folder ``target``.

    ``on_wait`` is called about once a second until the server's checkpoint is made; ``on_notice`` gets what the server
    says beside the backup, as on the archiving of WAL.
    Raises ConfigError when the target is not empty, ProtocolError when what came differs from its manifest,
    LogFullError, and what map_error says.
    """
    chosen = options or BackupOptions()
    with NewFolders(keep=not chosen.clean) as folders:
        with writing(target):
            existed = target.exists()
            folders.claim(target)
        with replication_connection(dsn, application_name="wal2lake basebackup", physical=True) as pgconn:
            if chosen.incremental is not None:
                upload_manifest(pgconn, chosen.incremental)
            if on_notice is not None:
                pgconn.notice_handler = lambda notice: on_notice(Diagnostic(notice, "utf-8").message_primary or "")
            permissions = data_directory_permissions(pgconn)
            if not existed:
                target.chmod(permissions.folder)
            stream = BackupStream(pgconn, _command(chosen), while_waiting=on_wait)
            report = on_progress or (lambda progress: None)
            receiver = _Receiver(target, folders, chosen, stream, permissions, report)
            with writing(target):
                backup = receiver.run()
                if chosen.recovery_conf:
                    write_recovery_conf(target, primary_conninfo(pgconn, as_login(dsn).dsn), permissions.file)
                if chosen.sync:
                    folders.flush()
            return backup


def upload_manifest(pgconn: PGconn, manifest: Path) -> None:
    """Tell the server which backup an incremental one, taken next on this connection, builds on (17+)."""
    content = manifest.read_bytes()
    result = start(pgconn, UploadManifest().build(pgconn.server_version))
    if result.status != pq.ExecStatus.COPY_IN:
        raise ProtocolError("UPLOAD_MANIFEST's reply is not as documented.")
    for offset in range(0, len(content), _PIECE):
        run(pgconn, exchange.put_copy_data(pgconn, content[offset : offset + _PIECE]))
    run(pgconn, exchange.put_copy_end(pgconn))
    while next_result(pgconn) is not None:
        pass


def _command(options: BackupOptions) -> BaseBackup:
    return BaseBackup(
        label=options.label,
        progress=True,
        checkpoint=options.checkpoint,
        wal=options.wal,
        wait=not options.wal,  # what comes along need not be archived first
        max_rate=options.max_rate,
        tablespace_map=options.format == "tar",
        manifest="force-encode" if options.manifest == "force-encode" else "yes" if options.manifest else "no",
        verify_checksums=options.verify_checksums,
        manifest_checksums=options.manifest_checksums if options.manifest else None,
        incremental=options.incremental is not None,
    )


class _Receiver:
    def __init__(
        self,
        target: Path,
        folders: NewFolders,
        options: BackupOptions,
        stream: BackupStream,
        permissions: Permissions,
        on_progress: Callable[[BackupProgress], None],
    ) -> None:
        self._target = target
        self._folders = folders
        self._options = options
        self._stream = stream
        self._on_progress = on_progress
        self._permissions = permissions
        self._tablespaces = {tablespace.archive: tablespace for tablespace in stream.tablespaces}
        self._places = _places(stream.tablespaces, options)
        self._total = sum(tablespace.size_kb or 0 for tablespace in stream.tablespaces) * 1024
        self._received = 0
        self._files = ReceivedFiles()

    def run(self) -> Backup:
        manifest = b""
        for name, pieces in self._stream.archives():
            if name == MANIFEST:
                manifest = b"".join(pieces)
            elif name in self._tablespaces:
                self._archive(self._tablespaces.pop(name), self._counted(pieces))
            else:
                raise ProtocolError(f"The server sent an archive {name!r} that belongs to no tablespace.")
        listed = 0
        if self._options.manifest:
            listed = self._files.check(manifest)
            put(self._target / MANIFEST, manifest)
            (self._target / MANIFEST).chmod(self._permissions.file)
        assert self._stream.end_lsn is not None
        return Backup(self._stream.start_lsn, self._stream.end_lsn, self._stream.timeline, self._received, listed)

    def _counted(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._received += len(piece)
            self._on_progress(BackupProgress(self._received, self._total))
            yield piece

    def _archive(self, tablespace: Tablespace, pieces: Iterator[bytes]) -> None:
        prefix = "" if tablespace.oid is None else f"pg_tblspc/{tablespace.oid}/"
        if self._options.format == "plain":
            folder = self._target if tablespace.oid is None else self._target / self._places[tablespace.oid]
            with writing(folder):
                if tablespace.oid is not None:
                    self._folders.claim(folder)
                    folder.chmod(self._permissions.folder)
                self._members(pieces, prefix, folder)
            return
        with create(self._target / tablespace.archive, self._permissions) as archive:
            self._members(_copied(pieces, archive), prefix, None)
            if self._options.sync:
                flush_file(archive)

    def _members(self, pieces: Iterator[bytes], prefix: str, folder: Path | None) -> None:
        """Go through an archive's members; with ``folder`` they become files there."""
        outside = {oid: place for oid, place in self._places.items() if place.is_absolute()}
        archive = Archive(
            folder,
            {} if prefix else {f"pg_tblspc/{oid}": place for oid, place in outside.items()},
            checksums=self._options.manifest_checksums,
            permissions=self._permissions,
            sync=self._options.sync,
        )
        for path, size, checksum in archive.read(pieces):
            self._files.files[prefix + path] = (size, checksum)


def _places(tablespaces: Sequence[Tablespace], options: BackupOptions) -> dict[int, Path]:
    """Where each tablespace goes: what the user says of its location, or its own place within the data directory.

    The server names the locations, so none of them is a reason to write there. Raises ConfigError, with the options
    that are missing, and ProtocolError for what no server has.
    """
    places: dict[int, Path] = {}
    unmapped = []
    for oid, location in ((space.oid, space.location or "") for space in tablespaces if space.oid is not None):
        within = f"pg_tblspc/{oid}"
        if oid in places or not (os.path.isabs(location) or location == within):
            raise ProtocolError(f"The server has a tablespace {oid} at {location!r}, which cannot be.")
        places[oid] = Path(options.tablespaces.get(os.path.normpath(location), location))
        if os.path.isabs(location) and os.path.normpath(location) not in options.tablespaces:
            unmapped.append(location)
    if unmapped and options.format == "plain":
        wanted = " ".join(f"-T {shlex.quote(f'{location}=NEWDIR')}" for location in unmapped)
        raise ConfigError(
            f"The server has tablespaces outside of its data directory: {', '.join(unmapped)}.",
            hint=f"Map each to a folder of its own ({wanted}), or take format tar.",
        )
    return places


def _copied(pieces: Iterator[bytes], archive: BinaryIO) -> Iterator[bytes]:
    for piece in pieces:
        archive.write(piece)
        yield piece
