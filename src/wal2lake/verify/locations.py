"""Where a published table lies, whatever the lake's format: verify reads Delta and Iceberg, each by code of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from wal2lake.config import LakeConfig
from wal2lake.errors import ConfigError
from wal2lake.names import qualified
from wal2lake.verify.comparison import ComparedColumn, Comparison, Window
from wal2lake.verify.lake import LakeTable, lake_types
from wal2lake.verify.position import LakePosition, Located, TableLocation

if TYPE_CHECKING:
    from wal2lake.verify.iceberg import IcebergVersion


class Location(Located, Protocol):
    """A table of which a version can be read."""

    def at(self, position: LakePosition) -> DeltaTable | IcebergVersion:
        """The version that ``position`` names."""


class LakeRows(Protocol):
    """What a LakeTable is."""

    def digests(
        self, comparison: Comparison, window: Window, groups: Sequence[Sequence[ComparedColumn]]
    ) -> dict[int, tuple[int, ...]]:
        """``LakeTable.digests``."""


def require_readable(lake: LakeConfig) -> None:
    """Raises ConfigError for a format that verify has no code for."""
    if lake.format not in ("delta", "iceberg"):
        raise ConfigError(
            f"Verify reads Delta and Iceberg tables, and these are of the format {lake.format}.",
            hint="Compare the rows by a query of your own.",
        )


def locate(lake: LakeConfig, namespace: str, name: str, relation_id: int = 0) -> Location:
    """The table in the lake; nothing is looked at yet."""
    if lake.format == "iceberg":
        from wal2lake.verify.iceberg import IcebergLocation  # noqa: PLC0415 - an extra

        return IcebergLocation(qualified(namespace, name), relation_id, lake, (namespace, name))
    return TableLocation(qualified(namespace, name), relation_id, lake.place.table(namespace, name))


def types_of(version: DeltaTable | IcebergVersion) -> Mapping[str, Any]:
    """Column name → Delta's JSON for its type."""
    return lake_types(version) if isinstance(version, DeltaTable) else version.types


def rows_of(session: SparkSession, version: DeltaTable | IcebergVersion, location: Location) -> LakeRows:
    """Of a version of the table at ``location``. Raises VerifyError when its files alone do not say what its rows
    are."""
    if isinstance(version, DeltaTable):
        assert isinstance(location, TableLocation)
        return LakeTable(session, version, location.place)
    return version.rows_in(session)
