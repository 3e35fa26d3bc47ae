"""Twelve tables of all shapes, and what a random transaction does to them, as data: texts of SQL with blanks.

The blanks: ``{i}`` and ``{j}`` rows, ``{n}`` a number, ``{s}`` a short text. A key is never outside of what ``{i}`` can
be but for the moment of a swap. Definitions change only in columns x1 … x9, which no other statement names.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

ROWS = 400
FILLED = 25_000  # rows from ROWS + 2 on, which make a table large enough for its rows to be marked
SCHEMA = "shop"
_FEW = 0.7  # of the changes name one of the first ROWS
LARGE = "INSERT INTO plain SELECT g, repeat('x', 100) FROM generate_series(1000000, 1020000) g"  # the server spills it
_PARTITIONS = """
CREATE TABLE parted_0 PARTITION OF parted FOR VALUES FROM (MINVALUE) TO (200);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (200) TO (MAXVALUE)
"""


@dataclass(frozen=True)
class Shape:
    """``key``: the row {i}, as a condition; ``move``: gives the row {i} the key {j}, which no row has."""

    name: str
    create: str
    insert: str
    update: str
    key: str = "id = {i}"
    move: str = "UPDATE {t} SET id = {j} WHERE id = {i}"


SHAPES = (
    Shape(
        "plain",
        "CREATE TABLE plain (id int PRIMARY KEY, v text)",
        "INSERT INTO plain VALUES ({i}, {s})",
        "UPDATE plain SET v = {s}",
    ),
    Shape(
        "composite",
        "CREATE TABLE composite (a int, id text, v numeric(12,3), w varchar(20), PRIMARY KEY (id, a))",
        "INSERT INTO composite VALUES ({i} % 3, 'k{i}', {n} / 8.0, {s})",
        "UPDATE composite SET v = v + 1, w = nullif(w, {s})",
        "id = 'k{i}'",
        "UPDATE composite SET id = 'k{j}' WHERE id = 'k{i}'",
    ),
    Shape(
        "by_uuid",
        "CREATE TABLE by_uuid (id uuid PRIMARY KEY, v jsonb, f float8)",
        "INSERT INTO by_uuid VALUES (md5('{i}')::uuid, jsonb_build_object('s', {s}), {n} / 3.0)",
        "UPDATE by_uuid SET v = v || '{{\"n\": {n}}}', f = NULL",
        "id = md5('{i}')::uuid",
        "UPDATE by_uuid SET id = md5('{j}')::uuid WHERE id = md5('{i}')::uuid",
    ),
    Shape(
        "keyless",
        "CREATE TABLE keyless (id int, v text); ALTER TABLE keyless REPLICA IDENTITY FULL",
        "INSERT INTO keyless SELECT {i}, {s} FROM generate_series(1, 2)",
        "UPDATE keyless SET v = {s}",
    ),
    Shape(
        "toasted",
        "CREATE TABLE toasted (id int PRIMARY KEY, v int, big text, more bytea);"
        "ALTER TABLE toasted ALTER big SET STORAGE EXTERNAL, ALTER more SET STORAGE EXTERNAL",
        "INSERT INTO toasted VALUES ({i}, {n}, repeat({s}, 900), decode(repeat('ab', 3000), 'hex'))",
        "UPDATE toasted SET v = {n}, big = CASE WHEN v % 5 = 0 THEN repeat({s}, 700) ELSE big END",
    ),
    Shape(
        "indexed",
        "CREATE TABLE indexed (id int NOT NULL, v text, big text); ALTER TABLE indexed ALTER big SET STORAGE EXTERNAL;"
        "CREATE UNIQUE INDEX indexed_id ON indexed (id); ALTER TABLE indexed REPLICA IDENTITY USING INDEX indexed_id",
        "INSERT INTO indexed VALUES ({i}, {s}, repeat({s}, 800))",
        "UPDATE indexed SET v = {s}",
    ),
    Shape(
        "parted",
        f"CREATE TABLE parted (id int PRIMARY KEY, v text) PARTITION BY RANGE (id); {_PARTITIONS}",
        "INSERT INTO parted VALUES ({i}, {s})",
        "UPDATE parted SET v = {s}",
    ),
    Shape(
        "typed",
        "CREATE TYPE colour AS ENUM ('red', 'green', 'blue');"
        "CREATE TABLE typed (id bigint PRIMARY KEY, c colour, a int[], at timestamptz, d date, i interval, b boolean)",
        "INSERT INTO typed VALUES ({i}, 'red', ARRAY[{i}, NULL], to_timestamp({n}), date '2020-01-01' + {i}, '1 day')",
        "UPDATE typed SET c = 'blue', b = NOT coalesce(b, {n} % 2 = 0), a = a || {n}, at = now()",
    ),
    Shape(
        "generated",
        "CREATE TABLE generated (id int PRIMARY KEY, gone int, v int, g int GENERATED ALWAYS AS (v * 2) STORED);"
        "ALTER TABLE generated DROP gone",
        "INSERT INTO generated VALUES ({i}, {n})",
        "UPDATE generated SET v = {n}",
    ),
    Shape(
        "Odd.Näme",
        'CREATE TABLE "Odd.Näme" (id int PRIMARY KEY, "a ""b" text DEFAULT \'\')',
        'INSERT INTO "Odd.Näme" VALUES ({i}, {s})',
        'UPDATE "Odd.Näme" SET "a ""b" = {s}',
    ),
    Shape(
        "parent",
        "CREATE TABLE parent (id int PRIMARY KEY, v text)",
        "INSERT INTO parent VALUES ({i}, {s})",
        "UPDATE parent SET v = {s}",
    ),
    Shape(
        "child",
        "CREATE TABLE child (id int PRIMARY KEY, p int REFERENCES parent ON UPDATE CASCADE ON DELETE CASCADE, v text)",
        "INSERT INTO child SELECT {i}, (SELECT max(id) FROM parent WHERE id <= {i}), {s}",
        "UPDATE child SET v = {s}",
    ),
)  # fmt: skip

# What changes definitions or membership, or writes where no row is sent: each text is one transaction after another.
CHANGES = (
    ("ALTER TABLE {t} ADD {x} int DEFAULT {n}",),
    ("ALTER TABLE {t} ADD {x} text",),
    ("ALTER TABLE {t} ADD {x} uuid DEFAULT gen_random_uuid()", "ALTER TABLE {t} ALTER {x} DROP DEFAULT"),
    ("ALTER TABLE {t} DROP {x}",),
    ("ALTER TABLE {t} RENAME {x} TO {y}",),
    ("ALTER TABLE {t} RENAME {x} TO xx", "ALTER TABLE {t} RENAME {y} TO {x}", "ALTER TABLE {t} RENAME xx TO {y}"),
    ("ALTER TABLE {t} ALTER {x} TYPE bigint",),
    ("ALTER TABLE {t} ALTER {x} TYPE text",),
    ("UPDATE {t} SET {x} = DEFAULT WHERE {key}",),
    ("ALTER PUBLICATION pub DROP TABLE {t}", "{write}", "ALTER PUBLICATION pub ADD TABLE {t}"),
    ("ALTER TABLE {t} RENAME TO away", "ALTER TABLE away RENAME TO {t}"),
    ("ALTER TABLE {t} SET SCHEMA elsewhere", "ALTER TABLE elsewhere.{t} SET SCHEMA shop"),
    ("TRUNCATE {t} CASCADE", "{write}"),
    ("BEGIN; {write}; TRUNCATE {t} CASCADE; {write}; COMMIT",),
    ("VACUUM FULL {t}",),
    ("VACUUM {t}", "ANALYZE {t}", "GRANT SELECT ON {t} TO PUBLIC"),
    ("ALTER TABLE {t} REPLICA IDENTITY FULL", "{write}"),
    ("ALTER TABLE parted DETACH PARTITION parted_0", "DELETE FROM parted_0 WHERE id % 7 = 0",
     "ALTER TABLE parted ATTACH PARTITION parted_0 FOR VALUES FROM (MINVALUE) TO (200)"),
    ("TRUNCATE parted_1",),
    ("DROP TABLE {t} CASCADE; {create}; ALTER PUBLICATION pub ADD TABLE {t}; {write}",),
)  # fmt: skip


def fill(template: str, shape: Shape, dice: random.Random) -> str:
    """The text with its blanks filled in."""
    names = dice.sample([f"x{number}" for number in range(1, 10)], 2)
    table = f'"{shape.name}"'
    for blank in ("{write}", "{create}"):
        if blank in template:
            text = shape.create if blank == "{create}" else statement(shape, dice)
            template = template.replace(blank, text.replace("{", "{{").replace("}", "}}"))
    template = template.replace("{key}", shape.key)
    numbers = {"i": _row(dice), "j": dice.randrange(ROWS), "n": dice.randrange(1_000_000)}
    return template.format(t=table, x=names[0], y=names[1], **numbers, s=f"'{dice.getrandbits(40):x}'")


def _row(dice: random.Random) -> int:
    return dice.randrange(ROWS) if dice.random() < _FEW else ROWS + 2 + dice.randrange(FILLED)


def filling(shape: Shape, dice: random.Random) -> str:
    """The rows that a table begins with: few where each is large."""
    rows = range(ROWS + 2, ROWS + 2 + (FILLED // 80 if "repeat" in shape.insert else FILLED))
    return ";".join(
        shape.insert.format(i=i, n=dice.randrange(1_000_000), s=f"'{dice.getrandbits(80):020x}'") for i in rows
    )


def statement(shape: Shape, dice: random.Random) -> str:
    """One change of rows. Many name a row that is not there, or one that is: errors are part of life."""
    kind = dice.choices(("insert", "update", "delete", "move"), (5, 4, 2, 1))[0]
    template = {
        "insert": shape.insert + ("" if shape.name == "keyless" else " ON CONFLICT DO NOTHING"),
        "update": f"{shape.update} WHERE {shape.key}",
        "delete": f"DELETE FROM {{t}} WHERE {shape.key}",
        "move": shape.move,
    }[kind]
    return fill(template, shape, dice)


def swap(shape: Shape, dice: random.Random) -> list[str]:
    """Two rows exchange their keys, by way of a third one."""
    one, other = dice.sample(range(ROWS), 2)
    hops = ((one, ROWS + 1), (other, one), (ROWS + 1, other))
    return [shape.move.format(t=f'"{shape.name}"', i=i, j=j) for i, j in hops]
