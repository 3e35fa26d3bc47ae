"""The lake's side: the Parquet files of exactly one Delta version, printed as PostgreSQL prints and digested in Spark.

Everything runs in a Spark session of its own (UTC, ANSI, names with case), so no setting of the user's can change a
text or hide a file. Nothing here knows how the rows came there. Rows that deletion vectors mark are left out: delta-rs
says which those are, by code of its own.

Source: Delta Transaction Log Protocol.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import reduce
from operator import or_
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from wal2lake.errors import VerifyError
from wal2lake.lakes import Place
from wal2lake.verify.comparison import RANGE_CHARACTERS, ComparedColumn, Comparison, Window
from wal2lake.verify.lake_files import LakeFile, rows_of
from wal2lake.verify.lake_place import asking
from wal2lake.verify.lake_text import lake_text, quoted
from wal2lake.verify.report import Key

_SESSION = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",  # decimals print without an exponent, sums never wrap
    "spark.sql.caseSensitive": "true",
    "spark.sql.shuffle.partitions": "1",  # one row per range
    "spark.sql.parquet.fieldId.read.enabled": "true",  # of columns that say one
}
READ = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "__globPaths__": "false",  # a path is a name, whatever characters it has
}
_HALF = (1 << 30) - 1


def verify_session(spark: SparkSession) -> SparkSession:
    """A session beside ``spark``, on the same cluster, in the one state that the texts depend on."""
    session = spark.newSession()
    for name, value in _SESSION.items():
        session.conf.set(name, value)
    return session


def lake_types(delta: DeltaTable) -> dict[str, Any]:
    """Column name → Delta's JSON for its type."""
    return {field["name"]: field["type"] for field in json.loads(delta.schema().to_json())["fields"]}


class LakeTable:
    """One version of a Delta table. Raises VerifyError when its files alone do not say what its rows are."""

    def __init__(self, session: SparkSession, delta: DeltaTable, place: Place) -> None:
        _refuse_unreadable(delta)
        self._session, self._place = session, place
        self._files: list[LakeFile] = []
        if not place.is_local:
            self._files = _fetched(delta, place)
            self._columns = pa.schema([pa.field(f.name, f.type) for f in pa.schema(delta.schema().to_arrow())])
            return
        schema = json.loads(delta.schema().to_json())
        files = [unquote(uri) for uri in delta.file_uris()]
        reader = session.read.options(**READ).schema(StructType.fromJson(schema))
        self._rows = reader.parquet(*files) if files else session.createDataFrame([], StructType.fromJson(schema))
        marked = pa.table(delta.deletion_vectors().read_all())
        if marked.num_rows:
            self._rows = _without(session, self._rows, marked, files)

    def digests(
        self, comparison: Comparison, window: Window, groups: Sequence[Sequence[ComparedColumn]]
    ) -> dict[int, tuple[int, ...]]:
        """Range index → row count, then two sums for each group of columns; empty ranges are left out."""
        columns = [column.name for group in groups for column in group]
        return digests_of(self._rows_with([comparison.key[0].name, *columns]), comparison, window, groups)

    def _rows_with(self, columns: Sequence[str]) -> DataFrame:
        """In these columns at least."""
        if self._place.is_local:
            return self._rows
        needed = [self._columns.field(name) for name in dict.fromkeys(columns)]
        return rows_of(self._session, self._place, self._files, pa.schema(needed))


def digests_of(
    table: DataFrame, comparison: Comparison, window: Window, groups: Sequence[Sequence[ComparedColumn]]
) -> dict[int, tuple[int, ...]]:
    """``LakeTable.digests`` of these rows."""
    columns = list({column.name: column for group in groups for column in group}.values())
    place = {column.name: f"c{i}" for i, column in enumerate(columns)}
    texts = [lake_text(column).alias(place[column.name]) for column in columns]
    hashes = [F.md5(_row_text([place[c.name] for c in group])).alias(f"h{i}") for i, group in enumerate(groups)]
    key = _key(comparison)
    inside = reduce(or_, (_inside(key, *piece) for piece in window.pieces))
    rows = table.where(inside).select(key.alias("k"), *texts)
    ranges = rows.select(_bucket(F.col("k"), window.bounds).alias("r"), *hashes).groupBy("r")
    halves = [half for i in range(len(groups)) for start in (1, 16) for half in _sum_halves(f"h{i}", start)]
    return {
        row[0]: (row[1], *(low + (high << 30) for low, high in zip(row[2::2], row[3::2], strict=True)))
        for row in ranges.agg(F.count("*"), *halves).collect()
    }


