"""A user who may create objects in the database, and would have the pipeline run them: the traps, made from data.

Whatever PostgreSQL's own functions, operators, types and relations our code names is made a second time, with the same
arguments, in a schema of the user's that every session finds before pg_catalog. Each raises when it is called.
"""

from __future__ import annotations

import re
from pathlib import Path

import psycopg

import wal2lake

TRAPPED = "a trap was called"
_OPERATORS = ["=", "<>", "<", "<=", ">", ">=", "||", "~", "!~", "+", "-", "/", "%"]
_TYPES = ["text", "oid", "tid", "bytea", "name", "xid", "pg_lsn", "regclass"]

_FUNCTIONS = """
SELECT DISTINCT p.proname::text, pg_get_function_identity_arguments(p.oid), pg_get_function_result(p.oid)
  FROM pg_proc p
 WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND NOT p.proretset AND p.proname = ANY (%s)
   AND NOT EXISTS (SELECT FROM unnest(p.proargtypes || p.prorettype) a (oid) JOIN pg_type t USING (oid)
                    WHERE t.typtype = 'p' AND t.typname NOT IN ('any', 'anyarray', 'anyelement', 'void'))
   AND NOT EXISTS (SELECT FROM unnest(p.proargtypes) a (oid) WHERE a.oid = '"any"'::regtype)
   AND p.proargmodes IS NULL
"""

_PAIRS = """
SELECT o.oprname::text, format_type(o.oprleft, NULL), format_type(o.oprright, NULL), format_type(o.oprresult, NULL)
  FROM pg_operator o
 WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprname = ANY (%s)
   AND o.oprleft IN (SELECT oid FROM pg_type WHERE typtype = 'b') AND o.oprresult <> 0
   AND o.oprright IN (SELECT oid FROM pg_type WHERE typtype = 'b')
"""


def _words() -> list[str]:
    """Every word of our code: what of it PostgreSQL has a function or a relation for, the query knows."""
    files = Path(wal2lake.__file__).parent.rglob("*.py")
    return sorted({word for file in files for word in re.findall(r"\b[a-z_][a-z0-9_]+\b", file.read_text())})


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def set_traps(connection: psycopg.Connection, role: str, schema: str) -> int:
    """Fill ``schema`` (made here, ``role``'s) with overloads; returns how many traps there are."""
    body = f"LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION '{TRAPPED}'; END$$"
    words = _words()
    functions = connection.execute(_FUNCTIONS.encode(), [words]).fetchall()
    operators = connection.execute(_PAIRS.encode(), [_OPERATORS]).fetchall()
    relations = connection.execute(
        "SELECT c.relname::text, string_agg(quote_ident(a.attname), ', ') FROM pg_class c"
        " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 JOIN pg_type t ON t.oid = a.atttypid"
        " WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind IN ('r', 'v') AND c.relname = ANY (%s)"
        " AND t.typtype <> 'p' GROUP BY 1",
        [words],
    ).fetchall()
    statements = [
        f"CREATE SCHEMA {_quoted(schema)} AUTHORIZATION {role}",
        f"SET ROLE {role}",
        f"SET search_path = pg_catalog, {_quoted(schema)}",
        f"CREATE FUNCTION {_quoted(schema)}.trap() RETURNS bool {body}",
        f"CREATE FUNCTION {_quoted(schema)}.pg_relation_size(oid) RETURNS bigint {body}",
        f"CREATE FUNCTION {_quoted(schema)}.quote_ident(name) RETURNS text {body}",
        f"CREATE FUNCTION {_quoted(schema)}.concat(VARIADIC text[]) RETURNS text {body}",
    ]
    made = {("pg_relation_size", "oid"), ("quote_ident", "name")}
    for name, arguments, result in functions:
        if (name, arguments) not in made:
            statements.append(f"CREATE FUNCTION {_quoted(schema)}.{_quoted(name)}({arguments}) RETURNS {result} {body}")
    for number, (name, left, right, result) in enumerate(operators):
        function = f"{_quoted(schema)}.op{number}"
        statements.append(f"CREATE FUNCTION {function}({left}, {right}) RETURNS {result} {body}")
        pair = f"LEFTARG = {left}, RIGHTARG = {right}, FUNCTION = {function}"
        statements.append(f"CREATE OPERATOR {_quoted(schema)}.{name} ({pair})")
    for name in _TYPES:
        check = f"CHECK ({_quoted(schema)}.trap())"
        statements.append(f"CREATE DOMAIN {_quoted(schema)}.{_quoted(name)} AS pg_catalog.{name} {check}")
    for name, columns in relations:
        view = f"CREATE VIEW {_quoted(schema)}.{_quoted(name)} AS SELECT {columns}, {_quoted(schema)}.trap() AS trap"
        statements.append(f"{view} FROM pg_catalog.{_quoted(name)}")
    statements += [f"GRANT ALL ON SCHEMA {_quoted(schema)} TO public", "RESET ROLE", "RESET search_path"]
    with connection.transaction():
        for statement in statements:
            connection.execute(statement.encode())
    return len(functions) + len(operators) + len(_TYPES) + len(relations)
