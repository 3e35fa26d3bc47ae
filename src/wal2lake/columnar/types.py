"""What a column becomes, by THE type table (`type_table.py`) and the rules that were noted when its table was read.

Nothing else in the project decides it. A type without a row there, and a numeric that decimal128 cannot hold whole, is
a string with the type's output text (``known`` is False), so nothing is lost and nothing refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

import pyarrow as pa

from wal2lake.columnar.type_table import (
    BOUND_OF,
    BY_OID,
    DECIMAL_DIGITS,
    ELEMENT_OF,
    EXTENSIONS,
    FIRST_EDITION,
    LISTS_SINCE,
    MONEY_OID,
    NUMERIC_OID,
    OID_BY_NAME,
    RANGE_OF,
    SINCE,
    USER_TYPES_SINCE,
)
from wal2lake.names import qualified
from wal2lake.user_types import UserType

if TYPE_CHECKING:
    from wal2lake.pgoutput.messages import Relation, Type

NO_TYPMOD: Final = -1
_MOST_LEVELS: Final = 16  # of types within types; what is deeper, or wider, is text
_MOST_LEAVES: Final = 1000

_SPARK: Final[dict[pa.DataType, str]] = {
    pa.bool_(): "BOOLEAN",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
    pa.timestamp("us", tz="UTC"): "TIMESTAMP",
}


@dataclass(frozen=True, slots=True)
class TypeRules:
    """What decides, beside its type, what a column of one table becomes: noted when the table is read, and kept until
    somebody has it read again.

    ``edition``: what is in the type table since a later one does not count. ``dimensions``: of the columns that are
    declared with more than one. ``text``: columns that hold arrays of several shapes, and so land as output text.
    ``numeric``: what numerics become that decimal128 may not hold: "text", "double" or "decimal(p,s)". ``domains``: of
    columns of a domain, its OID and the typmod of its base type, which the stream does not say. ``user_types``: what
    the catalog said of the types of which the columns are made. ``money_scale``: digits behind the point of a money.
    ``policies``: of columns that have one of their own, for values that their types cannot hold; as configured now.
    """

    edition: int = FIRST_EDITION
    dimensions: tuple[tuple[str, int], ...] = ()
    text: tuple[str, ...] = ()
    numeric: str = "text"
    domains: tuple[tuple[str, int, int], ...] = ()
    user_types: tuple[UserType, ...] = ()
    money_scale: int = 2
    policies: tuple[tuple[str, Literal["error", "null"]], ...] = ()

    def column(self, name: str, type_oid: int, typmod: int, base_oid: int | None) -> ColumnType:
        """What the column ``name`` becomes; for the OIDs see ``column_type``."""
        if name in self.text:
            return output_text(type_oid, typmod)
        base_typmod = next((own for column, oid, own in self.domains if (column, oid) == (name, type_oid)), typmod)
        found = _Lookup(self).find(base_oid or type_oid, base_typmod, dict(self.dimensions).get(name, 0))
        return replace(found, oid=type_oid, typmod=typmod)


FIRST_RULES: Final = TypeRules()
_TEXT_ALONE: Final = frozenset(("any numeric",))  # codecs that know no binary form


@dataclass(frozen=True)
class ColumnType:
    """What a column of PostgreSQL type ``oid`` (with ``typmod``, −1: none) becomes.

    ``codec`` names the decoder; ``known`` is False when the column holds the type's output
    text for want of a better type. ``element``: of the lists that an array or a multirange becomes; ``parts``: of the
    struct that a composite becomes, and the bound of a range.
    """

    oid: int
    typmod: int
    codec: str
    arrow: pa.DataType
    known: bool
    element: ColumnType | None = None
    parts: tuple[ColumnType, ...] = ()

    @property
    def binary(self) -> bool:
        """Its binary form can be decoded; else output text is the only form."""
        inner = self.parts if self.element is None else (self.element,)
        return self.known and self.codec not in _TEXT_ALONE and all(kind.binary for kind in inner)

    @property
    def leaves(self) -> int:
        """How many columns a file has for it."""
        inner = self.parts if self.element is None else (self.element,)
        return sum(kind.leaves for kind in inner) or 1


def column_type(
    type_oid: int,
    typmod: int = NO_TYPMOD,
    base_oid: int | None = None,
    edition: int = FIRST_EDITION,
    dimensions: int = 1,
    numeric: str = "text",
) -> ColumnType:
    """Look the type up; ``base_oid`` is the base type of a domain, whose own typmod nobody sends. The rest as in
    TypeRules."""
    found = _Lookup(TypeRules(edition, numeric=numeric)).find(base_oid or type_oid, typmod, dimensions)
    return replace(found, oid=type_oid)


class _Lookup:
    """Finds types by ``rules``; each once, so that a type made of others many times costs no more than those."""

    def __init__(self, rules: TypeRules) -> None:
        self._rules = rules
        self._user_types = {kind.oid: kind for kind in rules.user_types} if rules.edition >= USER_TYPES_SINCE else {}
        self._found: dict[tuple[int, int, int], ColumnType] = {}
        self._levels = 0

    def find(self, oid: int, typmod: int, dimensions: int = 0) -> ColumnType:
        """What a value of the type becomes; ``dimensions``: of an array."""
        wanted = oid, typmod, dimensions
        if wanted not in self._found:
            self._levels += 1
            deep = self._levels > _MOST_LEVELS
            found = None if deep else (self._built_in(*wanted) or self._of_users(*wanted))
            self._levels -= 1
            self._found[wanted] = output_text(oid, typmod) if found is None or found.leaves > _MOST_LEAVES else found
        return self._found[wanted]

    def _built_in(self, oid: int, typmod: int, dimensions: int) -> ColumnType | None:
        rules = self._rules
        if oid == NUMERIC_OID:
            return _numeric(oid, typmod, rules.numeric)
        if rules.edition < SINCE.get(oid, FIRST_EDITION):
            return None
        if oid in BY_OID:
            return ColumnType(oid, typmod, *BY_OID[oid], known=True)
        if oid in ELEMENT_OF and rules.edition >= LISTS_SINCE:
            return self._array(oid, typmod, ELEMENT_OF[oid], dimensions)
        if rules.edition < USER_TYPES_SINCE:
            return None
        if oid == MONEY_OID:
            return ColumnType(oid, typmod, "money", pa.decimal128(19, rules.money_scale), known=True)
        if oid in BOUND_OF:
            return self._range(oid, BOUND_OF[oid])
        return self._multirange(oid, RANGE_OF[oid]) if oid in RANGE_OF else None

    def _of_users(self, oid: int, typmod: int, dimensions: int) -> ColumnType | None:
        kind = self._user_types.get(oid)
        if kind is None:
            return None
        if kind.kind in EXTENSIONS:
            return ColumnType(oid, typmod, *EXTENSIONS[kind.kind], known=True)
        if kind.kind == "composite":
            return self._composite(kind)
        if not kind.parts:
            return None
        part = kind.parts[0]
        if kind.kind == "domain":
            return self.find(part.type_oid, part.typmod, dimensions)
        if kind.kind == "array":
            return self._array(oid, typmod, part.type_oid, dimensions)
        if kind.kind == "range":
            return self._range(oid, part.type_oid)
        return self._multirange(oid, part.type_oid) if kind.kind == "multirange" else None

    def _array(self, oid: int, typmod: int, element_oid: int, dimensions: int) -> ColumnType:
        element = replace(self.find(element_oid, typmod), oid=element_oid)
        lists = element.arrow
        for _ in range(max(dimensions, 1)):
            lists = pa.list_(lists)
        return ColumnType(oid, typmod, "array", lists, known=True, element=element)

    def _range(self, oid: int, bound_oid: int) -> ColumnType:
        """A bound that is NULL is none; that of an empty range are NULL as well."""
        bound = self.find(bound_oid, NO_TYPMOD)
        flags = [(name, pa.bool_()) for name in ("lower_inc", "upper_inc", "empty")]
        arrow = pa.struct([("lower", bound.arrow), ("upper", bound.arrow), *flags])
        return ColumnType(oid, NO_TYPMOD, "range", arrow, known=True, parts=(bound,))

    def _multirange(self, oid: int, range_oid: int) -> ColumnType:
        element = self.find(range_oid, NO_TYPMOD)
        return ColumnType(oid, NO_TYPMOD, "multirange", pa.list_(element.arrow), known=True, element=element)

    def _composite(self, kind: UserType) -> ColumnType | None:
        """None where a struct cannot have its attributes: without any, or by names that differ by case alone."""
        if not kind.parts or len({part.name.lower() for part in kind.parts}) < len(kind.parts):
            return None
        parts = tuple(replace(self.find(*part[1:]), oid=part.type_oid) for part in kind.parts)
        fields = [(part.name, found.arrow) for part, found in zip(kind.parts, parts, strict=True)]
        return ColumnType(kind.oid, NO_TYPMOD, "composite", pa.struct(fields), known=True, parts=parts)


def _numeric(oid: int, typmod: int, policy: str) -> ColumnType | None:
    arrow = _decimal(typmod)
    if arrow is not None:
        return ColumnType(oid, typmod, "numeric", arrow, known=True)
    return None if policy == "text" else ColumnType(oid, typmod, "any numeric", numeric_type(policy), known=True)


def numeric_type(policy: str) -> pa.DataType:
    """What numerics without a precision become; raises ValueError for what is no policy."""
    if policy == "double":
        return pa.float64()
    named = re.fullmatch(r"decimal\((\d{1,2}),\s*(\d{1,2})\)", policy)
    if named is None or not 0 < int(named[1]) <= DECIMAL_DIGITS or int(named[2]) > int(named[1]):
        raise ValueError(policy)
    return pa.decimal128(int(named[1]), int(named[2]))


def output_text(type_oid: int, typmod: int = NO_TYPMOD) -> ColumnType:
    """The column as a string that holds what the type's output function says."""
    return ColumnType(type_oid, typmod, "output", pa.string(), known=False)


