"""The plugin that docs/plugins.md shows is thirty lines, and does what the page says."""

from __future__ import annotations

import pytest

from tests.documents.shown import on_page, run
from wal2lake.decoding import decode
from wal2lake.decoding.plugin import OutputPlugin
from wal2lake.errors import ConfigError
from wal2lake.pgoutput.options import PgoutputOptions

PAGE = "docs/plugins.md"


def _blocks(*containing: str) -> list[str]:
    return [item.text for item in on_page(PAGE, "python") if any(word in item.text for word in containing)]


def _run(*containing: str) -> dict[str, object]:
    names: dict[str, object] = {}
    for item in on_page(PAGE, "python"):
        if any(word in item.text for word in containing):
            run(item, names)
    return names


@pytest.mark.documents
def test_the_plugin_and_its_test_run_as_they_are_shown() -> None:
    assert _run("class Counting", "assert lines")["lines"] == ["701 public.t I2 D1"]


def test_it_is_as_short_as_the_page_says() -> None:
    (block,) = _blocks("class Counting")
    assert len(block.splitlines()) <= 31


def test_it_refuses_what_it_does_not_know() -> None:
    counting = _run("class Counting")["Counting"]
    assert isinstance(counting, type) and issubclass(counting, OutputPlugin)
    with pytest.raises(ConfigError, match=r"only=schema\.table"):
        list(decode([], counting(), [("other", "1")], stream=PgoutputOptions(("p",))))


def test_what_a_program_imports_is_there() -> None:
    for block in _blocks("ThreadedLogicalStream("):
        exec(compile(block.partition("with ThreadedLogicalStream")[0], PAGE, "exec"), {})
