"""A file's statistics as Delta's log has them: JSON, of which readers prune, so a wrong bound would lose rows.

Decimals have no bounds, for JSON numbers are read as floats. Times are cut to milliseconds, outwards, and those of
years that the text has no four digits for have none.

Source: Delta transaction log protocol, "Per-file Statistics".
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa

from wal2lake.sinks.base import Bound, FileAction


def statistics_json(action: FileAction, schema: pa.Schema) -> str:
    """What an Add action says in ``stats`` of a file that has ``schema``'s columns."""
    least: dict[str, Bound] = {}
    greatest: dict[str, Bound] = {}
    for name in action.low:
        kind = schema.field(name).type
        low, high = _bound(action.low[name], kind, 0), _bound(action.high[name], kind, 999)
        if low is not None and high is not None:
            least[name], greatest[name] = low, high
    found = {"numRecords": action.rows, "minValues": least, "maxValues": greatest, "nullCount": action.nulls}
    return json.dumps(found)


def _bound(value: Bound, kind: pa.DataType, up_us: int) -> Bound | None:
    """None where Delta has no safe form of it; timestamps are rounded up if ``up_us`` is 999, down if 0."""
    if pa.types.is_decimal(kind):
        return None
    if pa.types.is_date32(kind):
        return _time(int(value), "D", "")
    if pa.types.is_timestamp(kind):
        return _time((int(value) + up_us) // 1000, "ms", "Z" if kind.tz else "")
    return value


def _time(value: int, unit: str, zone: str) -> str | None:
    text = str(np.array(value).astype(f"datetime64[{unit}]"))
    return text + zone if len(text.partition("-")[0]) == 4 else None  # years 0 … 9999 only