def _fetched(delta: DeltaTable, place: Place) -> list[LakeFile]:
    with asking(place):
        marked = pa.table(delta.deletion_vectors().read_all())
    names = [PurePosixPath(unquote(path)).name for path in marked["filepath"].to_pylist()]
    kept = (np.asarray(mask.values.to_numpy(zero_copy_only=False), np.bool_) for mask in marked["selection_vector"])
    dead = {name: np.packbits(~of) for name, of in zip(names, kept, strict=True)}
    paths = [unquote(path) for path in pa.table(delta.get_add_actions(flatten=False))["path"].to_pylist()]
    if dead and len({PurePosixPath(path).name for path in paths}) < len(paths):
        raise VerifyError("Two files of a Delta table with deletion vectors have one name, which verify cannot read.")
    return [LakeFile(path, dead.get(PurePosixPath(path).name)) for path in paths]


def _refuse_unreadable(delta: DeltaTable) -> None:
    """Rows that a file has but the table does not, or values that the table has but no file, cannot be seen here."""
    metadata = delta.metadata()
    features = {
        "partition columns": bool(metadata.partition_columns),
        "column mapping": metadata.configuration.get("delta.columnMapping.mode", "none") != "none",
    }
    for feature, present in features.items():
        if present:
            raise VerifyError(
                f"The Delta table {delta.table_uri} uses {feature}, which verify cannot read.",
                hint="wal2lake itself never writes them: rewrite the table without, or snapshot it anew.",
            )


def _without(session: SparkSession, rows: DataFrame, marked: pa.Table, files: Sequence[str]) -> DataFrame:
    """The rows but for those that ``marked`` (columns filepath, selection_vector: true is kept) leaves out of files.

    A row is known by its file's name and its place there; a place takes less than 40 bits. Sixty-four places in a row
    are one number, so that what is broadcast is small beside the table, and the table itself is not shuffled.
    """
    names = [PurePosixPath(unquote(path)).name for path in marked["filepath"].to_pylist()]
    if len({PurePosixPath(path).name for path in files}) < len(files):
        raise VerifyError("Two files of a Delta table with deletion vectors have one name, which verify cannot read.")
    dead = [
        (number << 40) + np.flatnonzero(~np.asarray(kept.values.to_numpy(zero_copy_only=False), np.bool_))
        for number, kept in enumerate(marked["selection_vector"])
    ]
    group, places = "group of rows", "places"
    while {group, places} & set(rows.columns):
        group, places = f"{group}_", f"{places}_"
    numbers = F.create_map(*(F.lit(part) for pair in zip(names, range(len(names)), strict=True) for part in pair))
    file = rows.metadataColumn("_metadata")
    number = F.try_element_at(numbers, file["file_name"]).cast("bigint")
    gone = F.broadcast(session.createDataFrame(_grouped(np.concatenate(dead), group, places)))
    place = F.shiftleft(number, 40) + file["row_index"]
    is_gone = F.getbit(F.col(places), F.pmod(file["row_index"], F.lit(64)).cast("int")) == 1
    joined = rows.withColumn(group, F.shiftright(place, 6)).join(gone, group, "left")
    return joined.where(~F.coalesce(is_gone, F.lit(False))).drop(group, places)


def _grouped(dead: npt.NDArray[np.int64], group: str, places: str) -> pa.Table:
    """The numbers, which rise, by what they are without their last six bits, which are bits of ``places``."""
    groups, first = np.unique(dead >> 6, return_index=True)
    bits = np.left_shift(np.uint64(1), (dead & 63).astype(np.uint64))
    return pa.table({group: groups, places: np.bitwise_or.reduceat(bits, first).view(np.int64)})


def _inside(key: Column, lower: Key | None, upper: Key | None) -> Column:
    """NULL belongs to an open lower end."""
    below = F.lit(True) if upper is None else key < F.lit(upper)
    return F.coalesce(below, F.lit(True)) if lower is None else below & (key >= F.lit(lower))


def _bucket(key: Column, bounds: Sequence[Key]) -> Column:
    """How many bounds are at or below ``key``: a binary search by falling powers of two, in one expression."""
    if not bounds:
        return F.lit(0)
    array = F.array(*map(F.lit, bounds))
    steps = F.array(*(F.lit(1 << i) for i in reversed(range(len(bounds).bit_length()))))

    def step(below: Column, power: Column) -> Column:
        return F.when(F.get(array, below + power - 1) <= key, below + power).otherwise(below)

    return F.aggregate(steps, F.lit(0), step)


def _row_text(texts: Sequence[str]) -> Column:
    """concat_ws leaves NULLs out, which is just what the row text wants of a NULL's length and value."""
    return F.concat_ws("", *(part for text in texts for part in (F.length(text), F.lit(":"), F.col(text))))


def _sum_halves(digest: str, start: int) -> tuple[Column, Column]:
    """A 60-bit number summed as two halves of 30 bits, which stay below 2^63 for 2^33 rows."""
    number = F.conv(F.substring(digest, start, 15), 16, 10).cast("bigint")
    return F.sum(number.bitwiseAND(_HALF)), F.sum(F.shiftright(number, 30))


def _key(comparison: Comparison) -> Column:
    column = comparison.key[0]
    if comparison.integer:
        return F.col(quoted(column)).cast("bigint")
    return F.substring(lake_text(column), 1, RANGE_CHARACTERS)
