"""The tab key offers what there is, in each shell that is there to be asked."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from tests.documents.reference import ROOT
from wal2lake.cli.main import app

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
    ("--vers", "--version"),
    ("--he", "--help"),
]


# -- every option of every command, by the parser, and as each file has it


def parsed(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Command and option, all that the parser takes; --help is everybody's."""
    for below in getattr(command, "commands", {}).items():
        yield from parsed(below[1], (*words, below[0]))
    if not words or not hasattr(command, "commands"):
        for parameter in command.params:
            if parameter.param_type_name == "option":
                yield from ((" ".join(words), name) for name in (*parameter.opts, *parameter.secondary_opts))
        yield " ".join(words), "--help"


def in_bash(text: str) -> Iterator[tuple[str, str]]:
    for command, words in re.findall(r'^        "([a-z ]*)"\) words="(.*?)" ;;$', text, re.M):
        yield from ((command, word) for word in words.split() if word.startswith("-"))


def in_zsh(text: str) -> Iterator[tuple[str, str]]:
    yield from (("", name) for name in re.findall(r"^        '(--[a-z-]+):", text, re.M))
    for command, specs in re.findall(r"^        \('([a-z ]+)'\) _arguments (.*) ;;$", text, re.M):
        yield from ((command, name) for name in re.findall(r"'(-[a-zA-Z-]+)\[", specs))


def in_fish(text: str) -> Iterator[tuple[str, str]]:
    for condition, rest in re.findall(r"^complete -c wal2lake -n '([^']*)' (.*)$", text, re.M):
        words = condition.partition("; and not")[0].replace("__fish_seen_subcommand_from", "").split("; and")
        command = "" if condition == "__fish_use_subcommand" else " ".join(" ".join(words).split())
        for dash, name in re.findall(r"(?:^| )-([ls]) (\S+)", rest.partition(" -d ")[0]):
            yield command, f"--{name}" if dash == "l" else f"-{name}"


def in_manual(text: str) -> Iterator[tuple[str, str]]:
    """Options that commands share stand there once, for all."""
    shared: set[str] = set()
    parts = re.split(r"^\.(?:SS|SH) (.*)$", text.replace(r"\-", "-"), flags=re.M)
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        names = [name for line in re.findall(r"^\.TP\n\\fB(-.*)\\fR$", body, re.M) for name in _names(line)]
        if title == "CONFIGURATION":
            shared = set(names)
        elif title == "OPTIONS" or title.startswith("wal2lake "):
            command = "" if title == "OPTIONS" else re.match(r"wal2lake ((?:[a-z]+ ?)+)", title)[1].strip()  # type: ignore[index]
            yield from ((command, name) for name in names)
    yield from ((command, name) for command, name in parsed(get_command(app)) if name in shared or name == "--help")


def _names(line: str) -> list[str]:
    return [part.split(" ")[0] for part in line.split(", ")]


FILES = {
    "bash-completion/completions/wal2lake": in_bash, "zsh/site-functions/_wal2lake": in_zsh,
    "fish/vendor_completions.d/wal2lake.fish": in_fish, "man/man1/wal2lake.1": in_manual,
}  # fmt: skip


@pytest.mark.parametrize("path", FILES)
def test_every_option_that_the_parser_takes_is_there_and_no_other(path: str) -> None:
    there = set(parsed(get_command(app)))
    assert {("", "--version"), ("log decode", "--plugin")} & there and len(there) > 300
    found = set(FILES[path]((SHARE / path).read_text()))
    assert found == there, sorted(found ^ there)[:20]


# -- and offered where the key is pressed


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
