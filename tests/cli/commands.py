"""Every command of the command line as data: how it is called, and what it can be kept waiting for.

What holds for all commands is tested over this table; a command that is not in it fails the test below the table.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

from typer.main import get_command

from wal2lake.cli.main import app

SERVER, JAVA, IMPORT, FIFO = "server", "java", "import", "fifo"
_CHANGE_LOG = "wal2lake.changelog.log"


class Called(NamedTuple):
    """``words`` follow the command's own; ``waits_for`` may be made to last for ever, at ``module`` if it is an import.

    ``patient``: a signal asks it to end, and it does so when it can, with ``code`` after the server has gone meanwhile
    (4: it was never reached). ``extra``: more than the core is needed. ``log``: so is a change log.
    """

    words: str = ""
    waits_for: str = SERVER
    module: str = ""
    patient: bool = False
    code: int = 130
    extra: bool = False
    log: bool = False


_LOG = Called(waits_for=IMPORT, module=_CHANGE_LOG, extra=True)
COMMANDS = {
    "init": Called("--force made.toml", FIFO),
    "check": Called(),
    "drop": Called("--yes"),
    "run": Called(patient=True, code=0, extra=True),
    "capture": Called(patient=True, code=0, extra=True),
    "pipeline": Called(waits_for=JAVA, patient=True, code=0, extra=True, log=True),
    "metrics": Called("--metrics-port 1", IMPORT, "wal2lake.monitor.endpoint", extra=True),
    "resync": _LOG._replace(words="--all"),
    "demo": Called("--folder demo", IMPORT, "wal2lake.demo.shop", extra=True),
    "status": Called(extra=True),
    "events": Called("", IMPORT, "wal2lake.changelog.events"),
    "ui": Called("--port 0", code=0, extra=True),
    "verify": Called(extra=True, log=True),
    "tables": _LOG,
    "log list": _LOG,
    "log dump": _LOG,
    "log decode": _LOG._replace(words="--plugin test_decoding"),
    "log verify": _LOG,
    "log consumers": _LOG,
    "log forget": _LOG._replace(words="somebody"),
    "recv": Called("mine --publication p", patient=True, code=4),
    "basebackup": Called("copy"),
    "receivewal": Called("wal", patient=True, code=4),
    "identify": Called(),
    "slots list": Called(),
    "slots create": Called("mine"),
    "slots read": Called("mine"),
    "slots alter": Called("mine --failover"),
    "slots drop": Called("mine"),
    "slots advance": Called("mine 0/1"),
    "slots copy": Called("mine mine_too"),
}


def _leaves(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield " ".join(words), command
    for name, below in getattr(command, "commands", {}).items():
        yield from _leaves(below, (*words, name))


LEAVES = dict(_leaves(get_command(app)))
CONFIGURED = [name for name, leaf in LEAVES.items() if "settings" in {parameter.name for parameter in leaf.params}]


def words(name: str, dsn: str | None = None) -> list[str]:
    """The command line of ``name``, with the server at ``dsn`` if it takes one."""
    chosen = [*name.split(), *COMMANDS[name].words.split()]
    takes_dsn = "dsn" in {parameter.name for parameter in LEAVES[name].params} and name != "init"
    return [*chosen, "--dsn", dsn] if dsn is not None and takes_dsn else chosen


# -- calling one in a process that has its modules already

_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload(["tests.cli.commands", "wal2lake.spark.pipeline", "wal2lake.run.verifying"])


def start(arguments: list[str], folder: Path, environment: dict[str, str], stuck_at: str = "") -> BaseProcess:
    """Begin ``wal2lake`` with ``arguments`` in ``folder``; what it says goes to ``out`` and ``err`` there.

    ``stuck_at``: a module whose import never ends; the file ``stuck`` is there when it has begun.
    """
    process = _FORKING.Process(target=_call, args=(arguments, folder, environment, stuck_at))
    process.start()
    return process


class _Stuck:
    def __init__(self, module: str) -> None:
        self._module = module

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == self._module:
            Path("stuck").touch()
            while True:
                os.read(_nothing_comes(), 1)


def _nothing_comes() -> int:
    return os.pipe()[0]


def _call(arguments: list[str], folder: Path, environment: dict[str, str], stuck_at: str) -> None:
    from wal2lake.__main__ import main

    os.chdir(folder)
    os.environ.update(environment)
    for descriptor, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    if stuck_at:
        sys.modules.pop(stuck_at, None)
        sys.meta_path.insert(0, _Stuck(stuck_at))
    sys.argv = ["wal2lake", *arguments]
    main()
