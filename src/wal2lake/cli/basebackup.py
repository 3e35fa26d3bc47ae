"""`wal2lake basebackup`: pg_basebackup's job. The result goes to standard output, words to standard error."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from wal2lake.cli.options import with_dsn
from wal2lake.cli.output import say
from wal2lake.cli.shared import Json, SayOnce, pairs, refuse, show
from wal2lake.errors import ConfigError
from wal2lake.login import Dsn
from wal2lake.postgres.physical.backup import BackupOptions, BackupProgress, base_backup

_RATE = re.compile(r"\s*(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE]\+?\d{1,2})?)\s*(?P<unit>[kM]?)\s*", re.ASCII)
EXAMPLE = "Example: wal2lake basebackup copy --checkpoint fast --progress"
_Mapping = Annotated[
    list[str] | None,
    typer.Option(
        "--tablespace-mapping",
        "-T",
        help="OLDDIR=NEWDIR: where a tablespace outside the data directory goes; plain format needs one for each.",
    ),
]
_Progress = Annotated[
    bool | None,
    typer.Option("--progress/--no-progress", "-P", help="Show how far it is, which is the default on a terminal."),
]


class BackupFormat(StrEnum):
    PLAIN = "plain"
    TAR = "tar"


class Checkpoint(StrEnum):
    FAST = "fast"
    SPREAD = "spread"


@with_dsn
def basebackup(
    context: typer.Context,
    target: Annotated[Path, typer.Argument(help="A new or empty folder.")],
    dsn: Dsn,
    backup_format: Annotated[
        BackupFormat, typer.Option("--format", "-F", help="plain: a data directory; tar: an archive a tablespace.")
    ] = BackupFormat.PLAIN,
    checkpoint: Annotated[Checkpoint, typer.Option(help="fast: at once, at the server's cost.")] = Checkpoint.SPREAD,
    label: Annotated[str, typer.Option("--label", "-l", help="Stands in backup_label.")] = "wal2lake base backup",
    no_wal: Annotated[bool, typer.Option("--no-wal", help="Leave out the WAL that the backup needs.")] = False,
    max_rate: Annotated[
        str | None, typer.Option("--max-rate", "-r", help="kB/s, 32 to 1048576; or with a suffix: 512k, 10M.")
    ] = None,
    incremental: Annotated[
        Path | None, typer.Option("--incremental", "-i", help="The backup_manifest to build on (17 and later).")
    ] = None,
    manifest_checksums: Annotated[str, typer.Option(help="SHA224 to SHA512; CRC32C or NONE: sizes only.")] = "SHA256",
    tablespace_mapping: _Mapping = None,
    no_sync: Annotated[bool, typer.Option("--no-sync", "-N", help="Do not wait until all is durable.")] = False,
    no_clean: Annotated[bool, typer.Option("--no-clean", "-n", help="After a failure, keep what had come.")] = False,
    no_manifest: Annotated[bool, typer.Option("--no-manifest", help="Without backup_manifest, and unchecked.")] = False,
    manifest_force_encode: Annotated[
        bool, typer.Option("--manifest-force-encode", help="Every path in the manifest in hexadecimal.")
    ] = False,
    no_verify_checksums: Annotated[
        bool, typer.Option("--no-verify-checksums", help="The server does not check its pages' checksums.")
    ] = False,
    recovery_conf: Annotated[
        bool,
        typer.Option("--write-recovery-conf", "-R", help="Make the copy a standby: standby.signal, primary_conninfo."),
    ] = False,
    progress: _Progress = None,
    as_json: Json = False,
) -> None:
    """Copy the whole cluster and check the copy against its manifest: pg_basebackup's job."""
    if no_manifest:
        refuse(context, ("manifest_checksums", "manifest_force_encode"), "has no effect with --no-manifest.")
    if backup_format is BackupFormat.TAR:
        refuse(context, ("tablespace_mapping", "recovery_conf"), "is for plain format.", "Leave out --format tar.")
    options = BackupOptions(
        format=backup_format.value,
        label=label,
        checkpoint=checkpoint.value,
        wal=not no_wal,
        max_rate=None if max_rate is None else _kilobytes(max_rate),
        manifest_checksums=manifest_checksums,
        incremental=incremental,
        tablespaces=_tablespaces(tablespace_mapping),
        sync=not no_sync,
        clean=not no_clean,
        manifest="force-encode" if manifest_force_encode else not no_manifest,
        verify_checksums=not no_verify_checksums,
        recovery_conf=recovery_conf,
    )
    shown = sys.stderr.isatty() if progress is None else progress
    hint = " (--checkpoint fast has it at once)" if checkpoint is Checkpoint.SPREAD else ""
    waiting = SayOnce(f"Waiting for the server's checkpoint{hint} …")
    with closing(_Percent()) as percent:
        backup = base_backup(
            dsn,
            target,
            options,
            on_progress=percent if shown else None,
            on_wait=waiting,
            on_notice=lambda message: say(f"PostgreSQL says: {message}."),
        )
    show(asdict(backup), as_json)


class _Percent:
    """Says on standard error how far a backup is, whenever the percentage changes; a terminal sees one line."""

    def __init__(self) -> None:
        self._shown = -1
        self._terminal = sys.stderr.isatty()

    def __call__(self, progress: BackupProgress) -> None:
        percent = min(100, 100 * progress.received // max(1, progress.total))
        if percent != self._shown:
            self._shown = percent
            text = f"{progress.received >> 10} of about {progress.total >> 10} kB ({percent} %)"
            typer.echo(f"\r{text}" if self._terminal else text, nl=not self._terminal, err=True)

    def close(self) -> None:
        """End the line."""
        if self._terminal and self._shown >= 0:
            typer.echo(err=True)


def _kilobytes(rate: str) -> int:
    """What pg_basebackup's --max-rate takes: a number, of kB/s by itself or with k, of MB/s with M; fractions of a kB
    do not count. Raises ConfigError. Source: parse_max_rate in pg_basebackup.c."""
    found = _RATE.fullmatch(rate)
    if found is None:
        raise ConfigError(f"--max-rate {rate} is no transfer rate.", hint="Write a number of kB/s, or 512k, or 10M.")
    return int(float(found["number"]) * (1024 if found["unit"] == "M" else 1))


def _tablespaces(folders: Sequence[str] | None) -> dict[str, str]:
    mapping = {}
    for old, new in pairs(folders):
        if not new:
            raise ConfigError(f"-T {old} names no new folder.", hint="Write OLDDIR=NEWDIR.")
        mapping[old] = new
    return mapping
