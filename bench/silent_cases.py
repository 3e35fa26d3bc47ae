"""What is done to tables behind the stream's back, as data: scripts of SQL that a pipeline must follow or read anew.

Each case has a schema of its own, which is its search path, and whose name stands for ``@``; each step is one
transaction. ``published`` is what the publication pub gets of it before the first step: tables, or ``@`` for the schema
as a whole. Cases of a group share a database, a publication and a pipeline; those of SOLO have each their own, for they
change the publication itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

PLAIN, ROOT, ALL, SOLO, SOLO_ROOT = "tables and schemas", "via root", "all tables", "solo", "solo via root"

T = "CREATE TABLE t (a int PRIMARY KEY, b text); INSERT INTO t VALUES (1, 'x')"
R = """
CREATE TABLE r (a int PRIMARY KEY, b text) PARTITION BY RANGE (a);
CREATE TABLE r0 PARTITION OF r FOR VALUES FROM (0) TO (100);
CREATE TABLE r1 PARTITION OF r FOR VALUES FROM (100) TO (200);
INSERT INTO r VALUES (1, 'x'), (101, 'y')
"""
EMPTY_R = "CREATE TABLE r (a int PRIMARY KEY, ts timestamptz) PARTITION BY RANGE (a)"
ADD_R0 = "CREATE TABLE r0 PARTITION OF r FOR VALUES FROM (0) TO (100)"
DETACH, ATTACH = "ALTER TABLE r DETACH PARTITION r0", "ALTER TABLE r ATTACH PARTITION r0 FOR VALUES FROM (0) TO (100)"
DROP_T, ADD_T = "ALTER PUBLICATION pub DROP TABLE @.t", "ALTER PUBLICATION pub ADD TABLE @.t"
UNLOG, LOG = "ALTER TABLE t SET UNLOGGED", "ALTER TABLE t SET LOGGED"
LAST = "INSERT INTO t (a) VALUES (9)"
LAST_R = "INSERT INTO r (a) VALUES (9)"


@dataclass(frozen=True)
class Case:
    """``benign``: nothing is lost, so no table may be read anew; ``quarantined``: there is no other honest end."""

    name: str
    group: str
    setup: str
    steps: tuple[str, ...]
    published: tuple[str, ...] = ("t",)
    benign: bool = False
    quarantined: bool = False


def cases() -> list[Case]:
    """All of them: first those in which something would be lost, then the benign ones."""
    stream = [
        *_left_and_back(),
        *_publication(),
        *_partitions(),
        *_identities_of_leaves(),
        *_remade(),
        *_names(),
    ]
    return [
        *stream,
        *_rewritten(),
        *_values(),
        *_column_names(),
        *_empty_roots(),
        *_types(),
        *_benign(),
        *_benign_partitions(),
    ]


_WRITES = {
    "insert": "INSERT INTO t VALUES (2, 'lost')",
    "update": "UPDATE t SET b = 'lost'",
    "delete": "DELETE FROM t WHERE a = 1",
    "truncate": "TRUNCATE t",
}


def _left_and_back() -> Iterator[Case]:
    """The table leaves the stream, somebody writes, and it is back."""
    for write, statement in _WRITES.items():
        yield Case(f"dropped, {write}, added", PLAIN, T, (DROP_T, statement, ADD_T, LAST))
        yield Case(f"schema out, {write}, back", PLAIN, f"{T}; CREATE SCHEMA @_o", _out(statement), ("@",))
        yield Case(f"unlogged, {write}, logged", ALL, T, (UNLOG, statement, LOG, LAST), ())
    lost = _WRITES["insert"]
    yield Case("dropped, insert, added, silence", PLAIN, T, (DROP_T, lost, ADD_T))
    yield Case("dropped and added amid a transaction", PLAIN, T, (f"{DROP_T}; {lost}; {ADD_T}", LAST))
    yield Case(
        "dropped twice", PLAIN, T, (DROP_T, lost, ADD_T, DROP_T, "INSERT INTO t VALUES (4, 'lost')", ADD_T, LAST)
    )
    yield Case("unlogged, insert, logged, silence", ALL, T, (UNLOG, lost, LOG), ())
    yield Case("unlogged in a published schema", PLAIN, T, (UNLOG, lost, LOG, LAST), ("@",))
    yield Case("unlogged amid a transaction", ALL, T, (f"{UNLOG}; {lost}; {LOG}", LAST), ())
    yield Case("schema out, insert, back, silence", PLAIN, f"{T}; CREATE SCHEMA @_o", _out(lost)[:-1], ("@",))
    schema = (
        "ALTER PUBLICATION pub DROP TABLES IN SCHEMA @",
        lost,
        "ALTER PUBLICATION pub ADD TABLES IN SCHEMA @",
        LAST,
    )
    yield Case("schema dropped, insert, added", PLAIN, T, schema, ("@",))
    narrow = f"{ADD_T} WHERE (a < 2)"
    yield Case("a row filter for a while", PLAIN, T, (DROP_T, narrow, lost, DROP_T, ADD_T, LAST))
    yield Case("a row filter comes", PLAIN, f"{T}, (5, 'five')", (f"{DROP_T}; {narrow}", LAST))
    yield Case("a column list for a while", SOLO, T, (DROP_T, f"{ADD_T} (a)", lost, DROP_T, ADD_T, LAST))
    yield Case("a column list for a while, at once", SOLO, T, (f"{DROP_T}; {ADD_T} (a)", lost, f"{DROP_T}; {ADD_T}"))
    yield Case(
        "from the list to the schema", PLAIN, T, (DROP_T, lost, "ALTER PUBLICATION pub ADD TABLES IN SCHEMA @", LAST)
    )


def _out(statement: str) -> tuple[str, ...]:
    elsewhere = statement.replace(" t ", " @_o.t ").replace("TRUNCATE t", "TRUNCATE @_o.t")
    return "ALTER TABLE t SET SCHEMA @_o", elsewhere, "ALTER TABLE @_o.t SET SCHEMA @", LAST


def _publication() -> Iterator[Case]:
    """The publication itself is altered for a while, or for good."""
    lost, two = _WRITES["insert"], f"{T}; CREATE TABLE o (a int PRIMARY KEY)"
    for write, narrow in (("insert", "update"), ("update", "insert"), ("delete", "insert, update")):
        steps = (f"ALTER PUBLICATION pub SET (publish = '{narrow}')", _WRITES[write])
        back = "ALTER PUBLICATION pub SET (publish = 'insert, update, delete, truncate')"
        yield Case(f"publish without {write} for a while", SOLO, T, (*steps, back, LAST))
        yield Case(f"publish without {write} for a while, silence", SOLO, T, (*steps, back))
    yield Case("SET TABLE for a while", SOLO, two, (_only("o"), lost, _only("o, @.t"), LAST))
    yield Case("SET TABLE for a while, silence", SOLO, two, (_only("o"), lost, _only("o, @.t")))
    yield Case("the row filter is widened", SOLO, two, (_only("t WHERE (a < 2)"), lost, _only("t WHERE (a < 5)"), LAST))
    yield Case("the row filter goes", SOLO, T, (_only("t WHERE (a < 2)"), lost, _only("t"), LAST))
    root = "ALTER PUBLICATION pub SET (publish_via_partition_root = {})"
    toggled = (root.format("false"), "INSERT INTO r VALUES (2, 'lost')", root.format("true"))
    yield Case("via root, by leaf, via root", SOLO_ROOT, R, (*toggled, LAST_R), ("r",))
    yield Case("via root, by leaf, via root, silence", SOLO_ROOT, R, toggled, ("r",))
    toggled = (root.format("true"), "INSERT INTO r VALUES (2, 'lost')", root.format("false"))
    yield Case("by leaf, via root, by leaf", SOLO, R, (*toggled, LAST_R), ("r",))


def _only(tables: str) -> str:
    return f"ALTER PUBLICATION pub SET TABLE public.marker, @.{tables}"


def _partitions() -> Iterator[Case]:
    """Rows come and go with leaves, of which the stream says nothing."""
    lost = "INSERT INTO r0 VALUES (2, 'lost')"
    filled = "CREATE TABLE n (a int PRIMARY KEY, b text); INSERT INTO n VALUES (201, 'n')"
    attach = "ALTER TABLE r ATTACH PARTITION n FOR VALUES FROM (200) TO (300)"
    scripts = {
        "detached, insert, attached": (DETACH, lost, ATTACH),
        "detached, delete, attached": (DETACH, "DELETE FROM r0", ATTACH),
        "detached and attached at once": (f"{DETACH}; {lost}; {ATTACH}",),
        "detached concurrently, insert, attached": (f"{DETACH} CONCURRENTLY", lost, ATTACH),
        "detached for good": (DETACH,),
        "a leaf dropped": ("DROP TABLE r0",),
        "a leaf dropped and made": ("DROP TABLE r0", ADD_R0),
        "a leaf truncated": ("TRUNCATE r0",),
        "the root truncated, filled, a leaf truncated": ("TRUNCATE r", "INSERT INTO r VALUES (3, 'z')", "TRUNCATE r0"),
        "a leaf truncated, then the root's is streamed": ("INSERT INTO r VALUES (2, 'n')", "TRUNCATE r0", LAST_R),
        "a filled table attached": (filled, attach),
        "a table made, filled and attached at once": (f"{filled}; {attach}",),
        "a leaf made, filled, truncated": (
            "CREATE TABLE n PARTITION OF r FOR VALUES FROM (200) TO (300)",
            "INSERT INTO r VALUES (201, 'n')",
            "TRUNCATE n",
        ),
        "a leaf unlogged for a while": ("ALTER TABLE r0 SET UNLOGGED", lost, "ALTER TABLE r0 SET LOGGED"),
        "a leaf under other bounds": (
            DETACH,
            "UPDATE r0 SET a = a + 300",
            "ALTER TABLE r ATTACH PARTITION r0 FOR VALUES FROM (300) TO (400)",
            "INSERT INTO r VALUES (301 + 7)",
        ),
    }
    for name, steps in scripts.items():
        last = () if name == "a leaf under other bounds" else ("INSERT INTO r (a) VALUES (109)",)
        yield Case(name, ROOT, R, (*steps, *last), ("r",))
    for name in ("a leaf truncated", "a leaf dropped", "detached, insert, attached", "a filled table attached"):
        yield Case(f"{name}, silence", ROOT, R, scripts[name], ("r",))
    yield Case("by leaf: detached, insert, attached", PLAIN, R, (DETACH, lost, ATTACH, LAST_R), ("r",))
    deep = R.replace(
        "r0 PARTITION OF r FOR VALUES FROM (0) TO (100)",
        "r0 PARTITION OF r FOR VALUES FROM (0) TO (100) "
        "PARTITION BY RANGE (a); CREATE TABLE r00 PARTITION OF r0 FOR VALUES FROM (0) TO (50)",
    )
    steps = ("ALTER TABLE r0 DETACH PARTITION r00", "INSERT INTO r00 VALUES (2, 'lost')")
    again = "ALTER TABLE r0 ATTACH PARTITION r00 FOR VALUES FROM (0) TO (50)"
    yield Case("a leaf's leaf detached, insert, attached", ROOT, deep, (*steps, again, LAST_R), ("r",))
    yield Case("a leaf's leaf truncated", ROOT, deep, ("TRUNCATE r00", LAST_R), ("r",))


def _identities_of_leaves() -> Iterator[Case]:
    """The root announces its key; what is sent of the old one, the leaf's own identity decides."""
    setup = """
    CREATE TABLE r (a int, k int, u int NOT NULL, PRIMARY KEY (a, k)) PARTITION BY LIST (k);
    CREATE TABLE r1 PARTITION OF r FOR VALUES IN (1); INSERT INTO r SELECT i, 1, i FROM generate_series(1, 9) i
    """
    own = "CREATE UNIQUE INDEX own ON {0} ({1}); ALTER TABLE {0} REPLICA IDENTITY USING INDEX own"
    moved = ("UPDATE r SET a = a + 100 WHERE a = 3", "INSERT INTO r VALUES (99, 1, 1000)")
    yield Case("a leaf's own identity", ROOT, setup, (own.format("r1", "u"), *moved), ("r",), quarantined=True)
    made = "CREATE TABLE r2 PARTITION OF r FOR VALUES IN (2); INSERT INTO r VALUES (1, 2, 3)"
    later = ("UPDATE r SET a = a + 100 WHERE k = 2",)
    yield Case("a new leaf's", ROOT, setup, (f"{made}; {own.format('r2', 'u')}", *later), ("r",), quarantined=True)
    root = "CREATE UNIQUE INDEX whole ON r (u, k); ALTER TABLE r REPLICA IDENTITY USING INDEX whole"
    changed = ("UPDATE r SET u = u + 100 WHERE a = 3",)
    yield Case("a root's, which leaves have not", ROOT, setup, (root, *changed), ("r",), quarantined=True)
    full = "ALTER TABLE r1 REPLICA IDENTITY FULL"
    yield Case("a leaf's is all columns", ROOT, setup, (full, *moved[:1]), ("r",), benign=True)
    wider = own.format("r1", "u, k, a")
    yield Case("a leaf's has the root's key", ROOT, setup, (wider, *moved[:1]), ("r",), benign=True)


