"""Every extra that users install is tried by itself."""

import tomllib

from bench.packages import TRIED
from tests.documents.shown import ROOT


def test_no_extra_is_forgotten() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(TRIED) == {"core", *extras} - {"bench", "dev"}
