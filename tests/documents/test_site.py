"""The site has every page, no link leads nowhere, and nothing of it is fetched from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
_CODE = re.compile(r"^```.*?^```|^    .*?$|`[^`\n]+`", re.S | re.M)
_LINK = re.compile(r"\[(?:[^\]]*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.S | re.M)
_FETCHED = re.compile(r"""<(?:script|link|img|iframe)[^>]+(?:src|href)=["']?((?:https?:)?//[^"'> ]+)""")


def _listed(nav: object) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, list):
        for below in nav:
            yield from _listed(below)
    else:
        assert isinstance(nav, dict)
        for below in nav.values():
            yield from _listed(below)


def test_every_page_is_listed_once() -> None:
    """A new page in docs/ goes into the navigation of mkdocs.yml, where readers look for it."""
    listed = list(_listed(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in _LINK.findall(_CODE.sub("", page.read_text())):
        path, _, anchor = link.partition("#")
        if ":" in path:
            assert path.startswith("https://"), link
            continue
        target = page if not path else page.parent / path
        assert target.exists(), f"{page}: {link}"
        assert not anchor or anchor in _anchors(target), f"{page}: {link}"
        inside = DOCS in target.resolve().parents or DOCS not in page.parents
        assert inside, f"{page}: {link} is not part of the site"


def test_what_an_index_shows_is_the_readme_without_dead_links() -> None:
    spec = spec_from_file_location("describe", ROOT / "scripts" / "describe.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    metadata: dict[str, Any] = {}
    module.CustomMetadataHook(str(ROOT), {}).update(metadata)
    text, readme = metadata["readme"]["text"], (ROOT / "README.md").read_text()
    links = [link for link in _LINK.findall(readme) if not link.startswith(("https://", "#"))]
    assert len(links) > 20 and all(link in text for link in links)
    assert [link for link in _LINK.findall(text) if not link.startswith(("https://", "#"))] == []
    assert _FENCE.findall(text) == _FENCE.findall(readme), "what is shown to be typed stays as it is"


def test_the_site_builds_without_a_warning_and_needs_no_network(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    built = list(tmp_path.rglob("*.html"))
    assert len(built) > len(list(DOCS.rglob("*.md")))
    assert {found for page in built for found in _FETCHED.findall(page.read_text())} == set()