def _remade() -> Iterator[Case]:
    made = "CREATE TABLE t (a int PRIMARY KEY, b text)"
    yield Case("remade, silence", PLAIN, T, ("DROP TABLE t", made, ADD_T))
    yield Case(
        "remade and filled before it is added", PLAIN, T, (f"DROP TABLE t; {made}", "INSERT INTO t VALUES (5)", ADD_T)
    )
    yield Case("remade in a published schema, silence", PLAIN, T, (f"DROP TABLE t; {made}",), ("@",))
    yield Case("remade in a published schema", PLAIN, T, (f"DROP TABLE t; {made}", LAST), ("@",))
    yield Case("remade among all tables, silence", ALL, T, (f"DROP TABLE t; {made}",), ())


def _rewritten() -> Iterator[Case]:
    """What rewrites the table and gives older rows values that were never in the stream."""
    made = {
        "uuid": ("ADD u uuid DEFAULT gen_random_uuid()", "ALTER u DROP DEFAULT"),
        "clock": ("ADD u timestamptz DEFAULT clock_timestamp()", "ALTER u DROP DEFAULT"),
        "serial": ("ADD u serial", "ALTER u DROP DEFAULT, ALTER u DROP NOT NULL"),
        "identity": ("ADD u int GENERATED BY DEFAULT AS IDENTITY", "ALTER u DROP IDENTITY, ALTER u DROP NOT NULL"),
        "expression": ("ADD u int GENERATED ALWAYS AS (a * 2) STORED", "ALTER u DROP EXPRESSION"),
        "type": ("ADD u int DEFAULT 7, ALTER b TYPE varchar(20)", "ALTER u DROP DEFAULT"),
        "two": (
            "ADD u uuid DEFAULT gen_random_uuid(), ADD v int DEFAULT 5",
            "ALTER u DROP DEFAULT, ALTER v DROP DEFAULT",
        ),
    }
    for name, (add, drop) in made.items():
        yield Case(f"rewritten by {name}, dropped", PLAIN, T, (f"ALTER TABLE t {add}", f"ALTER TABLE t {drop}", LAST))
    yield Case("rewritten by uuid, kept", PLAIN, T, (f"ALTER TABLE t {made['uuid'][0]}", LAST))
    yield Case(
        "rewritten by uuid, dropped at once",
        PLAIN,
        T,
        (f"ALTER TABLE t {made['uuid'][0]}; ALTER TABLE t {made['uuid'][1]}", LAST),
    )
    constant = ("ALTER TABLE t ADD u int DEFAULT 7", "VACUUM FULL t", "ALTER TABLE t ALTER u DROP DEFAULT", LAST)
    yield Case("a constant, VACUUM FULL, dropped", PLAIN, T, constant)
    clustered = (constant[0], "CLUSTER t USING t_pkey", *constant[2:])
    yield Case("a constant, CLUSTER, dropped", PLAIN, T, clustered)
    domain = f"{T}; CREATE DOMAIN d AS int DEFAULT 4 CHECK (VALUE > 0)"
    yield Case("a domain with a default", PLAIN, domain, ("ALTER TABLE t ADD u d", LAST))
    yield Case(
        "a domain with a default, rewritten",
        PLAIN,
        domain,
        ("ALTER TABLE t ADD u d, ADD w uuid DEFAULT gen_random_uuid()", LAST),
    )
    yield Case(
        "rewritten by uuid under a root",
        ROOT,
        R,
        (f"ALTER TABLE r {made['uuid'][0]}", f"ALTER TABLE r {made['uuid'][1]}", LAST_R),
        ("r",),
    )


