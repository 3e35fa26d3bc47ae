"""A folder for what is spilled: locked while its process lives, so that what a killed one left is known and removed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

_PREFIX: Final = "wal2lake-spill-"


class SpillFolder:
    """Made below ``parent``; removes those there that nobody has any more. Raises OSError."""

    def __init__(self, parent: str | Path) -> None:
        _remove_abandoned(Path(parent))
        made = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=parent))
        self._lock = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = made.rename(made.with_name(made.name[1:]))  # whoever sees this name sees it locked

    def remove(self) -> None:
        """With all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _remove_abandoned(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # somebody else's, in use, or just removed
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(lock)
