"""The rows of a table in an object store, as a DataFrame: Spark has no file system for it without jars of its own.

So its tasks fetch the files, a file each, and read them by pyarrow; everything else, the texts and their digests, is
Spark's as it is for files on a disk. What a file lacks is NULL, and rows that are marked as gone are left out here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from wal2lake.lakes import Place
from wal2lake.verify.lake_place import read_file

_BATCH_ROWS: Final = 1 << 16


@dataclass(frozen=True)
class LakeFile:
    """``path`` below the table's folder; ``dead``: a bit for each row that is marked as gone, as far as one is."""

    path: str
    dead: npt.NDArray[np.uint8] | None = None

    def rows(self, place: Place, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """In ``schema``'s columns."""
        file = pq.ParquetFile(pa.BufferReader(read_file(place, self.path)))
        columns = [name for name in schema.names if name in file.schema_arrow.names]
        dead = np.zeros(0, np.uint8) if self.dead is None else self.dead
        kept = np.unpackbits(dead, count=file.metadata.num_rows) == 0
        start = 0
        for batch in file.iter_batches(_BATCH_ROWS, columns=columns):
            stop = start + batch.num_rows
            yield _in(schema, batch if self.dead is None else batch.filter(pa.array(kept[start:stop])))
            start = stop


def _in(schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    own = set(batch.schema.names)
    columns = [
        batch.column(field.name).cast(field.type) if field.name in own else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def rows_of(session: SparkSession, place: Place, files: Sequence[LakeFile], columns: pa.Schema) -> DataFrame:
    """All rows of the files, in these columns."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - it wants pandas at once

    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from files[number].rows(place, columns)

    schema: StructType = from_arrow_schema(columns)
    return session.range(0, len(files), 1, max(1, len(files))).mapInArrow(read, schema)