def _values() -> Iterator[Case]:
    """What gives older rows other values by an expression, or by another column of the name."""
    yield Case("USING, the same type", PLAIN, T, ("ALTER TABLE t ALTER b TYPE text USING b || '!'", LAST))
    yield Case(
        "USING, a wider type",
        PLAIN,
        f"{T}; ALTER TABLE t ADD n int; UPDATE t SET n = 4",
        ("ALTER TABLE t ALTER n TYPE bigint USING -n", LAST),
    )
    yield Case("USING, silence", PLAIN, T, ("ALTER TABLE t ALTER b TYPE text USING b || '!'",))
    yield Case(
        "an expression is set",
        PLAIN,
        f"{T}; ALTER TABLE t ADD u int GENERATED ALWAYS AS (a * 2) STORED; ALTER TABLE t ADD v int",
        ("ALTER TABLE t ALTER u SET EXPRESSION AS (a * 3)", LAST),
    )
    published = "CREATE TABLE t (a int PRIMARY KEY, u int GENERATED ALWAYS AS (a * 2) STORED); INSERT INTO t VALUES (1)"
    yield Case(
        "a published column's expression is set",
        SOLO,
        published,
        (
            "ALTER PUBLICATION pub SET (publish_generated_columns = stored)",
            LAST,
            "ALTER TABLE t ALTER u SET EXPRESSION AS (a * 3)",
            "INSERT INTO t VALUES (10)",
        ),
    )
    yield Case(
        "a column dropped and made", PLAIN, T, ("ALTER TABLE t DROP b", "ALTER TABLE t ADD b text DEFAULT 'n'", LAST)
    )
    yield Case("a column dropped and made, silence", PLAIN, T, ("ALTER TABLE t DROP b, ADD b text DEFAULT 'n'",))
    yield Case("a column renamed for good", PLAIN, T, ("ALTER TABLE t RENAME b TO c", LAST))


