"""The documentation is what the codec and the vectors say, and its examples are bytes that were really sent."""

from __future__ import annotations

import re

import pytest

from tests.vectors import captures
from tests.vectors.annotate import bytes_of
from tests.vectors.meanings import MEANINGS
from tests.vectors.pages import FOLDER, pages

PAGES = sorted(FOLDER.rglob("*.md"))
BLOCK = re.compile(r"```hex\n(.*?)\n```", re.DOTALL)


def sent() -> set[bytes]:
    """Every frame, every CopyData's payload and every message of pgoutput among the vectors."""
    frames = [frame for _, capture in captures("frames") for _, frame in capture.frames]
    streams = [capture for _, capture in captures("stream")]
    payloads = [payload for capture in streams for payload in (*capture.payloads, *capture.pgoutput)]
    return {*frames, *payloads, *(frame[5:] for frame in frames if frame[:1] == b"d")}


def test_the_pages_are_up_to_date() -> None:
    assert {str(path.relative_to(FOLDER)): path.read_text() for path in PAGES} == pages(), (
        "Run python -m tests.vectors.pages"
    )


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_example_was_sent(path: object) -> None:
    text = path.read_text()  # type: ignore[attr-defined]
    assert {bytes_of(block) for block in BLOCK.findall(text)} <= sent()


def test_every_link_leads_somewhere() -> None:
    index = (FOLDER / "README.md").read_text()
    links = re.findall(r"\]\(([^)]+)\)", index)
    assert {FOLDER / link for link in links} | {FOLDER / "README.md"} == set(PAGES)


def test_nothing_is_explained_that_is_not_there() -> None:
    text = "\n".join(pages().values())
    assert [name for name, meaning in MEANINGS.items() if meaning not in text] == []
