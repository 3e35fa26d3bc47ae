"""Hypothesis values for every wire type, taken from the field tables themselves, so no message is forgotten."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from hypothesis import strategies as st

from wal2lake.lsn import LSN
from wal2lake.pgoutput.tuples import (
    NULL,
    UNCHANGED,
    NewTupleType,
    OldTuple,
    OldTupleType,
    TupleColumn,
    TupleColumnType,
    TupleData,
)
from wal2lake.wire.fields import (
    Array,
    Boolean,
    Bytes,
    Choice,
    Fixed,
    Integer,
    Layout,
    NullableBytes,
    Optional,
    Position,
    Rest,
    Terminated,
    Text,
    WireType,
)

Strategy = st.SearchStrategy[Any]


@singledispatch
def values(wire: WireType[Any]) -> Strategy:
    """Values that the wire type can carry."""
    raise NotImplementedError(type(wire).__name__)


@values.register
def _(wire: Integer) -> Strategy:
    return st.integers(wire.low, wire.high)


@values.register
def _(wire: Position) -> Strategy:
    return st.integers(wire.low, 2**64 - 1).map(LSN)


@values.register
def _(wire: Boolean) -> Strategy:
    return st.booleans()


@values.register
def _(wire: Choice) -> Strategy:
    return st.sampled_from(wire.allowed)


@values.register
def _(wire: Text) -> Strategy:
    return st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)


@values.register
def _(wire: NullableBytes) -> Strategy:
    return st.none() | st.binary(max_size=20)


@values.register
def _(wire: Fixed) -> Strategy:
    return st.binary(min_size=wire.least, max_size=wire.least)


@values.register
def _(wire: Terminated) -> Strategy:  # type: ignore[type-arg]
    return st.lists(values(wire.item).filter(lambda item: _first_byte(wire, item)), max_size=4).map(tuple)


def _first_byte(wire: Terminated[Any], item: Any) -> int:
    out = bytearray()
    wire.item.write(out, item)
    return out[0]


@values.register(Bytes)
@values.register(Rest)
def _(wire: WireType[bytes]) -> Strategy:
    return st.binary(max_size=50)


@values.register
def _(wire: Array) -> Strategy:  # type: ignore[type-arg]
    return st.lists(values(wire.item), max_size=5).map(tuple)


@values.register
def _(wire: Optional) -> Strategy:  # type: ignore[type-arg]
    return st.none() | values(wire.item)


@values.register
def _(wire: TupleColumnType) -> Strategy:
    return st.sampled_from([NULL, UNCHANGED]) | st.builds(TupleColumn, st.sampled_from("tb"), st.binary(max_size=20))


@values.register
def _(wire: NewTupleType) -> Strategy:
    return values(Layout(TupleData))


@values.register
def _(wire: OldTupleType) -> Strategy:
    return st.none() | values(Layout(OldTuple))


@values.register
def _(wire: Layout) -> Strategy:  # type: ignore[type-arg]
    return st.builds(wire.cls, **{name: values(field) for name, field in wire.fields})