def _column_names() -> Iterator[Case]:
    """Columns bear others' names for a while: the order of a Relation's columns tells."""
    swap = "ALTER TABLE t RENAME b TO x; ALTER TABLE t RENAME c TO b; ALTER TABLE t RENAME x TO c"
    wide = "CREATE TABLE t (a int PRIMARY KEY, b text, c text, d text); INSERT INTO t VALUES (1, 'b', 'c', 'd')"
    one = "INSERT INTO t (a, b, c, d) VALUES ({}, 'B', 'C', 'D')"
    around = ("b TO x", "c TO b", "d TO c", "x TO d")
    turn = "; ".join(f"ALTER TABLE t RENAME {names}" for names in around)
    yield Case("names swapped and back", PLAIN, wide, (swap, one.format(2), swap, one.format(3)))
    yield Case("names swapped and back, silence", PLAIN, wide, (swap, one.format(2), swap))
    yield Case("names turned round", PLAIN, wide, (turn, one.format(2), turn, one.format(3), turn, one.format(4)))
    yield Case("names swapped for good", PLAIN, wide, (swap, one.format(2)))
    yield Case("names swapped for good, silence", PLAIN, wide, (swap,))
    yield Case(
        "a name for a while",
        PLAIN,
        wide,
        ("ALTER TABLE t RENAME b TO x", "INSERT INTO t VALUES (2, 'B')", "ALTER TABLE t RENAME x TO b", one.format(3)),
    )
    other = (
        "ALTER TABLE t RENAME b TO x; ALTER TABLE t ADD b text",
        one.format(2),
        "ALTER TABLE t DROP b; ALTER TABLE t RENAME x TO b",
        one.format(3),
    )
    yield Case("another column of the name for a while", PLAIN, wide, other)


