"""Ctrl-C and SIGTERM, to every command, while it waits for what never comes: answered at once, without a traceback."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.changelog.conftest import IDENTITY
from tests.cli.commands import COMMANDS, FIFO, JAVA, LEAVES, SERVER, start, words
from tests.spark_source.test_java import make_java
from tests.waiting import eventually
from wal2lake.changelog.log import ChangeLog
from wal2lake.signals import ENDING

ANSWERS = ("Ending … Ctrl-C again ends at once.", "Ctrl-C again ends at once; nothing is lost either way.")
# Spark's launcher is told to start this again, as the JVM, which then never answers.
NO_JAVA = """#!/bin/sh
case "$*" in
    *org.apache.spark.launcher.Main*) printf '\\0\\n%s\\0' "$0" ;;
    *) echo $$ > {folder}/pid; touch {folder}/stuck; exec sleep 600 ;;
esac
"""
CASES = [(name, ENDING[number % len(ENDING)]) for number, name in enumerate(COMMANDS)]
PATIENT = [name for name, called in COMMANDS.items() if called.patient and called.waits_for is SERVER]


def test_the_table_has_every_command() -> None:
    assert COMMANDS.keys() == LEAVES.keys()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A server that takes a connection and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)
        yield listening


class Waiting:
    """A command that waits for what does not come."""

    def __init__(self, name: str, folder: Path, listener: socket.socket) -> None:
        called = COMMANDS[name]
        java = make_java(folder / "java", "17.0.1")
        (java / "bin" / "java").write_text(NO_JAVA.format(folder=folder))
        dsn = f"host=127.0.0.1 port={listener.getsockname()[1]} user=u dbname=d sslmode=disable gssencmode=disable"
        arguments = words(name, dsn if called.waits_for in (SERVER, JAVA) else None)
        if "log" in {parameter.name for parameter in LEAVES[name].params} and name != "init":
            arguments += ["--log", "log"]
        if called.log:
            ChangeLog.create(folder / "log", IDENTITY)
        if called.waits_for is FIFO:
            os.mkfifo(folder / "made.toml", 0o644)
        self._folder = folder
        self._process = start(arguments, folder, {"JAVA_HOME": str(java), "PGCONNECT_TIMEOUT": "60"}, called.module)
        self._connection: socket.socket | None = None
        if called.waits_for is SERVER:
            self._connection, _ = listener.accept()
            self._connection.settimeout(60)
            assert self._connection.recv(1000)
        elif called.waits_for is FIFO:
            self._until(lambda: (folder / "made.toml").stat().st_mode & 0o777 == 0o600)
        else:
            self._until((folder / "stuck").exists)

    def _until(self, condition: object) -> None:
        eventually(condition, alive=self._process.is_alive)  # type: ignore[arg-type]

    @property
    def said(self) -> str:
        return (self._folder / "err").read_text()

    def signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def await_answer(self) -> None:
        self._until(lambda: any(answer in self.said for answer in ANSWERS))

    def release(self) -> None:
        """The server goes away."""
        if self._connection is not None:
            self._connection.close()

    def end(self) -> tuple[int | None, str]:
        try:
            self._process.join(30)
            return self._process.exitcode, self.said
        finally:
            self._process.kill()
            self.release()


def _ended(pid: int) -> bool:
    """What Java would be is gone with the command that started it."""
    with suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


@pytest.mark.parametrize(("name", "number"), CASES)
def test_a_signal_ends_a_command_that_waits(
    tmp_path: Path, listener: socket.socket, name: str, number: signal.Signals
) -> None:
    waiting = Waiting(name, tmp_path, listener)
    waiting.signal(number)
    if COMMANDS[name].patient:
        waiting.await_answer()
        listener.close()
        waiting.release()
    code, said = waiting.end()
    assert (code, "Traceback" in said, "KeyboardInterrupt" in said) == (COMMANDS[name].code, False, False), said
    assert not (tmp_path / "pid").exists() or _ended(int((tmp_path / "pid").read_text()))
    assert code != 130 or re.search(r"wal2lake: (Interrupted|Stopped while Java was being started)\.\n$", said), said


@pytest.mark.parametrize("name", PATIENT)
def test_a_second_signal_ends_at_once_what_waits_on(tmp_path: Path, listener: socket.socket, name: str) -> None:
    """The server says nothing for as long as it takes."""
    waiting = Waiting(name, tmp_path, listener)
    waiting.signal(signal.SIGINT)
    waiting.await_answer()
    waiting.signal(signal.SIGINT)
    code, said = waiting.end()
    assert (code, "Traceback" in said) == (0 if name == "run" else 130, False), said


@pytest.mark.parametrize(("handler", "ends"), [(signal.SIG_DFL, True), (signal.SIG_IGN, False)])
def test_a_closed_terminal_ends_what_nohup_does_not_keep(handler: signal.Handlers, ends: bool) -> None:
    program = "import signal; from wal2lake.signals import ENDING; print(signal.SIGHUP in ENDING)"
    before = signal.signal(signal.SIGHUP, handler)
    try:
        done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert done.stdout == f"{ends}\n".encode()


@pytest.mark.parametrize("module", ["psycopg", "typer", "wal2lake.cli.running"])
def test_a_signal_is_heard_while_the_command_line_is_imported(tmp_path: Path, module: str) -> None:
    program = f"""
import sys, time
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            print("importing", flush=True)
            time.sleep(60)
sys.meta_path.insert(0, Slow())
from wal2lake.__main__ import main
main()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    assert (process.returncode, said) == (130, "wal2lake: Interrupted.\n")
