from __future__ import annotations

import pickle
from pathlib import Path

from wal2lake import errors
from wal2lake.errors import ProtocolError, Wal2LakeError


def test_an_error_says_where_and_how_to_mend_it() -> None:
    error = ProtocolError("The tuple is cut short.", hint="Read it again.", relation="a.b", offset=7, lsn=0x100000010)
    assert str(error) == "The tuple is cut short. [relation a.b, offset 7, LSN 1/10] Read it again."


def test_errors_cross_process_borders_whole() -> None:
    error = ProtocolError("Cut short.", hint="Again.", column="c", offset=7, lsn=9)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.offset, copy.lsn) == (ProtocolError, str(error), 7, 9)


def test_every_class_has_an_exit_code_of_its_own() -> None:
    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, Wal2LakeError)]
    codes = [c.exit_code for c in classes]
    assert len(classes) > 15
    assert len(codes) == len(set(codes))


def test_the_documentation_lists_every_exit_code() -> None:
    page = (Path(__file__).parents[2] / "docs" / "errors.md").read_text()
    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, Wal2LakeError)]
    missing = [c.__name__ for c in classes if f"| {c.exit_code} | `{c.__name__}` |" not in page]
    assert not missing
