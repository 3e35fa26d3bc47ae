"""The tab key offers what there is, in each shell that is there to be asked."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.documents.reference import ROOT

SHARE = ROOT / "share"
ASKED = [
    ("", "receivewal"),
    ("lo", "log"),
    ("log ver", "verify"),
    ("slots create mine --rese", "--reserve-wal"),
    ("verify --conf", "--config"),
    ("log verify --j", "--json"),
    ("recv mine --format js", "json"),
    ("slots drop mine --w", "--wait"),
    ("drop --with-l", "--with-log"),
]


@pytest.mark.parametrize(("typed", "offered"), ASKED)
def test_bash(typed: str, offered: str) -> None:
    words = ["wal2lake", *(word or "''" for word in typed.split(" "))]
    script = (
        f"source {SHARE}/bash-completion/completions/wal2lake; COMP_WORDS=({' '.join(words)});"
        f' COMP_CWORD={len(words) - 1}; _wal2lake; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert offered in done.stdout.split() and done.stderr == ""


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
def test_fish() -> None:
    script = f"source {SHARE}/fish/vendor_completions.d/wal2lake.fish\n"
    script += "".join(f"echo == ; complete -C 'wal2lake {typed}'\n" for typed, _ in ASKED)
    done = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, check=True)
    answers = done.stdout.split("==\n")[1:]
    for (typed, offered), said in zip(ASKED, answers, strict=True):
        assert offered in [line.split("\t")[0] for line in said.splitlines()], (typed, said)


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh")
def test_zsh() -> None:
    """What a press of the key would show, without a terminal: the function is called where zsh calls it."""
    script = f"""
    words=(wal2lake "$@"); CURRENT=$#words
    _describe() {{ print -l -- ${{(P)2}} }}
    _arguments() {{ print -l -- "$@" }}
    source {SHARE}/zsh/site-functions/_wal2lake
    """
    for typed, offered in ASKED:
        done = subprocess.run(
            ["zsh", "-f", "-c", script, "zsh", *typed.split(" ")], capture_output=True, text=True, check=True
        )
        names = {line.partition("[")[0].partition(":")[0] for line in done.stdout.splitlines()}
        assert offered in names or f"({offered})" in done.stdout or f" {offered})" in done.stdout, (typed, done)