def _empty_roots() -> Iterator[Case]:
    """A root that had no leaf when it was read."""
    row = "INSERT INTO r VALUES (1, '2026-01-01 00:00:00.7')"
    for name, change in {
        "its type narrowed": "ALTER TABLE r ALTER ts TYPE timestamptz(0)",
        "a uuid": "ALTER TABLE r ADD u uuid DEFAULT gen_random_uuid()",
        "a uuid, dropped": "ALTER TABLE r ADD u uuid DEFAULT gen_random_uuid(); ALTER TABLE r ALTER u DROP DEFAULT",
    }.items():
        yield Case(f"a root without leaves, {name}", ROOT, EMPTY_R, (ADD_R0, row, change, LAST_R), ("r",))
    yield Case(
        "a root without leaves, silence",
        ROOT,
        EMPTY_R,
        (ADD_R0, row, "ALTER TABLE r ALTER ts TYPE timestamptz(0)"),
        ("r",),
    )


def _names() -> Iterator[Case]:
    """Identity is the OID; a table's name is a property."""
    away, back = "ALTER TABLE t RENAME TO u", "ALTER TABLE u RENAME TO t"
    lost = "INSERT INTO u VALUES (2, 'lost')"
    yield Case("renamed, insert, back", PLAIN, T, (away, lost, back, LAST))
    yield Case("renamed, insert, back, silence", PLAIN, T, (away, lost, back))
    yield Case("renamed, delete, back", PLAIN, T, (away, "DELETE FROM u", back, LAST))
    yield Case("renamed for good", PLAIN, T, (away, lost))
    yield Case("renamed for good, silence", PLAIN, T, (away,))
    yield Case(
        "renamed, and another of its name",
        PLAIN,
        T,
        (away, lost, "CREATE TABLE t (a int PRIMARY KEY, b text)", ADD_T, LAST),
    )
    two = f"{T}; CREATE TABLE u (a int PRIMARY KEY, b text); INSERT INTO u VALUES (7, 'u')"
    swap = "ALTER TABLE t RENAME TO x; ALTER TABLE u RENAME TO t; ALTER TABLE x RENAME TO u"
    both = ("t", "u")
    yield Case("two swapped and back", PLAIN, two, (swap, lost, "INSERT INTO t VALUES (8)", swap, LAST), both)
    yield Case("two swapped and back, silence", PLAIN, two, (swap, lost, "INSERT INTO t VALUES (8)", swap), both)
    yield Case("two swapped for good", PLAIN, two, (swap, lost, LAST), both)
    yield Case("two swapped for good, silence", PLAIN, two, (swap,), both)
    elsewhere = (
        "ALTER SCHEMA @ RENAME TO @_x",
        "INSERT INTO @_x.t VALUES (2, 'lost')",
        "ALTER SCHEMA @_x RENAME TO @",
        LAST,
    )
    yield Case("the schema renamed and back", PLAIN, T, elsewhere)
    moved = (
        "ALTER TABLE t SET SCHEMA @_o",
        "INSERT INTO @_o.t VALUES (2, 'lost')",
        "ALTER TABLE @_o.t SET SCHEMA @",
        LAST,
    )
    yield Case("a listed table in another schema and back", PLAIN, f"{T}; CREATE SCHEMA @_o", moved)


