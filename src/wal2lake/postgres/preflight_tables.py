"""What is looked at of the publication and its tables before a pipeline starts: one function a check, as in preflight.

Rights are few findings however many tables lack them: one statement a schema grants them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from wal2lake.names import qualified
from wal2lake.postgres.catalog import PublishedTable
from wal2lake.postgres.findings import Finding, Probe, some, sql_name


def publication(probe: Probe) -> Iterator[Finding]:
    name = sql_name(probe.publication)
    if probe.locked is not None:
        text = f"The tables of publication {probe.publication} cannot be looked at now. {probe.locked}"
        yield Finding("publication", "error", text)
        return
    if probe.tables is None:
        text = f"There is no publication {probe.publication} in database {probe.connection.info.dbname}."
        cure = f"CREATE PUBLICATION {name} FOR TABLE …;  -- or FOR ALL TABLES, as superuser"
        yield Finding("publication", "error", text, cure, choice=True)
        return
    if not probe.tables:
        yield Finding("publication", "warning", f"Publication {probe.publication} has no tables.",
                      f"ALTER PUBLICATION {name} ADD TABLE …;", choice=True)  # fmt: skip
    sql = "SELECT pubinsert, pubupdate, pubdelete, pubtruncate FROM pg_publication WHERE pubname = %s"
    flags = probe.query(sql, probe.publication)[0]
    kinds = dict(zip(("insert", "update", "delete", "truncate"), flags, strict=True))
    missing = [kind for kind, published in kinds.items() if not published]
    if missing:
        text = f"Publication {probe.publication} leaves out {', '.join(missing)}: the lake will not see them."
        yield Finding("publication", "warning", text, f"ALTER PUBLICATION {name} SET (publish = '{', '.join(kinds)}');")
    elif probe.tables:
        count = len(probe.tables)
        yield Finding(
            "publication", "ok", f"Publication {probe.publication} has {count} table{'' if count == 1 else 's'}."
        )


def partitions(probe: Probe) -> Iterator[Finding]:
    """Leaf by leaf is what a publication does unless it is told otherwise, and seldom what is wanted of a lake."""
    found = probe.query(_LEAVES, probe.oids, probe.publication)
    if found:
        roots = [f"{qualified(*root)} ({count})" for *root, count in found]
        text = (
            f"Publication {probe.publication} publishes partitions in place of the tables that have them, each as a"
            f" table of its own in the lake: those of {some(roots)}."
        )
        cure = f"ALTER PUBLICATION {sql_name(probe.publication)} SET (publish_via_partition_root = true);"
        yield Finding("publish_via_partition_root", "warning", text, cure, choice=True)


_LEAVES = """
SELECT n.nspname::text, r.relname::text, count(*)
  FROM pg_class c JOIN pg_class r ON r.oid = pg_partition_root(c.oid) JOIN pg_namespace n ON n.oid = r.relnamespace
 WHERE c.oid = ANY (%s) AND c.relispartition
   AND NOT (SELECT pubviaroot FROM pg_publication WHERE pubname = %s)
 GROUP BY 1, 2 ORDER BY 1, 2
"""


def planned_code(probe: Probe) -> Iterator[Finding]:
    """The planner runs the constant parts of a table's index and statistics expressions, as whoever reads the table."""
    for (table,) in probe.query(_EXPRESSIONS_OF_USERS, probe.oids):
        text = (
            f"Indexes or statistics of {table} call functions that are not PostgreSQL's: their owner can have code run"
        )
        yield Finding("planned_code", "warning", f"{text} as the role {probe.role}, whenever the table is read.")


# Objects from OID 16384 on are made by users.
_EXPRESSIONS_OF_USERS = """
WITH expression(relation, class, object) AS (
    SELECT indrelid, 'pg_class'::regclass, indexrelid FROM pg_index
    UNION ALL SELECT stxrelid, 'pg_statistic_ext'::regclass, oid FROM pg_statistic_ext)
SELECT DISTINCT e.relation::regclass::text FROM expression e
  JOIN pg_depend d ON d.classid = e.class AND d.objid = e.object
 WHERE e.relation = ANY (%s) AND d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass) AND d.refobjid >= 16384
 ORDER BY 1
"""


def select(probe: Probe) -> Iterator[Finding]:
    """The snapshot reads the tables: USAGE on the schema, SELECT on the whole table, no row security."""
    rights = {oid: held for oid, *held in probe.query(_RIGHTS, probe.oids)}
    hidden, unread, filtered = ([t for t in probe.tables or () if rights[t.relation_id][i]] for i in range(3))
    role, growing = sql_name(probe.role), _growing_schemas(probe)
    for schema in dict.fromkeys(table.namespace for table in hidden):
        cure = f"GRANT USAGE ON SCHEMA {sql_name(schema)} TO {role};"
        yield Finding("select", "error", f"Role {probe.role} may not use schema {schema}.", cure)
    for schema, tables in _by_schema(unread):
        which = ", ".join(sql_name(table.namespace, table.name) for table in tables)
        if schema in growing:
            which = f"ALL TABLES IN SCHEMA {sql_name(schema)}"
        text = f"Role {probe.role} may not read {some(tables)}."
        yield Finding("select", "error", text, f"GRANT SELECT ON {which} TO {role};")
    if filtered:
        text = f"Role {probe.role} sees {some(filtered)} through row security, which replication does not know."
        yield Finding("select", "error", text, f"ALTER ROLE {role} BYPASSRLS;")
    if probe.tables and not (hidden or unread or filtered):
        yield Finding("select", "ok", f"Role {probe.role} may read every published table.")


