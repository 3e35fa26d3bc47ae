"""Log rows for the tests: from a real server's pgoutput, or made by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import psycopg
import pyarrow as pa

from wal2lake.columnar.types import FIRST_RULES, TableSchema, TypeRules
from wal2lake.lsn import LSN
from wal2lake.pgoutput.codec import read_message
from wal2lake.pgoutput.messages import Relation, Type

LogRow = tuple[int, int, bytes]  # LSN, xid, message
LOG_SCHEMA = pa.schema(
    {"lsn": pa.uint64(), "tag": pa.uint8(), "relation_id": pa.uint32(), "xid": pa.uint32(), "payload": pa.binary()}
)
SESSION = "-c DateStyle=ISO -c TimeZone=UTC -c bytea_output=hex -c extra_float_digits=3 -c IntervalStyle=postgres"


def peek(dsn: str, slot: str, publication: str, *, binary: bool = False) -> list[LogRow]:
    """What the slot holds, without consuming it; 13 knows no binary form."""
    options = ["proto_version", "1", "publication_names", publication, *(["binary", "true"] if binary else [])]
    query = "SELECT lsn::text, xid::text, data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL, VARIADIC %s)"
    with psycopg.connect(dsn, options=SESSION) as connection:
        rows = connection.execute(query, [slot, options], binary=True).fetchall()
    return [(LSN.parse(lsn), int(xid), data) for lsn, xid, data in rows]


def batch(rows: Sequence[LogRow]) -> pa.RecordBatch:
    """As the change log has them: the relation id stands beside the messages that begin with one."""
    ids = [int.from_bytes(m[1:5], "big") if m[:1] in (b"I", b"U", b"D", b"R") else 0 for _, _, m in rows]
    lsns, xids, payloads = zip(*rows, strict=True) if rows else ((), (), ())
    columns = [lsns, [payload[0] for payload in payloads], ids, xids, payloads]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, LOG_SCHEMA, strict=True)], schema=LOG_SCHEMA
    )


def schemas(rows: Iterable[LogRow], rules: TypeRules = FIRST_RULES) -> dict[str, TableSchema]:
    """The last schema of each table, by its name without the namespace."""
    types, found = {}, {}
    for _, _, payload in rows:
        if payload[:1] in (b"R", b"Y"):
            message = read_message(payload)
            if isinstance(message, Type):
                types[message.type_oid] = message
            elif isinstance(message, Relation):
                found[message.name] = TableSchema.from_relation(message, types, rules=rules)
    return found
