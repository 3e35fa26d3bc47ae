"""Every type of the type table with the values at its edges, as SQL literals; what they shall land as is its business.

The embedded server knows no XML and has no contrib: the types of both are apart. ``BINARY_TOO``: those whose binary
form is decoded; the stream sends text for all, and binary only where it has to.
"""

from __future__ import annotations

from typing import Final

TIMES: Final = [
    "0001-01-01 00:00:00", "0099-12-31 23:59:59.999999", "1582-10-10 12:00:00", "1969-12-31 23:59:59.9",
    "1970-01-01 00:00:00", "2000-01-01 00:00:00.000001", "2024-02-29 10:20:30.4567", "9999-12-31 23:59:59.999999",
]  # fmt: skip
_FLOATS = ["0", "-0", "1", "-1.5", "0.1", "1e-5", "1e15", "1e16", "123456789.125", "NaN", "Infinity", "-Infinity"]
_TEXTS = ["", " ", "a", "ä€😀", "NULL", "\\N", "quote\"'", "line\nbreak\ttab\r", "x" * 3000, "\x01\x7f", "é" * 100]
INTERVALS: Final = [
    "0",
    "1 day",
    "-1 day",
    "1 mon",
    "-1 mon +02:03:04.5",
    "1 year 2 mons -3 days -04:05:06.789",
    "-1 year +3 days",
    "-1 mon +1 day -00:00:00.000001",
    "13 mons",
    "-13 mons",
    "178000000 years",
    "-178000000 years",
    "00:00:01",
    "2562047788:00:54.775807",
    "-2562047788:00:54.775807",
    "100:00:00",
    "2147483647 days",
    "1 day +00:00:00.1",
]
_THOUSAND = "1" * 500 + "." + "2" * 500

