"""The core installs small: what needs no Arrow and no Spark must not load them."""

from __future__ import annotations

import subprocess
import sys

import pytest

BLOCK = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"numpy", "pyarrow", "pyspark", "deltalake", "pandas"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
sys.argv[0] = "wal2lake"
from wal2lake.cli.main import main
main()
"""


def _core(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BLOCK, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("command", ["recv", "slots", "basebackup", "receivewal", "identify", "check", "init", "run"])
def test_the_protocol_and_the_help_need_the_core_alone(command: str) -> None:
    done = _core(command, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout


def test_a_server_is_reached_with_the_core_alone() -> None:
    done = _core("identify", "--dsn", "host=127.0.0.1 port=1 dbname=x")
    assert done.returncode == 4, done.stderr


def test_an_output_plugin_needs_the_core_alone() -> None:
    plugin = ("--publication", "p", "--python-plugin", "test_decoding", "--dsn", "host=127.0.0.1 port=1 dbname=x")
    done = _core("recv", "mine", *plugin)
    assert done.returncode == 4, done.stderr


def test_what_needs_more_says_what_to_install() -> None:
    done = _core("status", "--dsn", "host=127.0.0.1 port=1")
    assert done.returncode == 2
    assert "pip install 'wal2lake[all]'" in done.stderr
