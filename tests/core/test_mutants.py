"""The list of changes that no test can notice is of the code that is there."""

from __future__ import annotations

from tests.mutants.mutations import mutants


def test_what_cannot_be_noticed_is_still_there() -> None:
    assert next(mutants(1, "wire/framing")).file == "wal2lake/wire/framing.py"
