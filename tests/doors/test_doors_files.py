"""What the fuzzer does to files that others have written; it finds what it is made to find."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.fuzz import files
from tests.fuzz.run import check, fuzz, warm
from wal2lake.config import Config
from wal2lake.errors import ConfigError
from wal2lake.postgres.physical import archive
from wal2lake.sinks import sink_errors


def test_doors_no_damaged_file_opens_one() -> None:
    targets = files.targets()
    assert [target.name for target in targets] == ["backup archive", "delta log", "configuration"]
    warm(targets)
    bugs = fuzz(targets, Random(2))
    assert not bugs, "\n".join(map(str, bugs))


def test_doors_the_fuzzer_finds_an_archive_that_writes_through_a_link(monkeypatch: pytest.MonkeyPatch) -> None:
    (target,) = [target for target in files.targets() if target.name == "backup archive"]
    monkeypatch.setattr(archive.Archive, "refuse_below_link", lambda *_: None)
    monkeypatch.setattr(archive, "inside", lambda name: "pg_tblspc/16384/x" if name == "base/1" else name)
    bug = check(target, target.corpus[0])
    assert bug is not None and "written through a link" in bug.problem


@pytest.mark.parametrize(
    "text", ["x = " + "[" * 100_000, "[spark]\nx = " + "{a=" * 5000, "[spark]\n" + "a." * 3000 + "b = 1"]
)
def test_doors_a_configuration_without_bottom_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "wal2lake.toml").write_text(text)
    with pytest.raises(ConfigError):
        Config.load(tmp_path / "wal2lake.toml")


@pytest.mark.parametrize(
    "said",
    [
        "Kernel error: Generic delta kernel error: no\n   0: std::backtrace::Backtrace::create\n   1: delta_kernel::x",
        "Kernel error: Generic delta kernel error: no\n\nBacktrace:\n  0: <core::Future as x>::poll\n",
        "Kernel error: Generic delta kernel error: no stack backtrace:\n   0: rust_begin_unwind",
    ],
)
def test_doors_no_backtrace_stands_in_a_tables_sentence(said: str) -> None:
    told = str(sink_errors.failure("/lake/t", OSError(said)))
    assert "Generic delta kernel error: no. A file is lost or damaged." in told
    assert len(str(sink_errors.failure("/lake/t", OSError("x" * 10_000)))) < 1000
