"""What the catalog says of the types that users and extensions made: values, which travel and are noted, and no more.

An OID says of such a type nothing that would outlast the database, and the stream sends its name alone. So what a
column of it is made of is asked once, when its table is read, and kept with the table.

Source: PostgreSQL documentation, "pg_type", "pg_enum", "pg_range".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

FIRST_NORMAL_OID = 16_384  # from there on objects are made by users


class Part(NamedTuple):
    """What a type is made of: an attribute of a composite, by name; or, without one, the type below. ``dimensions``: of
    an array, as declared."""

    name: str
    type_oid: int
    typmod: int
    dimensions: int = 0


@dataclass(frozen=True, slots=True)
class UserType:
    """One type. ``kind``: enum, composite (``parts``: its attributes), domain, array, range (of its one part),
    multirange (of that range), an extension's own word (hstore, citext, vector, halfvec, geometry); else "".

    ``labels``: an enum's, in their order. ``output``: its output function, schema-qualified and quoted;
    ``sql_name``: the type itself, likewise.
    """

    oid: int
    kind: str
    name: str
    parts: tuple[Part, ...] = ()
    labels: tuple[str, ...] = ()
    output: str = ""
    sql_name: str = ""

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The reverse of ``dataclasses.asdict``, through JSON."""
        parts = tuple(Part(*part) for part in document["parts"])
        return cls(**{**document, "parts": parts, "labels": tuple(document["labels"])})

    def extends(self, before: UserType) -> bool:
        """Whether what was noted as ``before`` is the same, or a composite that has more attributes by now."""
        same = (self.oid, self.kind) == (before.oid, before.kind)
        grown = self.parts[: len(before.parts)] == before.parts and (
            self.kind == "composite" or len(self.parts) == len(before.parts)
        )
        return same and grown
