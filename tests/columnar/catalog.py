"""What a server's catalog says of the arrays of the type table; `test_server_values` holds it to the server."""

from __future__ import annotations

from typing import Final

# oid, typname: typelem
ARRAYS_OF_SERVER: Final[dict[tuple[int, str], int]] = {
    (143, "_xml"): 142, (199, "_json"): 114, (271, "_xid8"): 5069, (629, "_line"): 628, (651, "_cidr"): 650,
    (719, "_circle"): 718, (775, "_macaddr8"): 774, (791, "_money"): 790, (1000, "_bool"): 16, (1001, "_bytea"): 17,
    (1002, "_char"): 18, (1003, "_name"): 19, (1005, "_int2"): 21, (1006, "_int2vector"): 22, (1007, "_int4"): 23,
    (1008, "_regproc"): 24, (1009, "_text"): 25, (1010, "_tid"): 27, (1011, "_xid"): 28, (1012, "_cid"): 29,
    (1013, "_oidvector"): 30, (1014, "_bpchar"): 1042, (1015, "_varchar"): 1043, (1016, "_int8"): 20,
    (1017, "_point"): 600, (1018, "_lseg"): 601, (1019, "_path"): 602, (1021, "_float4"): 700, (1022, "_float8"): 701,
    (1027, "_polygon"): 604, (1028, "_oid"): 26, (1040, "_macaddr"): 829, (1041, "_inet"): 869,
    (1115, "_timestamp"): 1114, (1182, "_date"): 1082, (1183, "_time"): 1083, (1185, "_timestamptz"): 1184,
    (1187, "_interval"): 1186, (1231, "_numeric"): 1700, (1270, "_timetz"): 1266, (1561, "_bit"): 1560,
    (1563, "_varbit"): 1562, (2951, "_uuid"): 2950, (3221, "_pg_lsn"): 3220, (3643, "_tsvector"): 3614,
    (3645, "_tsquery"): 3615, (3807, "_jsonb"): 3802, (3905, "_int4range"): 3904, (3907, "_numrange"): 3906,
    (3909, "_tsrange"): 3908, (3911, "_tstzrange"): 3910, (3913, "_daterange"): 3912, (3927, "_int8range"): 3926,
    (4073, "_jsonpath"): 4072, (4192, "_regcollation"): 4191, (2207, "_regprocedure"): 2202, (2208, "_regoper"): 2203,
    (2209, "_regoperator"): 2204, (2210, "_regclass"): 2205, (2211, "_regtype"): 2206, (3735, "_regconfig"): 3734,
    (3770, "_regdictionary"): 3769, (4090, "_regnamespace"): 4089, (4097, "_regrole"): 4096,
    (6150, "_int4multirange"): 4451, (6151, "_nummultirange"): 4532, (6152, "_tsmultirange"): 4533,
    (6153, "_tstzmultirange"): 4534, (6155, "_datemultirange"): 4535, (6157, "_int8multirange"): 4536,
}  # fmt: skip
