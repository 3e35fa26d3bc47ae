"""A short run with a fixed seed; and the fuzzer finds what it is made to find."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest

from tests.fuzz import changelog
from tests.fuzz.rounds import chosen
from tests.fuzz.run import check, fuzz, warm
from tests.fuzz.targets import Target
from wal2lake.errors import ProtocolError

TARGETS = chosen("")


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_the_vectors_themselves_are_read_and_written(target: Target) -> None:
    assert target.corpus
    for data in target.corpus:
        bug = check(target, data)
        assert bug is None, bug


def test_no_mutant_breaks_a_decoder() -> None:
    warm(TARGETS)
    bugs = fuzz(TARGETS, Random(1))
    assert not bugs, "\n".join(map(str, bugs))


@pytest.mark.parametrize(
    "error", [ProtocolError("no offset"), ProtocolError("far", offset=99), IndexError(), MemoryError()]
)
def test_what_breaks_the_rule_is_a_bug(error: Exception) -> None:
    def run(data: bytes) -> None:
        raise error

    assert check(Target("broken", [b""], run), b"x") is not None


def test_a_document_without_a_checksum_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wal2lake.changelog.documents.zlib", SimpleNamespace(crc32=lambda *_: 0))
    targets = [target for target in changelog.targets() if target.name == "documents"]
    (bug,) = fuzz(targets, Random(1))
    assert "read as something else" in bug.problem
