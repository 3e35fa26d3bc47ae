"""Names and values as PostgreSQL's own functions print them, so that a plugin's text is the server's.

Source: quote_identifier in src/backend/utils/adt/ruleutils.c; quote.c; bool.c; timestamptz_to_str in timestamp.c;
src/include/parser/kwlist.h (PostgreSQL 18; all but the unreserved keywords).
"""

from __future__ import annotations

import re
from typing import Final

from wal2lake.epoch import moment

_KEYWORDS: Final = """
all analyse analyze and any array as asc asymmetric authorization between bigint binary bit boolean both case
cast char character check coalesce collate collation column concurrently constraint create cross current_catalog
current_date current_role current_schema current_time current_timestamp current_user dec decimal default
deferrable desc distinct do else end except exists extract false fetch float for foreign freeze from full grant
greatest group grouping having ilike in initially inner inout int integer intersect interval into is isnull join
json json_array json_arrayagg json_exists json_object json_objectagg json_query json_scalar json_serialize
json_table json_value lateral leading least left like limit localtime localtimestamp merge_action national
natural nchar none normalize not notnull null nullif numeric offset on only or order out outer overlaps overlay
placing position precision primary real references returning right row select session_user setof similar
smallint some substring symmetric system_user table tablesample then time timestamp to trailing treat trim true
union unique user using values varchar variadic verbose when where window with xmlattributes xmlconcat
xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable
"""
KEYWORDS: Final = frozenset(_KEYWORDS.split())
_SAFE: Final = re.compile(r"[a-z_][a-z0-9_]*")
_INFINITY: Final = (1 << 63) - 1
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def quote_identifier(name: str) -> str:
    """quote_ident: in double quotes only where SQL would read it otherwise."""
    if _SAFE.fullmatch(name) and name not in KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """quote_literal: in single quotes, and an E before them where there are backslashes."""
    doubled = text.replace("'", "''")
    return "E'" + doubled.replace("\\", "\\\\") + "'" if "\\" in text else "'" + doubled + "'"


def parse_bool(text: str) -> bool | None:
    """What boolean text means, by unambiguous beginnings too ("t", "of"); None: it is none."""
    word = text.lower()
    if not word or word == "o":
        return None
    if any(full.startswith(word) for full in _TRUE):
        return True
    return False if any(full.startswith(word) for full in _FALSE) else None


def timestamptz_to_str(micros: int) -> str:
    """A timestamptz (µs since 2000-01-01 UTC) in ISO style and UTC: ``2026-01-31 09:05:00.25+00``. No clock of a
    server says a year that Python's calendar has not."""
    if micros in (_INFINITY, -_INFINITY - 1):
        return "infinity" if micros > 0 else "-infinity"
    try:
        at = moment(micros)
    except OverflowError:
        return f"{micros} microseconds from 2000-01-01 00:00:00+00"
    fraction = f".{at.microsecond:06}".rstrip("0") if at.microsecond else ""
    return f"{at.year:04}-{at:%m-%d %H:%M:%S}{fraction}+00"
