"""The reference is what the code says, and has all that there is."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.documents.documented import kinds
from tests.documents.reference import ROOT, files
from tests.documents.settings import sections, settings, template_values


def test_what_is_written_from_the_code_is_up_to_date() -> None:
    there = {path: (ROOT / path).read_text() if (ROOT / path).exists() else "" for path in files()}
    assert there == files(), "Run python -m tests.documents.reference"
    assert {str(path.relative_to(ROOT)) for path in (ROOT / "docs/reference").iterdir()} <= set(files())


@pytest.mark.parametrize("found", kinds(), ids=lambda found: found.kind)
def test_all_that_there_is_is_documented_and_nothing_else(found: object) -> None:
    assert found.existing  # type: ignore[attr-defined]
    assert found.difference == []  # type: ignore[attr-defined]


def test_a_setting_is_explained_where_init_writes_it_and_has_its_default_there() -> None:
    written = template_values()
    assert written.pop("spark")
    assert {name: set(values) for name, values in written.items()} == {
        name: {setting.key for setting in settings() if setting.section == name} for name in sections()
    }
    for setting in settings():
        value, default = written[setting.section][setting.key], getattr(sections()[setting.section](), setting.key)
        default = list(default) if isinstance(default, tuple) else default
        assert value in (default, f"@{setting.key}@", f"@{setting.section}@"), setting
        assert setting.meaning and all(word in setting.meaning for word in setting.values), setting


@pytest.mark.skipif(shutil.which("groff") is None, reason="there is no groff")
def test_the_man_page_is_free_of_warnings() -> None:
    command = ["groff", "-man", "-Tutf8", "-ww", "-rCHECKSTYLE=3", str(ROOT / "share/man/man1/wal2lake.1")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
