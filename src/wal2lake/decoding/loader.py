"""Plugins are found by name: the ones that ship, entry points of installed packages, or ``module:Class``.

An installed package offers one as ``[project.entry-points."wal2lake.output_plugins"]``. A name is asked for as
CREATE_REPLICATION_SLOT asks for a library; whose code runs is the caller's decision, as it is there the superuser's.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import entry_points
from typing import Final

from wal2lake.decoding.plugin import OutputPlugin, check_callbacks
from wal2lake.decoding.plugin_errors import INTERRUPTS, describe_error
from wal2lake.errors import PluginError

_A_CLASS: Final = "It must be a class that extends wal2lake.decoding.OutputPlugin."
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
    """A new instance of the plugin; raises PluginError when there is none, when callbacks are missing or take other
    arguments, or when its module or its ``__init__`` raises."""
    loaded = _find(name)
    if not (isinstance(loaded, type) and issubclass(loaded, OutputPlugin)):
        raise PluginError(f"{name} is not an output plugin.", hint=_A_CLASS)
    check_callbacks(loaded)
    try:
        return loaded()
    except BaseException as error:
        raise _failure(f"The output plugin {name} cannot be made", error, loaded.__module__) from error


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
    if not all(part.isidentifier() for part in [*module.split("."), *path.split(".")]):
        raise PluginError(f"{reference} names no output plugin.", hint="Write it as module:Class.")
    found = _module(module, reference)
    for attribute in path.split("."):
        if not hasattr(found, attribute):
            raise PluginError(f"The module {module} has no {path}.", hint=_classes_of(module))
        found = getattr(found, attribute)
    return found


def _module(module: str, reference: str) -> object:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name and f"{module}.".startswith(f"{error.name}."):
            raise PluginError(
                f"The output plugin {reference} cannot be loaded: there is no module {error.name}.",
                hint="Its module must be importable: installed, or in a folder of PYTHONPATH.",
            ) from error
        raise _failure(f"The output plugin {reference} cannot be loaded", error, module) from error
    except BaseException as error:
        raise _failure(f"The output plugin {reference} cannot be loaded", error, module) from error


def _failure(what: str, error: BaseException, module: str) -> PluginError:
    if isinstance(error, INTERRUPTS):
        raise error
    return PluginError(f"{what}: {describe_error(error, module)}", hint=f"Mend its module {module}.")


def _classes_of(module: str) -> str:
    """The module is there: what might have been meant."""
    values = vars(sys.modules[module]).values()
    names = [value.__name__ for value in values if isinstance(value, type) and value.__module__ == module]
    plugins = [name for name in names if issubclass(getattr(sys.modules[module], name, int), OutputPlugin)]
    return f"Its output plugins: {', '.join(plugins)}." if plugins else _A_CLASS
