"""Plugins are found by name: the ones that ship, entry points of installed packages, or ``module:Class``.

An installed package offers one as ``[project.entry-points."wal2lake.output_plugins"]``. A name is asked for as
CREATE_REPLICATION_SLOT asks for a library; whose code runs is the caller's decision, as it is there the superuser's.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Final

from wal2lake.decoding.plugin import OutputPlugin, check_callbacks
from wal2lake.errors import PluginError

ENTRY_POINTS: Final = "wal2lake.output_plugins"
BUILT_IN: Final = {
    "debezium": "wal2lake.decoding.plugins.debezium:Debezium",
    "json": "wal2lake.decoding.plugins.json_lines:JsonLines",
    "pgoutput": "wal2lake.decoding.plugins.pgoutput:Pgoutput",
    "test_decoding": "wal2lake.decoding.plugins.test_decoding:TestDecoding",
    "wal2json": "wal2lake.decoding.plugins.wal2json:Wal2Json",
}


def plugin_names() -> list[str]:
    """The names that can be loaded here, besides any ``module:Class``."""
    return sorted({*BUILT_IN, *(point.name for point in entry_points(group=ENTRY_POINTS))})


def load_plugin(name: str) -> OutputPlugin:
    """A new instance of the plugin; raises PluginError when there is none, or callbacks are missing."""
    loaded = _find(name)
    if not (isinstance(loaded, type) and issubclass(loaded, OutputPlugin)):
        raise PluginError(
            f"{name} is not an output plugin.", hint="It must be a class that extends wal2lake.decoding.OutputPlugin."
        )
    check_callbacks(loaded)
    return loaded()


def _find(name: str) -> object:
    if name in BUILT_IN or ":" in name:
        return _imported(BUILT_IN.get(name, name))
    for point in entry_points(group=ENTRY_POINTS, name=name):
        return _imported(point.value)
    raise PluginError(
        f"There is no output plugin {name}.",
        hint=f"Known here: {', '.join(plugin_names())}; one of your own is named module:Class.",
    )


def _imported(reference: str) -> object:
    module, _, path = reference.partition(":")
    try:
        found: object = import_module(module)
        for attribute in path.split("."):
            found = getattr(found, attribute)
    except (ImportError, AttributeError, ValueError, SyntaxError) as error:
        raise PluginError(
            f"The output plugin {reference} cannot be loaded: {error}.",
            hint="Its module must be importable: installed, or in a folder of PYTHONPATH.",
        ) from error
    return found
