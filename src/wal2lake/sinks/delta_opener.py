"""How the settings of a lake become a Delta table's sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wal2lake.sinks.delta import DeltaSink
from wal2lake.sinks.folder import table_uri
from wal2lake.sinks.retention import Retention

if TYPE_CHECKING:
    from wal2lake.config import LakeConfig


def open_delta(lake: LakeConfig, pipeline: str, namespace: str, name: str) -> DeltaSink:
    """An ``OpenSink`` for both modes. Rows are marked in mirrors alone."""
    uri = table_uri(lake.path, namespace, name)
    return DeltaSink(uri, pipeline, Retention.of(lake), lake.deletion_vectors and lake.mode == "mirror")
