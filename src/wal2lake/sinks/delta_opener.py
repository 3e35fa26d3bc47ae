"""How the settings of a lake become a Delta table's sink."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from wal2lake.sinks.delta import DeltaSink
from wal2lake.sinks.retention import Retention

if TYPE_CHECKING:
    from wal2lake.config import LakeConfig
    from wal2lake.lakes import Place


def open_delta(lake: LakeConfig, pipeline: str, namespace: str, name: str) -> DeltaSink:
    """An ``OpenSink`` for both modes. Rows are marked in mirrors alone."""
    place, marks = lake.place.table(namespace, name), lake.deletion_vectors and lake.mode == "mirror"
    return DeltaSink(place, pipeline, Retention.of(lake), marks, _cache(lake, place))


def _cache(lake: LakeConfig, place: Place) -> Path | None:
    """A folder of this machine for a table elsewhere."""
    return None if place.is_local else Path(lake.local_path, lake.place.url.slug, *place.uri.split("/")[-2:])
