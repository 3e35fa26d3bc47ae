"""Where Spark's versions differ: what 4.2 added to Python data sources, and the conversion of schemas.

4.0 and 4.1 call ``latestOffset()`` without arguments and never ask for a read limit, so the stand-ins for what they
lack are only ever named, not used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas import types as conversion
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxBytes,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )
    except ImportError:

        class ReadLimit: ...

        class SupportsTriggerAvailableNow: ...

        @dataclass
        class ReadAllAvailable(ReadLimit): ...

        @dataclass
        class ReadMaxRows(ReadLimit):
            max_rows: int

        @dataclass
        class ReadMaxBytes(ReadLimit):
            max_bytes: int


def arrow_schema(schema: StructType) -> pa.Schema:
    """What Spark expects RecordBatches to be, to the letter; 4.1 made the time zone an argument."""
    convert: Any = conversion.to_arrow_schema
    try:
        return convert(schema, timezone="UTC")
    except TypeError:
        return convert(schema)


def spark_schema(schema: pa.Schema) -> StructType:
    """Timestamps without a zone become TIMESTAMP_NTZ."""
    return conversion.from_arrow_schema(schema, prefer_timestamp_ntz=True)


__all__ = [
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "spark_schema",
]