_RIGHTS = """
SELECT oid::bigint, NOT has_schema_privilege(relnamespace, 'USAGE'), NOT has_table_privilege(oid, 'SELECT'),
       row_security_active(oid)
  FROM pg_class WHERE oid = ANY (%s)
"""


def default_privileges(probe: Probe) -> Iterator[Finding]:
    """A publication of all tables has tomorrow's as well, and whoever makes one seldom thinks of our role."""
    growing, role = _growing_schemas(probe), sql_name(probe.role)
    for schema, owner in probe.query(_NO_DEFAULTS, probe.oids):
        if schema in growing:
            text = f"New tables of {owner} in schema {schema} are published, and role {probe.role} may not read them."
            where = f"FOR ROLE {sql_name(owner)} IN SCHEMA {sql_name(schema)}"
            cure = f"ALTER DEFAULT PRIVILEGES {where} GRANT SELECT ON TABLES TO {role};"
            yield Finding("default_privileges", "warning", text, cure)


_NO_DEFAULTS = """
SELECT DISTINCT n.nspname::text, pg_get_userbyid(c.relowner)::text
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid = ANY (%s) AND NOT pg_has_role(c.relowner, 'USAGE')
   AND NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = 'pg_read_all_data' AND pg_has_role(r.oid, 'USAGE'))
   AND NOT EXISTS (SELECT FROM pg_default_acl d, aclexplode(d.defaclacl) a
                    WHERE d.defaclrole = c.relowner AND d.defaclobjtype = 'r' AND a.privilege_type = 'SELECT'
                      AND d.defaclnamespace IN (0, c.relnamespace)
                      AND CASE a.grantee WHEN 0 THEN true ELSE pg_has_role(a.grantee, 'USAGE') END)
 ORDER BY 1, 2
"""


def replica_identity(probe: Probe) -> Iterator[Finding]:
    """Without a replica identity PostgreSQL refuses UPDATE and DELETE on a table that publishes them."""
    without = 0
    for table in probe.tables or []:
        if any(column.key for column in table.columns):
            continue
        without += 1
        reason = "REPLICA IDENTITY NOTHING" if table.replica_identity == "n" else "no primary key"
        text = f"{table} has {reason}: only inserts replicate; its updates and deletes fail on the source."
        cure = f"ALTER TABLE {sql_name(table.namespace, table.name)} REPLICA IDENTITY FULL;  -- or ADD PRIMARY KEY (…)"
        yield Finding("replica_identity", "warning", text, cure, choice=True)
    if probe.tables and not without:
        yield Finding("replica_identity", "ok", "Every published table has a replica identity.")


def case_twins(probe: Probe) -> Iterator[Finding]:
    """Spark, most engines and some file systems do not tell ``T`` from ``t``."""
    tables = probe.tables or []
    twins = [_twins((str(table) for table in tables), "")]
    twins += [_twins((column.name for column in table.columns), f" in {table}") for table in tables]
    for found in filter(None, twins):
        text = f"By case alone differ {some(found)}: readers that ignore case, as Spark, take them for one."
        yield Finding("case", "warning", text)


def _twins(names: Iterable[str], where: str) -> list[str]:
    alike = defaultdict(list)
    for name in names:
        alike[name.lower()].append(name)
    return [f"{' and '.join(found)}{where}" for found in alike.values() if len(found) > 1]


def _growing_schemas(probe: Probe) -> set[str]:
    """The schemas whose new tables the publication has by itself."""
    schemas = {table.namespace for table in probe.tables or ()}
    if probe.query("SELECT 1 FROM pg_publication WHERE puballtables AND pubname = %s", probe.publication):
        return schemas
    if probe.connection.info.server_version < 150000:
        return set()
    return {schema for (schema,) in probe.query(_PUBLISHED_SCHEMAS, probe.publication)}


_PUBLISHED_SCHEMAS = """
SELECT n.nspname::text FROM pg_publication p JOIN pg_publication_namespace s ON s.pnpubid = p.oid
  JOIN pg_namespace n ON n.oid = s.pnnspid WHERE p.pubname = %s
"""


def _by_schema(tables: Iterable[PublishedTable]) -> Iterable[tuple[str, list[PublishedTable]]]:
    found = defaultdict(list)
    for table in tables:
        found[table.namespace].append(table)
    return found.items()
