"""THE type table: PostgreSQL type OID ↔ codec ↔ Arrow; a type stands here, or lands as PostgreSQL's own text.

The table has editions. By which of them a table was read is noted with it (``types.TypeRules``), so that a column keeps
its type, whatever rows are added here, until somebody has the table read again.

Source: src/include/catalog/pg_type.dat; PostgreSQL documentation, "Data Types".
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

NUMERIC_OID: Final = 1700
DECIMAL_DIGITS: Final = 38
FIRST_EDITION: Final = 1  # scalars; all else is output text
EDITION: Final = 4  # the newest; 2: arrays are lists; 3: intervals are structs; 4: ranges, composites, times, …
LISTS_SINCE: Final = 2  # the edition of arrays
USER_TYPES_SINCE: Final = 4  # … and of types that the catalog tells of

INTERVAL: Final = pa.struct([("months", pa.int32()), ("days", pa.int32()), ("microseconds", pa.int64())])
TIMETZ: Final = pa.struct([("microseconds", pa.int64()), ("utc_offset", pa.int32())])
HSTORE: Final = pa.map_(pa.string(), pa.string())

# OID, name in pg_catalog, codec (the pair of decoders in text.py and binary.py), Arrow type.
_TABLE: Final[tuple[tuple[int, str, str, pa.DataType], ...]] = (
    (16, "bool", "bool", pa.bool_()),
    (17, "bytea", "bytea", pa.binary()),
    (19, "name", "text", pa.string()),
    (20, "int8", "int8", pa.int64()),
    (21, "int2", "int2", pa.int16()),
    (23, "int4", "int4", pa.int32()),
    (25, "text", "text", pa.string()),
    (26, "oid", "oid", pa.int64()),
    (28, "xid", "oid", pa.int64()),
    (29, "cid", "oid", pa.int64()),
    (114, "json", "text", pa.string()),
    (142, "xml", "text", pa.string()),
    (700, "float4", "float4", pa.float32()),
    (701, "float8", "float8", pa.float64()),
    (1042, "bpchar", "text", pa.string()),
    (1043, "varchar", "text", pa.string()),
    (1082, "date", "date", pa.date32()),
    (1083, "time", "time", pa.int64()),
    (1114, "timestamp", "timestamp", pa.timestamp("us")),
    (1184, "timestamptz", "timestamptz", pa.timestamp("us", tz="UTC")),
    (1186, "interval", "interval", INTERVAL),
    (1266, "timetz", "timetz", TIMETZ),
    (2950, "uuid", "uuid", pa.string()),
    (3802, "jsonb", "jsonb", pa.string()),
    (5069, "xid8", "xid8", pa.decimal128(20, 0)),
)
MONEY_OID: Final = 790  # its scale is the locale's
# Since edition 2: OID and name of the array, OID of its elements; of types without a row, they are output text.
ARRAY_TYPES: Final[tuple[tuple[int, str, int], ...]] = (
    (143, "_xml", 142),
    (199, "_json", 114),
    (271, "_xid8", 5069),
    (629, "_line", 628),
    (651, "_cidr", 650),
    (719, "_circle", 718),
    (775, "_macaddr8", 774),
    (791, "_money", 790),
    (1000, "_bool", 16),
    (1001, "_bytea", 17),
    (1002, "_char", 18),
    (1003, "_name", 19),
    (1005, "_int2", 21),
    (1006, "_int2vector", 22),
    (1007, "_int4", 23),
    (1008, "_regproc", 24),
    (1009, "_text", 25),
    (1010, "_tid", 27),
    (1011, "_xid", 28),
    (1012, "_cid", 29),
    (1013, "_oidvector", 30),
    (1014, "_bpchar", 1042),
    (1015, "_varchar", 1043),
    (1016, "_int8", 20),
    (1017, "_point", 600),
    (1018, "_lseg", 601),
    (1019, "_path", 602),
    (1021, "_float4", 700),
    (1022, "_float8", 701),
    (1027, "_polygon", 604),
    (1028, "_oid", 26),
    (1040, "_macaddr", 829),
    (1041, "_inet", 869),
    (1115, "_timestamp", 1114),
    (1182, "_date", 1082),
    (1183, "_time", 1083),
    (1185, "_timestamptz", 1184),
    (1187, "_interval", 1186),
    (1231, "_numeric", NUMERIC_OID),
    (1270, "_timetz", 1266),
    (1561, "_bit", 1560),
    (1563, "_varbit", 1562),
    (2951, "_uuid", 2950),
    (3221, "_pg_lsn", 3220),
    (3643, "_tsvector", 3614),
    (3645, "_tsquery", 3615),
    (3807, "_jsonb", 3802),
    (3905, "_int4range", 3904),
    (3907, "_numrange", 3906),
    (3909, "_tsrange", 3908),
    (3911, "_tstzrange", 3910),
    (3913, "_daterange", 3912),
    (3927, "_int8range", 3926),
    (4073, "_jsonpath", 4072),
    (4192, "_regcollation", 4191),
    (2207, "_regprocedure", 2202),
    (2208, "_regoper", 2203),
    (2209, "_regoperator", 2204),
    (2210, "_regclass", 2205),
    (2211, "_regtype", 2206),
    (3735, "_regconfig", 3734),
    (3770, "_regdictionary", 3769),
    (4090, "_regnamespace", 4089),
    (4097, "_regrole", 4096),
    (6150, "_int4multirange", 4451),
    (6151, "_nummultirange", 4532),
    (6152, "_tsmultirange", 4533),
    (6153, "_tstzmultirange", 4534),
    (6155, "_datemultirange", 4535),
    (6157, "_int8multirange", 4536),
)  # _box is not among them: a semicolon stands between its elements
# OID and name of a range, OID of its multirange and of its bounds.
RANGE_TYPES: Final[tuple[tuple[int, str, int, int], ...]] = (
    (3904, "int4range", 4451, 23),
    (3906, "numrange", 4532, NUMERIC_OID),
    (3908, "tsrange", 4533, 1114),
    (3910, "tstzrange", 4534, 1184),
    (3912, "daterange", 4535, 1082),
    (3926, "int8range", 4536, 20),
)
BOUND_OF: Final = {oid: bound for oid, _, _, bound in RANGE_TYPES}
RANGE_OF: Final = {multirange: oid for oid, _, multirange, _ in RANGE_TYPES}
BY_OID: Final = {oid: (codec, arrow) for oid, _, codec, arrow in _TABLE}
# In which edition a row came, if not in the first (of arrays: not in the second).
_REG: Final = (*range(2202, 2207), 3734, 3769, 4089, 4096, 4191)  # regprocedure … regtype, regconfig, …
_ARRAYS_SINCE_4: Final = (oid for oid, _, element in ARRAY_TYPES if element in RANGE_OF or element in _REG)
SINCE: Final = {1186: 3} | dict.fromkeys((28, 29, 1083, 1266, 5069, *_ARRAYS_SINCE_4), 4)
ELEMENT_OF: Final = {oid: element for oid, _, element in ARRAY_TYPES}
OID_BY_NAME: Final = {
    "numeric": NUMERIC_OID,
    **{name: oid for oid, name, _, _ in _TABLE},
    **{name: oid for oid, name, _ in ARRAY_TYPES},
    **{name: oid for oid, name, _, _ in RANGE_TYPES},
    **{name.replace("range", "multirange"): oid for _, name, oid, _ in RANGE_TYPES},
    "money": MONEY_OID,
}
EXTENSIONS: Final[dict[str, tuple[str, pa.DataType]]] = {
    "enum": ("text", pa.string()),
    "citext": ("text", pa.string()),
    "hstore": ("hstore", HSTORE),
    "vector": ("vector", pa.list_(pa.float32())),
    "halfvec": ("halfvec", pa.list_(pa.float32())),
    "geometry": ("geometry", pa.binary()),
}
