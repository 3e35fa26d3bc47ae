"""Whether this machine can run the pipeline: modules, Java, folders and room; `check` says it beside the server's part.

Nothing is written to find that out, but for what is deleted again from an object store.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from wal2lake.config import Config
from wal2lake.errors import SparkError, Wal2LakeError
from wal2lake.extras import missing_extra
from wal2lake.monitor.view import size
from wal2lake.postgres.findings import Finding
from wal2lake.spark.java import find_java
from wal2lake.urls import is_object_url

_LEAST_BYTES = 1 << 30  # for the log: some minutes of a busy server, if Spark stops
_CAPTURE, _PIPELINE = ("numpy", "pyarrow"), ("deltalake", "pyspark")


def readiness(config: Config, source_bytes: int | None) -> list[Finding]:
    """What stands in the way of `run` here; ``source_bytes``: what the published tables take, if that is known."""
    return [
        *_modules(),
        *_java(),
        *_format(config),
        *_folders(config),
        *_log_in_store(config),
        *_lake_in_store(config),
        *_room(config, source_bytes),
    ]


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


def _format(config: Config) -> Iterator[Finding]:
    """One that is not Delta may be missing, or not do what is asked of it."""
    if config.lake.format == "delta":
        return
    try:
        from wal2lake.sinks.factory import check_lake  # noqa: PLC0415 - the core installs without Arrow

        check_lake(config.lake)
    except ModuleNotFoundError as error:
        if (missing := missing_extra(error, "run")) is None:
            raise
        yield Finding("lake_format", "error", str(missing))
    except Wal2LakeError as error:
        yield Finding("lake_format", "error", str(error))
    else:
        yield Finding("lake_format", "ok", f"The lake's tables are {config.lake.format}, in mode {config.lake.mode}.")


def _places(config: Config) -> Iterator[tuple[str, Path]]:
    for name, place in (("log", config.log.folder), ("lake", config.lake.path)):
        if not is_object_url(place):
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
            setting = "log.local_path" if name == "log" and is_object_url(config.log.path) else f"{name}.path"
            yield Finding(name, "error", f"{there} {reason}, so {setting} = {folder} cannot be used.")


def _log_in_store(config: Config) -> Iterator[Finding]:
    """It can only be tried: an object is written, written over under a condition, read and deleted."""
    if not is_object_url(config.log.path):
        return
    try:
        from wal2lake.changelog.objects import object_storage  # noqa: PLC0415 - an extra

        storage = object_storage(config.log.path)
        storage.probe()
    except ModuleNotFoundError as error:
        if (missing := missing_extra(error, "check")) is None:
            raise
        yield Finding("object_store", "error", str(missing))
    except Wal2LakeError as error:
        yield Finding("object_store", "error", str(error))
    else:
        yield Finding("object_store", "ok", f"{storage.where} can be written, under conditions, read and deleted.")


def _lake_in_store(config: Config) -> Iterator[Finding]:
    """A table is made there, changed, read and deleted, by what will do so later."""
    if not is_object_url(config.lake.path):
        return
    try:
        from wal2lake.sinks.factory import probe_lake  # noqa: PLC0415 - an extra

        tried = probe_lake(config.lake)
    except ModuleNotFoundError as error:
        if (missing := missing_extra(error, "check")) is None:
            raise
        alone = not all(map(_installed, _PIPELINE))  # capture needs no lake
        text = f"{config.lake.path} was not tried. {missing}"
        yield Finding("lake", "warning" if alone else "error", text)
    except Wal2LakeError as error:
        yield Finding("lake", "error", str(error))
    else:
        done = "takes tables: one was made there, changed, read and deleted."
        text = done if tried else f"was not tried: nothing here knows how to try the format {config.lake.format}."
        yield Finding("lake", "ok" if tried else "warning", f"{config.lake.path} {text}")


def _room(config: Config, source_bytes: int | None) -> Iterator[Finding]:
    """A first copy takes about what the tables take, often less: Parquet is smaller, but old files stay a while."""
    for name, folder in _places(config):
        least = source_bytes if name == "lake" else 0 if is_object_url(config.log.path) else _LEAST_BYTES
        free = shutil.disk_usage(_nearest(folder)).free
        text = f"{size(free)} are free for the {name}"
        if name == "lake" and source_bytes is not None:
            text += f", and the published tables take {size(source_bytes)} on the server"
        if least is None or free >= least:
            yield Finding(f"free_{name}", "ok", f"{text}.")
        else:
            yield Finding(f"free_{name}", "warning", f"{text}: make room.")
