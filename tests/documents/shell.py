"""What a user types, word for word, in one bash that keeps its variables; what stands for their server is ours."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from tests.documents.shown import Shown, on_page, ran, unrun
from wal2lake.testing.embedded import EmbeddedPostgres

_numbers = itertools.count()


class Shell:
    """A bash in ``folder``, with the command wal2lake and the client programs of ``server`` on its PATH."""

    def __init__(
        self, folder: Path, server: EmbeddedPostgres | None = None, *, within: Iterable[str] = (), **variables: str
    ) -> None:
        self.folder = folder
        path = [str(Path(sys.executable).parent), *([str(server.client_dir)] if server else []), os.environ["PATH"]]
        self._bash = subprocess.Popen(
            [*within, "bash"], cwd=folder, env=os.environ | {"PATH": os.pathsep.join(path), **variables}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._jobs: dict[str, str] = {}

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *failure: object) -> None:
        assert self._bash.stdin is not None
        for job in self._jobs.values():
            self._bash.stdin.write(f"kill -TERM {job}; wait {job}\n")
        self._bash.communicate(timeout=120)

    def type(self, command: str, code: int = 0) -> str:
        """Run it; return what it says, and fail unless it ends with ``code``."""
        assert self._bash.stdin is not None and self._bash.stdout is not None
        mark = f"ended-{os.getpid()}-{next(_numbers)}"
        self._bash.stdin.write(f"{{ {command}\n}} </dev/null\nprintf '\\n{mark} %s\\n' $?\n")
        self._bash.stdin.flush()
        said = []
        for line in self._bash.stdout:
            if line.startswith(mark):
                assert line.split()[1] == str(code), f"{command} ended with {line.split()[1]}:\n{''.join(said)}"
                return "".join(said)
            said.append(line)
        raise AssertionError(f"{command} ended the shell:\n{''.join(said)}")

    def begin(self, command: str) -> None:
        """Let it run beside what follows, until ``end``; what it says goes to the file ``said``."""
        self._jobs[command] = self.type(f"{command} >said 2>&1 & echo $!").strip()

    def said(self) -> str:
        """So far; the file is made by the command's own shell."""
        file = self.folder / "said"
        return file.read_text() if file.exists() else ""

    def end(self, command: str, code: int = 0) -> None:
        """SIGTERM, which is as good as Ctrl-C, and a clean end."""
        job = self._jobs.pop(command)
        done = self.type(f"kill -TERM {job}; wait {job}; echo ended with $?")
        assert f"ended with {code}" in done, done + self.said()


def libpq(server: EmbeddedPostgres, database: str = "postgres") -> dict[str, str]:
    """The PG* variables of ``server``."""
    host = str(conninfo_to_dict(server.dsn)["host"])
    return {"PGHOST": host, "PGPORT": str(server.port), "PGUSER": "postgres", "PGDATABASE": database}


def to_run(page: str, *languages: str) -> list[Shown]:
    """What of a page is not listed as unrun."""
    listed = unrun()
    return [item for item in on_page(page, *languages) if not any(entry.means(item) for entry in listed)]


def follow(
    items: Iterable[Shown],
    shell: Shell,
    *,
    ours: Mapping[str, str] | None = None,
    special: Mapping[str, Callable[[Shown, str], object]] | None = None,
    otherwise: Mapping[str, Callable[[str], object]] | None = None,
) -> None:
    """Do what a page shows, in its order.

    ``ours``: words of a page, and what stands for them here. ``special``: what is done with a command that begins so,
    with the words exchanged. ``otherwise``: how a block of another language is run.
    """
    for item in items:
        text = item.text
        for theirs, here in (ours or {}).items():
            text = text.replace(theirs, here)
        handler = next((act for begins, act in (special or {}).items() if item.text.startswith(begins)), None)
        if handler is not None:
            handler(item, text)
        elif item.language == "sh":
            shell.type(text)
        else:
            assert otherwise is not None, item
            otherwise[item.language](text)
        ran(item)


def streaming(log: Path) -> bool:
    """Whether the pipeline says so of all its tables."""
    status = log / "status/pipeline.json"
    tables = json.loads(status.read_text())["tables"].values() if status.exists() else []
    return bool(tables) and all(table["state"] == "streaming" for table in tables)