def _types() -> Iterator[Case]:
    """Definitions that change what is stored, or how it reads, some of them without a rewrite."""
    made = "CREATE TABLE t (a int PRIMARY KEY, v {}); INSERT INTO t VALUES (1, {})"
    kinds = {
        "cidr to inet": ("cidr", "'10.1.2.3/32'", "inet"),
        "inet to cidr": ("inet", "'10.1.2.3'", "cidr USING v::cidr"),
        "oid to int4": ("oid", "4294967295", "int4"),
        "int4 to oid": ("int4", "-1", "oid"),
        "text to varchar": ("text", "'ab   '", "varchar(3)"),
        "varchar to a narrower one": ("varchar(10)", "'ab     '", "varchar(3)"),
        "text to char": ("text", "'ab'", "char(4)"),
        "char to text": ("char(4)", "'ab'", "text"),
        "timestamp to a rougher one": ("timestamp", "'2026-01-01 00:00:00.7'", "timestamp(0)"),
        "timestamp to timestamptz": ("timestamp", "'2026-01-01 00:00:00.7'", "timestamptz"),
        "json to jsonb": ("json", """'{"b": 1,   "a": 2}'""", "jsonb"),
        "numeric to a rougher one": ("numeric(8,3)", "1.126", "numeric(8,2)"),
        "int4 to int8": ("int4", "5", "int8"),
        "float4 to float8": ("float4", "0.1", "float8"),
        "int8 to int4": ("int8", "5", "int4"),
        "regclass to oid": ("regclass", "'pg_class'", "oid"),
    }
    for name, (before, value, after) in kinds.items():
        alter = f"ALTER TABLE t ALTER v TYPE {after}"
        yield Case(f"{name}", PLAIN, made.format(before, value), (alter, LAST))
        yield Case(f"{name}, silence", PLAIN, made.format(before, value), (alter,))
    colour = "CREATE TYPE colour AS ENUM ('red', 'blue'); "
    renamed, back = "ALTER TYPE colour RENAME VALUE 'red' TO 'rot'", "ALTER TYPE colour RENAME VALUE 'rot' TO 'red'"
    for name, of in {"enum": "colour", "array of enums": "colour[]"}.items():
        value = "'red'" if of == "colour" else "'{red,blue}'"
        yield Case(f"{name} renamed", PLAIN, colour + made.format(of, value), (renamed, LAST))
        yield Case(f"{name} renamed, silence", PLAIN, colour + made.format(of, value), (renamed,))
    yield Case(
        "enum renamed and back",
        PLAIN,
        colour + made.format("colour", "'red'"),
        (renamed, "INSERT INTO t VALUES (2, 'rot')", back, LAST),
    )
    pair = "CREATE TYPE pair AS (x int, y int); "
    yield Case(
        "an attribute is added",
        PLAIN,
        pair + made.format("pair", "'(1,2)'"),
        ("ALTER TYPE pair ADD ATTRIBUTE z int", LAST),
    )
    for what, how in (("dropped", "DROP ATTRIBUTE y"), ("renamed", "RENAME ATTRIBUTE y TO z")):
        yield Case(
            f"an attribute is {what}",
            PLAIN,
            pair + made.format("pair", "'(1,2)'"),
            (f"ALTER TYPE pair {how}", LAST),
            quarantined=True,
        )
    yield Case(
        "an attribute is added, silence",
        PLAIN,
        pair + made.format("pair[]", """'{"(1,2)"}'"""),
        ("ALTER TYPE pair ADD ATTRIBUTE z int",),
    )
    rows = "CREATE TABLE k (x int, y int); "
    yield Case(
        "a table's row type gets a column", PLAIN, rows + made.format("k", "'(1,2)'"), ("ALTER TABLE k ADD z int", LAST)
    )
    deep = f"{colour}CREATE TYPE pair AS (x int, y colour); CREATE DOMAIN d AS pair; "
    yield Case("an enum in a composite in a domain", PLAIN, deep + made.format("d", "'(1,red)'"), (renamed, LAST))


