"""Files that others have written, or could: a backup's archives, a table's Delta log, the configuration.

None of them carries a checksum of its own, so a mutant may well be read. What counts: nothing but an error of ours is
raised, a server's archive writes nowhere but where it belongs, and no error tells what it should not.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from tests.fuzz.targets import Target
from wal2lake.config import Config
from wal2lake.errors import ConfigError, SinkError
from wal2lake.postgres.physical.archive import Archive
from wal2lake.sinks.base import TargetError
from wal2lake.sinks.delta import DeltaSink

_SECRET = "hunter2"
_LINE = 80


def targets() -> list[Target]:
    """An archive; a log's commits; a full configuration and the template's."""
    return [
        Target("backup archive", [_archive()], _in_folder(_unpacked)),
        Target("delta log", list(_commits()), _in_folder(_opened)),
        Target("configuration", [_CONFIGURATION, _nested()], _in_folder(_configured)),
    ]


def _in_folder(run: Callable[[bytes, Path], None]) -> Callable[[bytes], None]:
    def in_folder(data: bytes) -> None:
        folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
        try:
            run(data, folder)
        finally:
            shutil.rmtree(folder)

    return in_folder


def _unpacked(data: bytes, folder: Path) -> None:
    """The offset of a refusal is that of the archive; a real one names the file, which chance has named here."""
    target, space = folder / "target", folder / "space"
    target.mkdir()
    space.mkdir()
    archive = Archive(target, {"pg_tblspc/16384": space}, checksums="SHA256", sync=False)
    try:
        for _ in archive.read(iter([data[:700], data[700:]])):
            pass
    finally:
        assert sorted(entry.name for entry in folder.iterdir()) == ["space", "target"], "written elsewhere"
        assert not list(space.iterdir()), "written through a link"
        for entry in target.rglob("*"):
            assert entry.is_symlink() or entry.stat().st_mode & 0o777 in (0o600, 0o700)
            assert not entry.is_symlink() or os.readlink(entry) == str(space)


def _archive() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, kind, content, link in (
            ("backup_label", tarfile.REGTYPE, b"START WAL LOCATION", ""),
            ("pg_tblspc", tarfile.DIRTYPE, b"", ""),
            ("pg_tblspc/16384", tarfile.SYMTYPE, b"", "/server/space"),
            ("base", tarfile.DIRTYPE, b"", ""),
            ("base/1", tarfile.REGTYPE, bytes(600), ""),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname = kind, len(content), link
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()[: 512 * 11]


def _opened(data: bytes, folder: Path) -> None:
    log = folder / "_delta_log"
    log.mkdir()
    (log / f"{0:020}.json").write_bytes(data)
    sink = DeltaSink(str(folder), "fuzz")
    for read in (sink.state, sink.count_rows):
        try:
            read()
        except (SinkError, TargetError) as error:
            assert len(str(error)) < 2000 and "\n" not in str(error), f"an error of {len(str(error))} characters"


def _commits() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.string())])
        sink = DeltaSink(folder, "fuzz")
        rows = pa.record_batch([[1, 2], ["a", "b"]], schema=schema)
        sink.commit_files(sink.write_files([rows], schema), 8, schema, None)
        return [file.read_bytes() for file in sorted(Path(folder).glob("_delta_log/*.json"))]


_CONFIGURATION = f"""
[source]
dsn = "host=h password={_SECRET}"
slot = "s"
[log]
retention_seconds = 1e3
segment_bytes = 1_000_000
[pipeline]
text_columns = ["a.b.c"]
[spark]
"spark.master" = "local[1]"
sql.shuffle.partitions = 4
ui.enabled = true
""".encode()


def _nested() -> bytes:
    return b"[spark]\nx = " + b"[" * _LINE + b"]" * _LINE


def _configured(data: bytes, folder: Path) -> None:
    path = folder / "wal2lake.toml"
    path.write_bytes(data)
    with suppress(ConfigError):
        try:
            Config.load(path)
        except ConfigError as error:
            assert _SECRET not in str(error), f"tells the password: {error}"
            raise
