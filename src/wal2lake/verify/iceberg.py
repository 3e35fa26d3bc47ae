"""Iceberg tables as verify sees them: pyiceberg's scan says which files a snapshot has, Spark reads the rows.

Spark finds the columns in the files by the ids that the snapshot's schema gives them, as any reader of Iceberg does, so
no runtime of Iceberg's for this Spark is needed and a wrong id is found. Nothing that the sink knows of files and
columns is asked; where a table lies is.

Source: Iceberg, "Table Spec", "Scan Planning", "Column Projection"; Spark, "Parquet Files", field ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType as SparkStruct

from wal2lake.config import LakeConfig
from wal2lake.errors import VerifyError, Wal2LakeError
from wal2lake.lsn import LSN
from wal2lake.sinks.iceberg_catalog import identifier, lake_catalog
from wal2lake.verify.comparison import ComparedColumn, Comparison, Window
from wal2lake.verify.lake import READ, digests_of
from wal2lake.verify.position import LSN_KEY, LakePosition

_WORDS: Final = {
    "int": "integer",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    **{word: word for word in ("boolean", "long", "float", "double", "date", "string", "binary")},
}


@dataclass(frozen=True, slots=True)
class IcebergLocation:
    """As a TableLocation: a published table, and by what the lake's catalog knows it."""

    name: str
    relation_id: int
    lake: LakeConfig
    path: tuple[str, str]

    def exists(self) -> bool:
        """The lake has such a table."""
        return self._table() is not None

    def position(self, lsn: LSN) -> LakePosition | None:
        """The snapshot before the first one of wal2lake's beyond ``lsn``; None when the lake has no such table."""
        table = self._table()
        if table is None:
            return None
        line = list(_line(table))
        version, passed = line[0].snapshot_id if line else -1, False
        for snapshot in line:
            said = None if snapshot.summary is None else snapshot.summary[LSN_KEY]
            applied = None if said is None else LSN.parse(said)
            if applied is not None and applied <= lsn:
                return LakePosition(version, applied, passed)
            if applied is not None:
                version, passed = snapshot.parent_snapshot_id or -1, True
        return LakePosition(version, LSN(0), passed)

    def at(self, position: LakePosition) -> IcebergVersion:
        """The snapshot that ``position`` names."""
        table = self._table()
        if table is None:
            raise VerifyError("The lake has no such table any more.", relation=self.name)
        return IcebergVersion(table, position.version)

    def _table(self) -> Table | None:
        with _reading(self.name):
            catalog = lake_catalog(self.lake)
            try:
                return None if catalog is None else catalog.load_table(identifier(self.lake, *self.path))
            except (NoSuchTableError, NoSuchNamespaceError):
                return None


class IcebergVersion:
    """One snapshot of a table. ``types``: column name → its type, in Delta's JSON."""

    def __init__(self, table: Table, snapshot_id: int) -> None:
        self._table = table
        self._snapshot_id = snapshot_id
        self._schema = _schema_of(table, snapshot_id)
        self.types: dict[str, Any] = {field.name: _type(field.field_type) for field in self._schema.fields}

    def rows_in(self, session: SparkSession) -> IcebergRows:
        """Raises VerifyError when the files alone do not say what the rows are."""
        with _reading(".".join(self._table.name())):
            tasks = list(self._table.scan(snapshot_id=self._snapshot_id).plan_files())
        if any(task.delete_files for task in tasks):
            raise VerifyError(
                "The Iceberg table has delete files, which verify cannot read.",
                hint="wal2lake itself never writes them: have them applied (rewrite_data_files), or read it anew.",
            )
        return IcebergRows(session, self._schema, [task.file.file_path for task in tasks])


class IcebergRows:
    """As a LakeTable: what is digested."""

    def __init__(self, session: SparkSession, schema: Schema, files: Sequence[str]) -> None:
        kind = SparkStruct.fromJson({"type": "struct", "fields": list(map(_field, schema.fields))})
        reader = session.read.options(**READ).schema(kind)
        self._rows = reader.parquet(*files) if files else session.createDataFrame([], kind)

    def digests(
        self, comparison: Comparison, window: Window, groups: Sequence[Sequence[ComparedColumn]]
    ) -> dict[int, tuple[int, ...]]:
        """As a LakeTable's."""
        return digests_of(self._rows, comparison, window, groups)


def _line(table: Table) -> Iterator[Snapshot]:
    """The newest snapshot and those that it came from."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)


def _schema_of(table: Table, snapshot_id: int) -> Schema:
    """The columns while the snapshot was the newest, to the end: some may have come without another snapshot."""
    later: Snapshot | None = None
    for snapshot in _line(table):
        if snapshot.snapshot_id == snapshot_id:
            break
        later = snapshot
    schemas, own = table.schemas(), table.snapshot_by_id(snapshot_id)
    at_end = table.schema() if later is None else schemas.get(later.schema_id or 0, table.schema())
    at_first = at_end if own is None or own.schema_id is None else schemas[own.schema_id]
    grown = set(at_first.field_ids) <= set(at_end.field_ids)
    return at_end if grown else at_first


def _field(field: NestedField) -> dict[str, Any]:
    own = {"parquet.field.id": field.field_id}
    return {"name": field.name, "type": _type(field.field_type), "nullable": True, "metadata": own}


def _type(kind: IcebergType) -> Any:
    """As Delta, and Spark, write it in JSON."""
    if isinstance(kind, ListType):
        return {"type": "array", "elementType": _type(kind.element_type), "containsNull": True}
    if isinstance(kind, StructType):
        return {"type": "struct", "fields": list(map(_field, kind.fields))}
    if isinstance(kind, MapType):
        sides = {"keyType": _type(kind.key_type), "valueType": _type(kind.value_type)}
        return {"type": "map", **sides, "valueContainsNull": True}
    word = str(kind).replace(" ", "")
    if word not in _WORDS and not word.startswith("decimal("):
        raise VerifyError(f"The Iceberg table has a column of the type {word}, which verify cannot read.")
    return _WORDS.get(word, word)


@contextmanager
def _reading(table: str) -> Iterator[None]:
    """What pyiceberg, a catalog or the system says in the block is why the table cannot be read."""
    try:
        yield
    except Wal2LakeError:
        raise
    except Exception as error:
        raise VerifyError(f"The Iceberg table cannot be read: {type(error).__name__}.", relation=table) from error
