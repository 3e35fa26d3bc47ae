"""What the pages show to be run: each command of a shell block, and each block of anything else, with its place.

A test that runs something of a page says so by ``ran``; `python -m bench docs` runs those tests and counts.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import textwrap
import threading
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wal2lake.testing.embedded import EmbeddedPostgres

ROOT = Path(__file__).parents[2]
RECORD = "WAL2LAKE_DOCUMENTS_RAN"  # a file that ``ran`` adds a line to
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.S | re.M)
_OUTPUT = {"", "text", "hex"}  # what is printed, not run


@dataclass(frozen=True)
class Shown:
    """``page``: its path in the repository; ``line``: where its block begins; ``text``: a command, or a whole block."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text.splitlines()[0]}"


def pages() -> list[Path]:
    """README and docs/; but docs/protocol has bytes, which tests/vectors holds to what was sent."""
    docs = [page for page in sorted((ROOT / "docs").rglob("*.md")) if "protocol" not in page.parts]
    return [ROOT / "README.md", *docs]


def shown() -> list[Shown]:
    """Everything, in the pages' order."""
    return [item for page in pages() for item in on_page(str(page.relative_to(ROOT)))]


def on_page(page: str, *languages: str) -> list[Shown]:
    """What one page shows, of these languages or of all."""
    return [item for item in _on_page(page) if not languages or item.language in languages]


def _on_page(page: str) -> Iterator[Shown]:
    text = (ROOT / page).read_text()
    for found in _FENCE.finditer(text):
        indent, language, block = found.groups()
        line = text[: found.start()].count("\n") + 1
        block = textwrap.dedent(block) if indent else block
        if language == "sh":
            yield from (Shown(page, line, language, command) for command in _commands(block))
        elif language not in _OUTPUT:
            yield Shown(page, line, language, block)


def _commands(block: str) -> Iterator[str]:
    """One for each line, without its comment; a line that ends with a backslash goes on."""
    for line in block.replace("\\\n", " ").splitlines():
        command = re.split(r"(?:^|\s{2,})#", line)[0].strip()
        if command:
            yield command


def ran(item: Shown) -> None:
    """Say that ``item`` was run, and did what its page says."""
    if (record := os.environ.get(RECORD)) is not None:
        with open(record, "a") as file:
            file.write(json.dumps([item.page, item.text]) + "\n")


class _Enough(KeyboardInterrupt):
    """A block that goes on for ever has done what it was to do."""


def run(item: Shown, names: dict[str, Any]) -> None:
    """Run a block of Python with ``names``, which then has what it has set."""
    exec(compile(item.text, item.page, "exec"), names)
    ran(item)


def run_until(done: Callable[[], object], item: Shown, names: dict[str, Any]) -> None:
    """Run a block of Python that goes on for ever, and end it as Ctrl-C does, when ``done`` is true."""

    def enough(*_: object) -> None:
        raise _Enough

    def watch() -> None:
        while not ended.wait(0.1):
            if done():
                os.kill(os.getpid(), signal.SIGALRM)
                return

    ended, watcher = threading.Event(), threading.Thread(target=watch)
    before = signal.signal(signal.SIGALRM, enough)
    watcher.start()
    try:
        with contextlib.suppress(_Enough):
            exec(compile(item.text, item.page, "exec"), names)
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        ended.set()
        watcher.join()
        signal.signal(signal.SIGALRM, before)
    ran(item)


def acknowledged(server: EmbeddedPostgres, slot: str) -> Callable[[], bool]:
    """Whether the slot has been told that all is durable that is in the WAL now."""
    upto = server.psql("SELECT pg_current_wal_flush_lsn()")
    told = f"SELECT confirmed_flush_lsn >= '{upto}' FROM pg_replication_slots WHERE slot_name = '{slot}'"
    return lambda: server.psql(told) == "t"


def recorded(record: Path) -> set[tuple[str, str]]:
    """Page and text of everything that was run."""
    lines = record.read_text().splitlines() if record.exists() else []
    return {(page, text) for page, text in map(json.loads, lines)}


@dataclass(frozen=True)
class Unrun:
    """What of a page no test runs, by how it begins, and why."""

    page: str
    begins: str
    why: str

    def means(self, item: Shown) -> bool:
        return item.page == self.page and item.text.startswith(self.begins)


def unrun() -> list[Unrun]:
    """All that is listed in unrun.toml."""
    document: dict[str, Any] = tomllib.loads((Path(__file__).parent / "unrun.toml").read_text())
    return [
        Unrun(page, begins, why)
        for why, places in document.items()
        for page, beginnings in places.items()
        for begins in beginnings
    ]
