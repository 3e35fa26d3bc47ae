from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wal2lake.errors import ConfigError
from wal2lake.lsn import LSN, LSN_MAX


@given(st.integers(0, LSN_MAX))
def test_text_form_round_trips(value: int) -> None:
    assert LSN.parse(str(LSN(value))) == value


def test_it_prints_as_postgresql_does() -> None:
    assert str(LSN(0x16B374D848)) == "16/B374D848"
    assert f"{LSN(1):>5}|{LSN(255):X}" == "  0/1|FF"


@pytest.mark.parametrize("text", ["", "16", "16/", "/1", "0x1/2", "16/B374D848F", "g/1", "-1/2", "1/2/3", "1_0/2"])
def test_what_is_no_lsn_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not an LSN"):
        LSN.parse(text)


@pytest.mark.parametrize("value", [-1, LSN_MAX + 1])
def test_it_fits_in_64_bits(value: int) -> None:
    with pytest.raises(ConfigError, match="between 0 and"):
        LSN(value)


@given(st.integers(0, LSN_MAX // 2), st.integers(0, LSN_MAX // 2))
def test_arithmetic_stays_where_it_belongs(position: int, length: int) -> None:
    """Position and bytes give a position, two positions give bytes."""
    further = LSN(position) + length
    assert type(further) is LSN and further == length + LSN(position)
    assert type(further - length) is LSN and further - length == position
    assert type(further - LSN(position)) is int and further - LSN(position) == length
    assert LSN(0) - LSN(position) == -position


def test_arithmetic_does_not_leave_the_wal() -> None:
    with pytest.raises(ConfigError):
        LSN(LSN_MAX) + 1
    with pytest.raises(ConfigError):
        LSN(0) - 1
