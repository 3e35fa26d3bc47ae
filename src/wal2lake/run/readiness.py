"""Whether this machine can run the pipeline: modules, Java, folders and room; `check` says it beside the server's part.

Nothing is written to find that out.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from wal2lake.config import Config
from wal2lake.errors import SparkError
from wal2lake.monitor.view import size
from wal2lake.postgres.findings import Finding
from wal2lake.spark.java import find_java

_LEAST_BYTES = 1 << 30  # for the log: some minutes of a busy server, if Spark stops
_CAPTURE, _PIPELINE = ("numpy", "pyarrow"), ("deltalake", "pyspark")


def readiness(config: Config, source_bytes: int | None) -> list[Finding]:
    """What stands in the way of `run` here; ``source_bytes``: what the published tables take, if that is known."""
    return [*_modules(), *_java(), *_folders(config), *_room(config, source_bytes)]


def _modules() -> Iterator[Finding]:
    lacking = [name for name in (*_CAPTURE, *_PIPELINE) if not _installed(name)]
    if not lacking:
        yield Finding("modules", "ok", "All modules that capture and pipeline need are installed.")
    elif set(lacking) & set(_CAPTURE):
        text = f"Neither capture nor pipeline can run here without {', '.join(lacking)}: pip install 'wal2lake[all]'."
        yield Finding("modules", "error", text)
    else:
        text = f"Only capture can run here, for {', '.join(lacking)} is missing: pip install 'wal2lake[all]' for both."
        yield Finding("modules", "warning", text)


def _installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ImportError:
        return False


def _java() -> Iterator[Finding]:
    if not _installed("pyspark"):
        return
    try:
        yield Finding("java", "ok", f"Spark finds its Java in {find_java()}.")
    except SparkError as error:
        yield Finding("java", "error", str(error))


def _places(config: Config) -> Iterator[tuple[str, Path]]:
    for name, place in (("log", config.log.path), ("lake", config.lake.path)):
        if "://" not in place:
            yield name, Path(place)


def _nearest(folder: Path) -> Path:
    """What is there of the way to ``folder``."""
    return next((path for path in (folder, *folder.parents) if path.exists()), Path("/"))


def _folders(config: Config) -> Iterator[Finding]:
    for name, folder in _places(config):
        there = _nearest(folder)
        if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
            yield Finding(name, "ok", f"{folder} can be written{'' if there == folder else ', and will be made'}.")
        else:
            reason = "may not be written by this user" if there.is_dir() else "is no folder"
            yield Finding(name, "error", f"{there} {reason}, so {name}.path = {folder} cannot be used.")


def _room(config: Config, source_bytes: int | None) -> Iterator[Finding]:
    """A first copy takes about what the tables take, often less: Parquet is smaller, but old files stay a while."""
    for name, folder in _places(config):
        least = _LEAST_BYTES if name == "log" else source_bytes
        free = shutil.disk_usage(_nearest(folder)).free
        text = f"{size(free)} are free for the {name}"
        if name == "lake" and source_bytes is not None:
            text += f", and the published tables take {size(source_bytes)} on the server"
        if least is None or free >= least:
            yield Finding(f"free_{name}", "ok", f"{text}.")
        else:
            yield Finding(f"free_{name}", "warning", f"{text}: make room.")
