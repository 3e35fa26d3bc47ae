"""What changes behind the stream's back: a few of the scripts of `python -m bench silent`, which has them all."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.silent import judge
from bench.silent_cases import Case, cases
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.server

CHOSEN = {
    "one batch": (
        "dropped, insert, added",
        "schema out, insert, back, silence",
        "a row filter for a while",
        "remade, silence",
        "rewritten by uuid, dropped",
        "names swapped and back",
        "another column of the name for a while",
        "renamed, insert, back",
        "two swapped and back",
        "cidr to inet",
        "enum renamed and back",
        "an attribute is added",
        "VACUUM FULL of a listed table",
        "another is dropped from it",
        "dropped and rolled back",
        "unlogged, insert, logged",
        "TRUNCATE and rows at once, all tables",
    ),
    "stopped meanwhile": (
        "detached, insert, attached",
        "a leaf truncated",
        "a leaf made, filled, truncated",
        "a leaf's own identity",
        "a leaf's is all columns",
        "a table made, filled and attached at once",
        "a root without leaves, a uuid, dropped",
        "via root: a new leaf",
        "via root: the root truncated",
    ),
    "a batch per step": ("a constant, CLUSTER, dropped", "renamed, delete, back", "REINDEX", "TRUNCATE, a schema"),
}


@pytest.mark.parametrize("way", CHOSEN)
def test_nothing_is_lost_unheard_nor_read_anew_for_nothing(server: EmbeddedPostgres, tmp_path: Path, way: str) -> None:
    by_name: dict[str, Case] = {case.name: case for case in cases()}
    outcomes = list(judge(server, tmp_path, [by_name[name] for name in CHOSEN[way]], [way]))
    assert len(outcomes) == len(CHOSEN[way])
    assert [(outcome.case.name, outcome.end, outcome.words) for outcome in outcomes if not outcome.good] == []


def test_no_two_scripts_share_a_name() -> None:
    assert len({case.name for case in cases()}) == len(cases())