_BENIGN: dict[str, str | Sequence[str]] = {
    "GRANT": "GRANT SELECT ON t TO PUBLIC",
    "GRANT on a column": "GRANT UPDATE (b) ON t TO PUBLIC",
    "REVOKE": "REVOKE ALL ON t FROM PUBLIC",
    "OWNER": "ALTER TABLE t OWNER TO pg_read_all_data",
    "ADD COLUMN": "ALTER TABLE t ADD c text",
    "ADD COLUMN with a constant": "ALTER TABLE t ADD c int DEFAULT 7",
    "ADD COLUMN with a constant, dropped": (
        "ALTER TABLE t ADD c int DEFAULT 7",
        "ALTER TABLE t ALTER c DROP DEFAULT",
    ),
    "DROP COLUMN": "ALTER TABLE t DROP b",
    "CREATE INDEX": "CREATE INDEX ON t (b)",
    "CREATE INDEX CONCURRENTLY": "CREATE INDEX CONCURRENTLY ON t (b)",
    "CREATE UNIQUE INDEX and drop": ("CREATE UNIQUE INDEX i ON t (b)", "DROP INDEX i"),
    "REINDEX": "REINDEX TABLE t",
    "REINDEX CONCURRENTLY": "REINDEX TABLE CONCURRENTLY t",
    "ANALYZE": "ANALYZE t",
    "VACUUM": "VACUUM t",
    "VACUUM FREEZE": "VACUUM (FREEZE, ANALYZE) t",
    "VACUUM FULL of a listed table": "VACUUM FULL t",
    "CLUSTER of a listed table": "CLUSTER t USING t_pkey",
    "COMMENT": ("COMMENT ON TABLE t IS 'words'", "COMMENT ON COLUMN t.b IS 'words'"),
    "a trigger": "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; "
    "CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()",
    "SET STATISTICS": "ALTER TABLE t ALTER b SET STATISTICS 50",
    "SET STORAGE": "ALTER TABLE t ALTER b SET STORAGE EXTERNAL",
    "storage parameters": "ALTER TABLE t SET (fillfactor = 70)",
    "SET DEFAULT": "ALTER TABLE t ALTER b SET DEFAULT 'd'",
    "a CHECK": "ALTER TABLE t ADD CHECK (a > 0)",
    "RENAME CONSTRAINT": "ALTER TABLE t RENAME CONSTRAINT t_pkey TO key",
    "row security": "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
    "another table is published": ("CREATE TABLE o (a int PRIMARY KEY)", "ALTER PUBLICATION pub ADD TABLE @.o"),
    "another is dropped from it": (
        "CREATE TABLE o (a int PRIMARY KEY)",
        "ALTER PUBLICATION pub ADD TABLE @.o",
        "ALTER PUBLICATION pub DROP TABLE @.o",
    ),
    "dropped and rolled back": f"BEGIN; {DROP_T}; ROLLBACK",
    "rewritten and rolled back": "BEGIN; ALTER TABLE t ADD u uuid DEFAULT gen_random_uuid(); ROLLBACK",
    "TRUNCATE": ("TRUNCATE t", "INSERT INTO t VALUES (1, 'n')"),
    "TRUNCATE and rows at once": "TRUNCATE t; INSERT INTO t VALUES (1, 'n')",
    "text to varchar of any length": "ALTER TABLE t ALTER b TYPE varchar",
    "replica identity FULL": "ALTER TABLE t REPLICA IDENTITY FULL",
    "catalogs are vacuumed": "VACUUM FREEZE pg_class, pg_publication_rel, pg_attribute",
    "a comment on the publication": "COMMENT ON PUBLICATION pub IS 'words'",
}