def _decimal(typmod: int) -> pa.DataType | None:
    """numeric(p, s) as decimal128, if it fits. Source: src/backend/utils/adt/numeric.c, make_numeric_typmod."""
    precision = (typmod - 4) >> 16 & 0xFFFF
    scale = ((typmod - 4 & 0x7FF) ^ 1024) - 1024  # 11 bits, signed since PostgreSQL 15
    fits = 0 < precision <= DECIMAL_DIGITS and 0 <= scale <= precision  # without a typmod it is beyond all digits
    return pa.decimal128(precision, scale) if fits else None


def spark_ddl(arrow: pa.DataType) -> str:
    """The Spark SQL type that Spark's own Arrow conversion maps to ``arrow``; KeyError for a type we never make."""
    if pa.types.is_decimal128(arrow):
        return f"DECIMAL({arrow.precision},{arrow.scale})"
    if pa.types.is_list(arrow):
        return f"ARRAY<{spark_ddl(arrow.value_type)}>"
    if pa.types.is_struct(arrow):
        return f"STRUCT<{', '.join(f'{_spark_name(field.name)}: {spark_ddl(field.type)}' for field in arrow)}>"
    if pa.types.is_map(arrow):
        return f"MAP<{spark_ddl(arrow.key_type)}, {spark_ddl(arrow.item_type)}>"
    return _SPARK[arrow]


