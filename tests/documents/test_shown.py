"""What the pages show and no test runs is listed with its reason, is little, and is still there."""

from __future__ import annotations

from bench.docs import LEAST_RUN
from tests.documents.shown import on_page, shown, unrun


def test_what_is_not_run_is_shown_and_little() -> None:
    items, listed = shown(), unrun()
    assert [entry for entry in listed if not any(map(entry.means, items))] == []
    left = [item for item in items if any(entry.means(item) for entry in listed)]
    assert len(items) > 100
    assert 1 - len(left) / len(items) >= LEAST_RUN


def test_commands_are_told_from_their_comments_and_places() -> None:
    lines = [item.text for item in on_page("docs/moving.md", "sh")]
    assert "wal2lake resync --forked" in lines  # in a list, so indented
    assert "sed -i 's|^path = \"wal2lake/|path = \"elsewhere/|' wal2lake.toml" in lines
    assert "wal2lake log consumers" in [item.text for item in on_page("docs/changelog.md", "sh")]  # a comment behind it
