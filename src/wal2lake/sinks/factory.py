"""The sink of a lake's table, by the lake's configuration: a format that ships, or an installed package's.

A package offers a format as ``[project.entry-points."wal2lake.sinks"]``: its name, as lake.format has it, and an
``OpenSink`` (base.py). Each format that ships has its line here; nobody above names one. Its module is loaded with the
first table of it, so that nobody needs the libraries of another.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import Final, cast

from wal2lake.config import SINK_ENTRY_POINTS, LakeConfig
from wal2lake.errors import ConfigError
from wal2lake.sinks.base import OpenSink, Sink

_BOTH: Final = ("mirror", "append")
_HISTORY: Final = ("append",)
_SINKS: Final = {
    "delta": ("wal2lake.sinks.delta_opener", "open_delta", _BOTH),
    "iceberg": ("wal2lake.sinks.iceberg", "IcebergSink", _BOTH),
    "parquet": ("wal2lake.sinks.parquet", "ParquetSink", _HISTORY),
}
_PROBES: Final = {"delta": "wal2lake.sinks.delta_probe"}


def open_sink(lake: LakeConfig, pipeline: str, namespace: str, name: str) -> Sink:
    """The table ``namespace.name`` of ``lake`` as the target of ``pipeline``; nothing is read or made yet."""
    return opener(lake)(lake, pipeline, namespace, name)


def check_lake(lake: LakeConfig) -> None:
    """Raise what stands in the way of using the lake's tables, as far as the format has a ``check`` of its own, which
    changes nothing."""
    found = opener(lake)
    if (check := getattr(found, "check", None)) is not None:
        check(lake)


def opener(lake: LakeConfig) -> OpenSink:
    """What makes sinks of the lake's format. Raises ConfigError where it cannot be loaded, or not in this mode."""
    found, modes = _load(lake.format)
    if lake.mode not in modes:
        hint = f'Set lake.mode = "{modes[0]}", or another lake.format.'
        message = f"lake.mode is {lake.mode}, and the format {lake.format} can do {' and '.join(modes)} alone."
        raise ConfigError(message, hint=hint)
    return found


def probe_lake(lake: LakeConfig) -> bool:
    """Make a table in a lake in an object store, change, read and delete it; False where its format has no such probe.

    Raises what stands in the way: ConfigError, AuthError, RightsError, ConnectError, SinkError.
    """
    if lake.format not in _PROBES:
        return False
    import_module(_PROBES[lake.format]).probe(lake.place)
    return True


def _load(name: str) -> tuple[OpenSink, Sequence[str]]:
    """It, and which of lake.mode it can do."""
    if name in _SINKS:
        module, attribute, modes = _SINKS[name]
        return getattr(import_module(module), attribute), modes
    for point in entry_points(group=SINK_ENTRY_POINTS, name=name):
        try:
            found = point.load()
            return cast(OpenSink, found), getattr(found, "modes", _HISTORY)
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"The sink of lake.format = {name!r}, {point.value}, cannot be loaded: {error}.",
                hint="Its package must be installed with all that it needs, here and wherever Spark's workers run.",
            ) from error
    raise ConfigError(
        f"No installed package writes lake.format = {name!r} here.",
        hint="Install the one that does, here and wherever Spark's workers run.",
    )
