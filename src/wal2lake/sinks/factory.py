"""The sink of a lake's table, by the lake's configuration. Each format has its line here; nobody above names one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from wal2lake.config import LakeConfig, LakeFormat
from wal2lake.sinks.base import Sink
from wal2lake.sinks.delta import DeltaSink
from wal2lake.sinks.folder import table_uri
from wal2lake.sinks.retention import Retention

_SINKS: Final[Mapping[LakeFormat, Callable[[str, str, Retention, bool], Sink]]] = {"delta": DeltaSink}


def open_sink(lake: LakeConfig, pipeline: str, namespace: str, name: str) -> Sink:
    """The table ``namespace.name`` of ``lake`` as the target of ``pipeline``; nothing is read or made yet."""
    uri = table_uri(lake.path, namespace, name)
    return _SINKS[lake.format](uri, pipeline, Retention.of(lake), lake.deletion_vectors and lake.mode == "mirror")