# type: values, in both forms of the stream
BINARY_TOO: Final[dict[str, list[str]]] = {
    "boolean": ["t", "f"],
    "smallint": ["0", "1", "-1", "32767", "-32768"],
    "integer": ["0", "7", "-7", "2147483647", "-2147483648"],
    "bigint": ["0", "10", "-10", "9223372036854775807", "-9223372036854775808"],
    "oid": ["0", "1", "2147483648", "4294967295"],
    "real": [*_FLOATS, "3.4028235e38", "1e-45", "1.17549435e-38", "16777217"],
    "double precision": [*_FLOATS, "1.7976931348623157e308", "5e-324", "0.30000000000000004", "9007199254740993"],
    "numeric(12,2)": ["0", "0.01", "-0.01", "99.99", "9999999999.99", "-9999999999.99", "10000", "1e8"],
    "numeric(18,0)": ["0", "1", "-1", "999999999999999999", "-999999999999999999", "10000", "99999999"],
    "numeric(18,18)": ["0", "0.000000000000000001", "-0.999999999999999999", "0.1"],
    "numeric(30,8)": ["0", "0.00000001", "-1234567890123456789012.12345678"],
    "numeric(38,0)": ["0", "1", "-1", "9" * 38, "-" + "9" * 38, "1" + "0" * 37, "18446744073709551616"],
    "numeric(38,38)": ["0", "0." + "9" * 38, "-0." + "0" * 37 + "1", "0.5"],
    "text": _TEXTS,
    "varchar(3000)": _TEXTS,
    "char(5)": ["", "a", "abcde", "é"],
    "name": ["", "a", "b" * 63],
    "json": ['{"a": 1}', "[]", '  {"b" : [1, 2]} ', "null", '"ü"'],
    "jsonb": ['{"a": 1, "b": [1.50, null, "x"]}', "[]", "null", "{}", '"ü"', "123456789012345678901234567890.5"],
    "uuid": ["0" * 8 + "-0000" * 3 + "-" + "0" * 12, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    "bytea": ["", "\\x00", "\\xdeadbeef", "\\x" + "ff" * 5000, "\\x5c78"],
    "date": [time[:10] for time in TIMES],
    "timestamp": TIMES,
    "timestamptz": [time + "+00" for time in TIMES],
    "interval": INTERVALS,
    "interval[]": ["{1 day,-1 mon +02:03:04.5,NULL}", "{}", '{"1 year 2 mons -3 days +04:05:06.000001"}'],
    "whole": ["1", "-1"],
    "label": ["", "ok"],
    "boolean[]": ["{t,f,NULL}", "{}", "{t}"],
    "smallint[]": ["{}", "{1,2,3}", "{-32768,32767,NULL}"],
    "integer[]": ["{}", "{1,NULL,-3}", "{7}", "{NULL}", "{2147483647,-2147483648}"],
    "bigint[]": ["{}", "{9223372036854775807,NULL,-9223372036854775808}"],
    "oid[]": ["{0,4294967295}"],
    "real[]": ["{NaN,Infinity,-Infinity,-0,1.5,NULL}", "{3.4028235e38,1e-45}", "{}"],
    "double precision[]": ["{NaN,-Infinity,-0,0.1,NULL}", "{5e-324,1.7976931348623157e308}", "{}"],
    "numeric(12,2)[]": ["{0,0.01,-9999999999.99,NULL}", "{}", "{5}"],
    "numeric(38,10)[]": ["{18446744073709551616.5,NULL}"],
    "text[]": ['{"",NULL,"NULL",null,"a b","a,b","{}","}",é😀,"tab\there"}', "{}", "{NULL}", '{""}',
               '{"q\\"q","back\\\\slash","\\\\","\\""}'],
    "varchar(300)[]": ["{a,b}", "{" + ",".join(["x" * 300] * 9) + "}"],
    "bytea[]": ['{"\\\\x00ff",NULL,"\\\\x"}', "{}"],
    "uuid[]": ["{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,NULL}", "{}"],
    "date[]": ["{2024-02-29,NULL,0001-01-01,9999-12-31}", "{}"],
    "timestamp[]": ['{"2024-02-29 01:02:03.456",NULL}', '{"0001-01-01 00:00:00","9999-12-31 23:59:59.999999"}'],
    "timestamptz[]": ['{"2024-02-29 01:02:03.456+00",NULL}', "{}"],
    "jsonb[]": ['{"{\\"a\\": [1, \\"x,y\\"]}",NULL,"null"}', "{}"],
    "json[]": ['{"{\\"a\\":  1}",NULL}'],
    "integer[][]": ["{}", "{{1,2},{3,NULL}}", "{{7}}"],
    "real[][]": ["{{1.5,NaN},{NULL,-0}}", "{}"],
    "double precision[][]": ["{{1.5,NaN},{NULL,-0}}", "{}", "{{0.1}}"],
    "text[][][]": ['{{{"a}",b},{c,NULL}}}', "{}"],
    "numbers": ["{1,2,NULL}", "{}"],
}  # fmt: skip
# The same of what the catalog tells of, and of times, amounts, transaction ids and ranges.
MADE: Final[dict[str, list[str]]] = {
    "time": ["00:00:00", "23:59:59.999999", "24:00:00", "12:34:56.7", "00:00:00.000001", "01:02:03"],
    "time(3)": ["12:34:56.789", "24:00:00"],
    "time[]": ["{00:00:00,24:00:00,NULL,12:34:56.789}", "{}"],
    "timetz": ["00:00:00+00", "23:59:59.999999-15:59:59", "24:00:00+15:59", "01:02:03.4+05:30", "12:00:00-08"],
    "timetz[]": ["{00:00:00+00,NULL,23:59:59.999999-15:59:59}"],
    "money": ["12.34", "-0.01", "0", "1234567.89", "-92233720368547758.08", "92233720368547758.07"],
    "money[]": ["{12.34,NULL,-1234.5}", "{}"],
    "xid": ["0", "4294967295"],
    "cid": ["7"],
    "xid8": ["0", "18446744073709551615", "9223372036854775808"],
    "xid8[]": ["{18446744073709551615,NULL}"],
    "int4range": ["empty", "[1,10)", "(,)", "(,5]", "[-2147483648,)", "[7,7]"],
    "int8range": ["empty", "[-9223372036854775808,9223372036854775806]", "(,)"],
    "daterange": ["empty", "[2024-02-29,2024-03-01)", "[0001-01-01,)", "(,)"],
    "tsrange": ['["2024-01-01 00:00:00.5","2024-02-01 00:00:00"]', "empty", '(,"1582-10-10 12:00:00")'],
    "tstzrange": ['["2024-01-01 00:00:00+00","9999-12-31 23:59:59.999999+00")', "empty", "(,)"],
    "int4range[]": ['{"[1,10)",empty,NULL,"(,)"}', "{}"],
    "int4multirange": ["{}", "{[1,3),[5,7)}", "{(,)}", "{(,1),[9,)}"],
    "tstzmultirange": ['{["2024-01-01 00:00:00+00","2024-02-01 00:00:00+00"),["2025-01-01 00:00:00+00",)}', "{}"],
    "int4multirange[]": ['{"{[1,3),[5,7)}",NULL,"{}"}', "{}"],
    "mood": ["happy", "très sad", 'q"\\,{}'],
    "mood[]": ['{happy,"très sad",NULL}', "{}"],
    "mood[][]": ['{{happy,NULL},{"très sad",happy}}', "{}"],
    "temper": ["happy"],
    "tempers": ["{happy,NULL}", "{}"],
    "temper[]": ["{happy,NULL}"],
    "pair": ['(1,"a b")', "(,)", '(2,"")', '(3,"q""q\\\\z,()[]{}")', '(4,"line\nbreak\ttab")', "(5,)", "(6,é😀)"],
    "pair[]": ['{"(1,\\"a b\\")",NULL,"(,)"}', "{}"],
    "pair[][]": ['{{"(1,a)",NULL},{"(,)","(2,b)"}}', "{}"],
    "couple": ['(7,"x y")', "(,)"],
    '"Od d"."na""me, {}"': ['(1,t,"(2,z)")', "(,,)", '(,f,"(,)")'],
    "single": ["(1)", "()"],
    "everything": [
        r'(t,1.5,-0,12.34,"x  ",\\x00ff,2024-02-29,"2024-01-01 00:00:00.5+00",12:34:56,"1 mon -1 day","{1,NULL}",'
        r'"{{a,""b c""},{NULL,d}}","[1,10)","{[1,3),[5,7)}","(1,""a b"")","{""(2,c)"",NULL}",happy,5,10.0.0.1/8,'
        r"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11)",
        "(" + "," * 19 + ")",
        "(f,NaN,Infinity" + "," * 17 + ")",
    ],
    "everything[]": ["{}", '{"(f,-Infinity,1e-45' + "," * 17 + ')",NULL}'],
    "floats": ["[0.1,1e300]", "empty", "(,-0)", "(-Infinity,NaN]"],
    "floats[]": ['{"[0.1,1e300]",NULL,empty}'],
    "textrange": ['["a b","q""q")', "empty", '["",a]', "(,)"],
    "pairs_range": ['["(1,""a b"")","(2,b)"]', "empty", '(,"(9,)")'],
    "span": ["[3,5)", "empty"],
}  # fmt: skip
# Their text is what they land as, or what it is read from.
TEXT_ALONE: Final[dict[str, list[str]]] = {
    "numeric": ["0", "1.50", "NaN", "1e100", "-0.000000000000000000000000000000000000000001", _THOUSAND],
    "numeric(50,3)": ["1" * 47 + ".125", "NaN"],
    "bit(5)": ["10101", "00000"],
    "bit varying": ["", "101"],
    "inet": ["10.0.0.1/8", "::1", "0.0.0.0/0"],
    "cidr": ["10.0.0.0/8"],
    "macaddr": ["08:00:2b:01:02:03"],
    "macaddr8": ["08:00:2b:01:02:03:04:05"],
    "numrange": ["empty", "[1.5,10)", "(,5]"],
    "point": ["(1,2)", "(-0,1e300)"],
    "tsvector": ["a fat cat", ""],
    "pg_lsn": ["0/0", "FFFFFFFF/FFFFFFFF"],
    "cents": ["12.34", "0"],
    "nummultirange": ["{}", "{[1.5,2.50),[3,)}"],
    "numrange[]": ['{"[1.5,2.50)",NULL}'],
    "mixed": ['("(1,2)",1.50,$5.00)', "(,,)", "(,NaN,)"],
    "mixed[]": ['{"(\\"(1,2)\\",1e100,)",NULL}'],
    "twins": ["(1,2)"],
    "tsquery": ["'fat' & 'rat'"],
    "circle": ["<(1,2),3>"],
    "box[]": ["{(1,1),(0,0)}"],
    "regclass": ["pg_class"],
    "regtype[]": ["{int4,text}"],
    "tid": ["(0,1)"],
    "jsonpath": ['$."a"'],
    '"char"': ["c", ""],
    "numeric[]": ["{1.50,NaN,1e100,NULL}", "{}"],
    "inet[]": ["{10.0.0.1/8,::1}"],
}
# Arrays of several shapes land as text, once the table was read with both.
SHAPES: Final[dict[str, list[str]]] = {"integer[]": ["{1}", "{{1,2},{3,4}}", "[0:1]={1,2}", "{}"]}
# What has no place is NULL where the policy says so.
PLACELESS: Final[dict[str, list[str]]] = {
    "date": ["infinity", "0001-12-31 BC", "10000-01-01", "2024-01-01"],
    "timestamp": ["-infinity", "0044-03-15 12:00:00 BC", "294276-12-31 23:59:59.999999", "2024-01-01 00:00:00"],
    "interval": ["infinity", "-infinity", "1 day"],
    "interval[]": ["{infinity,1 day,NULL}"],
    "timestamptz": ["infinity", "0044-03-15 12:00:00+00 BC", "294276-12-31 23:59:59.999999+00"],
    "numeric(12,2)": ["NaN", "1.00"],
    "numeric(38,10)": ["NaN", "1"],
    "date[]": ["{infinity,2024-01-01,NULL}", "{10000-01-01}", "{}"],
    "timestamptz[]": ['{"0044-03-15 12:00:00+00 BC",infinity,"2024-01-01 00:00:00+00"}'],
    "numeric(12,2)[]": ["{NaN,1.00}", "{NULL}"],
    "tstzrange": ['["2024-01-01 00:00:00+00",infinity)', "empty", "[-infinity,infinity]"],
    "daterange": ["[0044-03-15 BC,2024-01-01)", "[2024-01-01,10000-01-01)"],
    "datemultirange": ["{[-infinity,2024-01-01),[2024-02-01,infinity)}"],
    "dated": ["(infinity,NaN,infinity)", "(2024-01-01,1.00,1 day)", "(0001-12-31 BC,,)"],
    "dated[]": ['{"(infinity,NaN,-infinity)",NULL}', "{}"],
    "timestamp[][]": ['{{infinity,"2024-01-01 00:00:00"},{NULL,"2024-01-01 00:00:00.5"}}', "{}"],
}
# Numerics of any precision, by the policy for them: what each has a place for, and where it says so what it has not.
NUMERICS: Final[dict[str, list[str]]] = {
    "numeric": ["0", "1.50", "-0.000000001", "9" * 29 + ".999999999", "-" + "9" * 29, "1.5" + "0" * 400, "10000"],
    "numeric[]": ["{1.50,NULL,-0.1}", "{}"],
    "numrange": ["[1.5,10)", "empty", "(,-0.000000001]"],
    "nummultirange": ["{[1.5,2.50),[3,)}"],
    "mixed": ["(,1.50,$5.00)"],
    "numeric(50,3)": ["1.125", "-99999999999999999999999999999.999"],
}
DOUBLES: Final[dict[str, list[str]]] = {
    "numeric": [
        "0",
        "1.50",
        "NaN",
        "1e100",
        "0.1",
        "-1.7976931348623157e308",
        "5e-324",
        "9007199254740993",
        "1" * 300 + "." + "2" * 700,
    ],
    "numeric[]": ["{1.50,NaN,NULL,0.1}", "{}"],
    "numrange": ["[1.5,1e100)", "empty", "(,0.1]"],
    "mixed": ["(,0.1,)"],
}
NUMERICS_PLACELESS: Final[dict[str, list[str]]] = {
    "numeric": ["NaN", "Infinity", "-Infinity", "1e100", "0.0000000001", _THOUSAND, "9" * 30, "1"],
    "numeric[]": ["{NaN,1.5,1e100,NULL}", "{}"],
}
DOUBLES_PLACELESS: Final[dict[str, list[str]]] = {"numeric": ["1e400", "-1e400", "1", "Infinity"]}
PREPARE: Final = """
CREATE TYPE mood AS ENUM ('happy', 'très sad', 'q"\\,{}'); CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN cents AS numeric(10,2); CREATE DOMAIN whole AS integer; CREATE DOMAIN label AS text;
CREATE DOMAIN numbers AS integer[]; CREATE DOMAIN temper AS mood; CREATE DOMAIN tempers AS mood[];
CREATE DOMAIN couple AS pair; CREATE DOMAIN span AS int4range; CREATE TYPE single AS (a int);
CREATE SCHEMA "Od d"; CREATE TYPE "Od d"."na""me, {}" AS ("we""ird, (na.me) {};=" int, "SELECT" boolean, "ä`b" pair);
CREATE TYPE everything AS (o bool, r real, d double precision, n numeric(10,2), c char(3), b bytea, da date,
    tz timestamptz, t time, i interval, a int[], m text[][], ra int4range, mr int4multirange, p pair, ps pair[],
    mo mood, w whole, ip text, u uuid);
CREATE TYPE floats AS RANGE (subtype = float8); CREATE TYPE textrange AS RANGE (subtype = text, collation = "C");
CREATE TYPE pairs_range AS RANGE (subtype = pair); CREATE TYPE mixed AS (p point, n numeric, m money);
CREATE TYPE twins AS (a int, "A" int); CREATE TYPE dated AS (d date, n numeric(5,2), i interval);
"""
# Contrib's, in a schema that no session looks into, and XML; for the servers of `wal2lake.testing.servers`.
HSTORES: Final = [
    "", "a=>1, b=>NULL", '"null"=>NULL, "NULL"=>"NULL", n=>"null"', '""=>"", " "=>" "',
    r'"=>"=>"=>", ", "=>", ", "{}"=>"{,}", "()"=>"(,)", "[]"=>"[,]", "a=>b, c"=>NULL',
    r'"q\"q"=>"\"", "\\"=>"back\\slash", "\\\""=>"\"\\", "\\\\"=>NULL, "\""=>"\\"', r"""'=>"'\\N\\000'" """,
    '"line\nbreak"=>"tab\there\r", "\x01\x7f"=>"\v\f"', "ä€=>😀, 😀=>é", "k" * 70_000 + "=>" + "v" * 70_000,
    ", ".join(f"k{place}=>{place}" if place % 3 else f"k{place}=>NULL" for place in range(300)),
]  # fmt: skip
EXTENSIONS: Final[dict[str, list[str]]] = {
    "ext.hstore": HSTORES,
    "ext.hstore[]": ["{}", r'{"\"a\"=>\"1\", \"b\"=>NULL",NULL,"","\"q\\\"q\"=>\"\\\\\""}', "{a=>1}"],
    "ext.hstore[][]": ["{{a=>1,b=>NULL},{NULL,c=>3}}", "{}"],
    "tags": HSTORES[:5],
    "tags[]": ["{a=>1,NULL,b=>NULL}", "{}"],
    "taglists": ["{a=>1,NULL}", "{}"],
    "ext.citext": ["", "a", "A", "Ä€😀", "NULL", "\\N", "quote\"'", "line\nbreak\ttab", "X" * 3000],
    "ext.citext[]": ['{a,A,NULL,"NULL","","a,b","q\\"q","\\\\"}', "{}"],
    "ext.citext[][]": ["{{a,B},{NULL,c}}", "{}"],
    "email": ["A@b.c", ""],
    "email[]": ["{A@b.c,NULL}", "{}"],
    "tagged": [r'("""a""=>""1"", ""b""=>NULL",Ab,"{""\\""c\\""=>NULL"",NULL}",B)', "(,,,)", '("","",{},"")'],
    "tagged[]": ["{}", '{NULL,"(a=>NULL,Ab,,)"}'],
    "namerange": ["[a,B)", "empty", "(,Z]", '["",a]'],
    "ext.lo": ["0", "4294967295"],
    "xml": ["<a/>", '<?xml version="1.0"?><ä b="&lt;&#10;">€</ä>', "text alone", "<a/><b/>"],
    "xml[]": ['{"<a b=\\"c\\"/>",NULL}', "{}"],
}
EXTENSIONS_TEXT: Final[dict[str, list[str]]] = {
    "ext.ltree": ["", "Top.Science.Astronomy", "a_1.b"],
    "ext.ltree[]": ['{a.b,NULL,""}', "{}"],
    "ext.lquery": ["*.a|b@*.!c{1,2}"],
    "ext.ltxtquery": ["a & b* | !c@"],
    "ext.cube": ["(1,2),(3,4)", "(0.1)", "(1e300,-1)"],
    "ext.cube[]": ['{"(1,2),(3,4)",NULL}'],
    "ext.seg": ["1.50 .. 2", "~6.5", "< 3"],
    "ext.query_int": ["1&(2|!3)"],
    "ext.ean13": ["978-0-393-04002-9"],
    "ext.isbn": ["0-393-04002-X", "0-393-04003-8"],
    "ext.issn[]": ["{1436-4522,NULL}"],
}
PREPARE_EXTENSIONS: Final = """
CREATE SCHEMA ext; CREATE EXTENSION hstore SCHEMA ext; CREATE EXTENSION citext SCHEMA ext;
CREATE EXTENSION ltree SCHEMA ext; CREATE EXTENSION cube SCHEMA ext; CREATE EXTENSION seg SCHEMA ext;
CREATE EXTENSION intarray SCHEMA ext; CREATE EXTENSION isn SCHEMA ext; CREATE EXTENSION lo SCHEMA ext;
CREATE DOMAIN tags AS ext.hstore; CREATE DOMAIN taglists AS ext.hstore[]; CREATE DOMAIN email AS ext.citext;
CREATE TYPE tagged AS (h ext.hstore, c ext.citext, hs ext.hstore[], e email);
CREATE TYPE namerange AS RANGE (subtype = ext.citext, collation = "C");
"""