def _spark_name(name: str) -> str:
    plain = re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name)
    return name if plain else f"`{name.replace('`', '``')}`"


@dataclass(frozen=True)
class TableColumn:
    """``key``: part of the replica identity (under REPLICA IDENTITY FULL every column is). ``unrepresentable``: its own
    policy for values that its type cannot hold; None: the table's."""

    name: str
    type: ColumnType
    key: bool
    unrepresentable: Literal["error", "null", "text"] | None = None


@dataclass(frozen=True)
class TableSchema:
    """One version of a published table's shape.

    ``replica_identity`` is 'd', 'n', 'f' or 'i' (pg_class.relreplident).
    """

    relation_id: int
    namespace: str
    name: str
    columns: tuple[TableColumn, ...]
    replica_identity: str

    @classmethod
    def from_relation(
        cls,
        relation: Relation,
        types: Mapping[int, Type] | None = None,
        text_columns: Collection[str] = (),
        rules: TypeRules = FIRST_RULES,
    ) -> TableSchema:
        """Build from the stream's Relation message and the Type messages before it, by OID.

        ``text_columns`` (``schema.table.column``) land as output text whatever their type.
        """
        announced = types or {}
        described = (
            (c.name, c.type_oid, c.typmod, _base_oid(c.type_oid, announced), bool(c.flags & 1))
            for c in relation.columns
        )
        return cls.build(
            relation.relation_id,
            relation.namespace,
            relation.name,
            described,
            relation.replica_identity,
            text_columns,
            rules,
        )

    @classmethod
    def build(
        cls,
        relation_id: int,
        namespace: str,
        name: str,
        columns: Iterable[tuple[str, int, int, int | None, bool]],
        replica_identity: str = "d",
        text_columns: Collection[str] = (),
        rules: TypeRules = FIRST_RULES,
    ) -> TableSchema:
        """Build from plain values, as the catalog has them.

        ``columns`` gives (name, type OID, typmod, base type OID or None, key) per column.
        """
        made = tuple(
            TableColumn(
                column,
                output_text(oid, typmod)
                if qualified(namespace, name, column) in text_columns
                else rules.column(column, oid, typmod, base_oid),
                key,
                dict(rules.policies).get(column),
            )
            for column, oid, typmod, base_oid, key in columns
        )
        return cls(relation_id, namespace, name, made, replica_identity)

    @property
    def qualified_name(self) -> str:
        """``schema.table``, as errors and settings name it."""
        return qualified(self.namespace, self.name)

    @cached_property
    def digest(self) -> str:
        """16 hex digits that change exactly when the columns' names, order, types or keys do."""
        content = [(c.name, c.type.oid, c.type.typmod, str(c.type.arrow), c.key) for c in self.columns]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """One nullable field per column, in the table's order."""
        return pa.schema([pa.field(column.name, column.type.arrow) for column in self.columns])

    @cached_property
    def spark_ddl(self) -> str:
        """The columns as Spark DDL: ``` `id` BIGINT, `note` STRING ```."""
        return ", ".join(f"`{c.name.replace('`', '``')}` {spark_ddl(c.type.arrow)}" for c in self.columns)


def _base_oid(type_oid: int, types: Mapping[int, Type]) -> int | None:
    """A domain's Type message names its base type; only a built-in one tells us more than its text."""
    announced = types.get(type_oid)
    if announced is None or announced.namespace not in ("", "pg_catalog"):  # pg_catalog travels as ""
        return None
    return OID_BY_NAME.get(announced.name)
