"""The core installs small: what needs no Arrow and no Spark must not load them, and what does says what to install."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.cli.commands import COMMANDS, LEAVES, words
from wal2lake.extras import EXTRAS, missing_extra
from wal2lake.testing.embedded import EmbeddedPostgres

# Of a folder on PYTHONPATH: every Python that starts there has the core alone, the children of `run` as well.
_SITE = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocker())
"""
_ALL = """
import contextlib, json, os, signal, sys, tempfile, threading
from wal2lake.__main__ import main
from wal2lake.run import monitoring
monitoring._END_S = 0.0  # a look under way is not what is waited for
def end_when_at_work(said, over):
    while not over.wait(0.02):
        if b"Ctrl-C ends it" in os.pread(said.fileno(), 65536, 0):
            os.kill(os.getpid(), signal.SIGTERM)
            return
found = {}
for name, arguments in json.load(sys.stdin).items():
    sys.argv = ["wal2lake", *arguments]
    with tempfile.TemporaryFile("w+") as said:
        over = threading.Event()
        watching = threading.Thread(target=end_when_at_work, args=(said, over))
        watching.start()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                main()
                code = 0
            except SystemExit as ended:
                code = ended.code or 0
            except BaseException as error:
                code = f"Traceback {error!r}"
        over.set()
        watching.join()
        said.seek(0)
        found[name] = code, said.read()
json.dump(found, sys.stdout)
"""
_NO_ARROW = ModuleNotFoundError(name="pyarrow")
_AWAY = "host=127.0.0.1 port=1 dbname=x"


def _environment(folder: Path, *blocked: str) -> dict[str, str]:
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(_SITE.format(blocked=blocked or tuple(EXTRAS)))
    others = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(site), *others])}


def _called(folder: Path, arguments: dict[str, list[str]], *blocked: str) -> dict[str, tuple[object, str]]:
    done = subprocess.run(
        [sys.executable, "-c", _ALL], cwd=folder, env=_environment(folder, *blocked), input=json.dumps(arguments),
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {name: (code, said) for name, (code, said) in json.loads(done.stdout).items()}


def test_every_command_says_what_to_install_or_needs_the_core_alone(tmp_path: Path) -> None:
    """Those that need nothing more reach for the server, which is away; an output plugin of ours is one of them."""
    arguments = {name: words(name, _AWAY) for name in LEAVES} | {
        "plugin": [*words("recv", _AWAY), "--python-plugin", "test_decoding"],
    }
    found = _called(tmp_path, arguments)
    for name, (code, said) in found.items():
        if name in COMMANDS and COMMANDS[name].extra:
            assert (code, "pip install 'wal2lake[" in said) == (2, True), (name, code, said)
            assert said.startswith("wal2lake: This needs") and said.count("\n") == 1, (name, said)
            assert f"wal2lake[{'demo' if name == 'demo' else 'all'}]" in said, "it is enough"
        else:
            assert code == (0 if name in ("init", "events") else 4), (name, code, said)
        assert "Traceback" not in said, (name, said)


@pytest.mark.parametrize("extra", ["arrow", "delta", "metrics", "ui"])
def test_what_is_said_to_do_for_a_command_alone_is_enough(extra: str, tmp_path: Path) -> None:
    """With no module but those that the extra brings, it asks for no other."""
    commands = [
        name for name in LEAVES
        if f"[{extra}]" in str(missing_extra(_NO_ARROW, name.partition(" ")[0]))
    ]  # fmt: skip
    assert commands
    blocked = [module for module, of in EXTRAS.items() if of not in _brought_by(extra)]
    found = _called(tmp_path, {name: words(name, _AWAY) for name in commands}, *blocked)
    for name, (code, said) in found.items():
        assert "not installed" not in said and "Traceback" not in f"{code}{said}", (name, code, said)


def _brought_by(extra: str) -> set[str]:
    """The extras that an extra consists of."""
    declared = tomllib.loads(Path("pyproject.toml").read_text())["project"]["optional-dependencies"][extra]
    within = [name for needed in declared for name in re.findall(r"^wal2lake\[(.*)\]", needed)]
    return {extra}.union(*(_brought_by(one) for names in within for one in names.split(",")))


def test_help_needs_the_core_alone(tmp_path: Path) -> None:
    names = ("", "run", "log", "recv")
    for name, (code, said) in _called(tmp_path, {name: [*name.split(), "--help"] for name in names}).items():
        assert (code, "Usage" in said) == (0, True), (name, said)


@pytest.mark.server
def test_check_names_what_is_missing_on_this_machine(server: EmbeddedPostgres, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    chosen = ["--publication", "absent", "--log", str(tmp_path / "log"), "--json"]
    code, said = _called(tmp_path, {"check": [*words("check", server.dsn), *chosen]})["check"]
    found = {finding["name"]: finding for finding in json.loads(said)["findings"]}
    assert (code, found["modules"]["level"], found["change_log"]["level"]) == (1, "error", "warning")
    assert "pip install 'wal2lake[all]'" in found["modules"]["text"]


def test_a_machine_without_libpq_is_told_so(tmp_path: Path) -> None:
    environment = _environment(tmp_path, "psycopg_binary", "psycopg_c")
    with open(tmp_path / "site" / "sitecustomize.py", "a") as site:
        site.write("import ctypes.util; ctypes.util.find_library = lambda name: None\n")
    command = [sys.executable, "-m", "wal2lake", "check"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert "There is no libpq" in done.stderr and "pip install 'wal2lake[libpq]'" in done.stderr
