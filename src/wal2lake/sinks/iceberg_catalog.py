"""Which catalog knows a lake's Iceberg tables, and by which names.

Where nothing is said it is a SQLite file in the lake's folder, in which no table's name can lie (``_`` never begins
one). Else it is what pyiceberg's own configuration says (``.pyiceberg.yaml``, PYICEBERG_CATALOG__…), with the
properties of the settings above it. A catalog is opened once by each process.

Source: PyIceberg documentation, "Configuration"; Iceberg, "Table Spec", "Optimistic Concurrency".
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyiceberg.catalog import Catalog, load_catalog

from wal2lake.errors import ConfigError
from wal2lake.lakes import table_uri
from wal2lake.urls import is_object_url
from wal2lake.variables import looked_up

if TYPE_CHECKING:
    from wal2lake.config import LakeConfig

LOCAL: Final = "_catalog.db"
_NAME: Final = "wal2lake"
_PATIENCE_S: Final = 60  # of one who waits for another's commit to a SQLite file
_DURABLE: Final = "wal2lake.sinks.iceberg_io.DurableFileIO"


def lake_catalog(lake: LakeConfig, *, make: bool = False) -> Catalog | None:
    """The catalog of the lake; None if it is the lake's own and not there, unless it is to be made."""
    properties = looked_up("lake.catalog_properties", lake.catalog_properties)
    if not is_object_url(lake.path):
        properties.setdefault("py-io-impl", _DURABLE)
    if lake.catalog or lake.catalog_properties:
        return _opened(lake.catalog or _NAME, tuple(sorted(properties.items())), os.getpid())
    file = Path(lake.path, LOCAL)
    if not file.exists():
        if not make:
            return None
        file.parent.mkdir(parents=True, exist_ok=True)
    own = {"type": "sql", "uri": f"sqlite:///{file}?timeout={_PATIENCE_S}"}
    return _opened(_NAME, tuple(sorted((properties | own).items())), os.getpid())


def identifier(lake: LakeConfig, namespace: str, name: str) -> tuple[str, str]:
    """By which the catalog knows a table: its namespace and name as they stand in paths, with dots, which stand between
    the parts of a catalog's names, as ``~2E``."""
    *_, space, table = table_uri(lake.path, namespace, name).replace(".", "~2E").split("/")
    return space, table


@lru_cache(maxsize=8)
def _opened(name: str, properties: tuple[tuple[str, str], ...], process: int) -> Catalog:
    try:
        return load_catalog(name, **dict(properties))
    except (ValueError, TypeError) as error:  # of its own making: which property it lacks
        hint = "Look at lake.catalog and lake.catalog_properties, and at pyiceberg's own configuration."
        raise ConfigError(f"The catalog {name} of the Iceberg tables cannot be opened: {error}.", hint=hint) from error
