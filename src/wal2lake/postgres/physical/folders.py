"""The folders of a base backup: filled together, and left as they were unless it succeeds."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from wal2lake.errors import ConfigError
from wal2lake.files import flush_tree

logger = logging.getLogger("wal2lake.files")


class NewFolders:
    """Folders that are filled together. Unless ``keep``, whatever ends the block early leaves them as they were."""

    def __init__(self, *, keep: bool) -> None:
        self._keep = keep
        self._claimed: list[tuple[Path, bool]] = []

    def claim(self, folder: Path) -> None:
        """Make ``folder`` where it is missing; raise ConfigError when something is in it."""
        existed = folder.exists()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ConfigError(f"{folder} is not empty.", hint="Name a new or empty folder for the backup.")
        self._claimed.append((folder, existed))

    def flush(self) -> None:
        """Make every entry in and below the folders durable, and the folders' own."""
        for claimed, _ in self._claimed:
            flush_tree(claimed)

    def __enter__(self) -> NewFolders:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or self._keep:
            return
        for folder, existed in reversed(self._claimed):
            try:
                _empty(folder)
                if not existed:
                    folder.rmdir()
            except OSError as error:  # the reason why the block ended early matters more
                logger.warning("What came into %s could not be removed: %s.", folder, error.strerror)


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