def _benign() -> Iterator[Case]:
    """Nothing that the lake holds changes, so nothing is read anew."""
    for name, steps in _BENIGN.items():
        several = (steps,) if isinstance(steps, str) else tuple(steps)
        yield Case(name, PLAIN, T, (*several, LAST), benign=True)
    yield Case("SET TABLE to the same list", SOLO, T, (_only("t"), LAST), benign=True)
    made = "CREATE TABLE t (a int PRIMARY KEY, v colour); INSERT INTO t VALUES (1, 'red')"
    colour = f"CREATE TYPE colour AS ENUM ('red'); {made}"
    yield Case(
        "ADD VALUE",
        PLAIN,
        colour,
        ("ALTER TYPE colour ADD VALUE 'blue'", "INSERT INTO t VALUES (2, 'blue')"),
        benign=True,
    )
    width = "CREATE TABLE t (a int PRIMARY KEY, v varchar(5), n numeric(8,2)); INSERT INTO t VALUES (1, 'red', 1.25)"
    wider = (
        "ALTER TABLE t ALTER v TYPE varchar(9), ALTER n TYPE numeric(12,2)",
        "INSERT INTO t VALUES (2, 'blue', 12345678.25)",
    )
    yield Case("wider without a rewrite", PLAIN, width, wider, benign=True)
    for name in ("GRANT", "ANALYZE", "VACUUM", "ADD COLUMN", "TRUNCATE", "TRUNCATE and rows at once"):
        steps = _BENIGN[name]
        several = (steps,) if isinstance(steps, str) else tuple(steps)
        yield Case(f"{name}, all tables", ALL, T, (*several, LAST), (), benign=True)
        yield Case(f"{name}, a schema", PLAIN, T, (*several, LAST), ("@",), benign=True)


def _benign_partitions() -> Iterator[Case]:
    scripts: dict[str, tuple[str, ...]] = {
        "a new leaf": (
            "CREATE TABLE n PARTITION OF r FOR VALUES FROM (200) TO (300)",
            "INSERT INTO r VALUES (201, 'n')",
        ),
        "a new leaf by the name of a leaf": (
            "CREATE TABLE n PARTITION OF r DEFAULT",
            "INSERT INTO n VALUES (201, 'n')",
        ),
        "a row moves": ("UPDATE r SET a = a + 149 WHERE a = 1",),
        "the root truncated": ("TRUNCATE r", "INSERT INTO r VALUES (3, 'z')"),
        "a leaf analyzed": ("ANALYZE r0", "VACUUM r0"),
        "a leaf granted": ("GRANT SELECT ON r0 TO PUBLIC", "ALTER TABLE r0 OWNER TO pg_read_all_data"),
        "a column added": ("ALTER TABLE r ADD c int DEFAULT 7",),
        "an index on the root": ("CREATE INDEX ON r (b)",),
    }
    for name, steps in scripts.items():
        yield Case(f"via root: {name}", ROOT, R, (*steps, LAST_R), ("r",), benign=True)
    yield Case("by leaf: a leaf truncated", PLAIN, R, ("TRUNCATE r0", LAST_R), ("r",), benign=True)
    yield Case("via root: a root's first leaf", ROOT, EMPTY_R, (ADD_R0, LAST_R), ("r",), benign=True)
