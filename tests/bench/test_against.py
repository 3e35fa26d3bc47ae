"""Two checkouts by turns: each side runs its own code, the fastest rounds are compared, the exit code says how."""

import subprocess
from pathlib import Path

import pytest

from bench.against import compare

BENCHMARK = """
import sys
from wal2lake import RATE

for turn, rate in enumerate((RATE // 2, RATE), 1):
    print(f"round {turn}: ours, on 10 columns {rate:,}/s, baseline 7/s")
sys.exit(1)  # its own bar is not the matter here
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose benchmark `fake` measured 2,000 changes a second at the tag `before`."""
    for file, text in {"bench/__main__.py": "import bench.fake", "bench/fake.py": BENCHMARK}.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    measures(tmp_path, "2000")
    git = ("git", "-C", tmp_path, "-c", "user.name=wal2lake", "-c", "user.email=wal2lake@localhost")
    for command in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "-m", "Before"), ("tag", "before")):
        subprocess.run([*git, *command], check=True)
    return tmp_path


def measures(repository: Path, rate: str) -> None:
    package = repository / "src" / "wal2lake"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text(f"RATE = {rate}")


@pytest.mark.parametrize(("rate", "code", "ratio"), [("1900", 0, "0.95"), ("1880", 1, "0.94"), ("2500", 0, "1.25")])
def test_the_working_tree_is_compared_with_the_checkout(
    repository: Path, capsys: pytest.CaptureFixture[str], rate: str, code: int, ratio: str
) -> None:
    measures(repository, rate)
    assert compare(repository, "before", ["fake"], 2) == code
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[:4]] == ["before", "this tree", "this tree", "before"]
    assert lines[-2] == "before: 4 rounds, median 1,500/s, fastest 2,000/s"
    assert lines[-1] == f"ratio: {ratio} (bar 0.95)"


def test_a_side_that_measures_nothing_is_an_error(repository: Path) -> None:
    measures(repository, "1 / 0")
    with pytest.raises(SystemExit, match="this tree"):
        compare(repository, "before", ["fake"], 1)


def test_what_the_other_side_lacks_is_named(repository: Path) -> None:
    with pytest.raises(SystemExit, match="after cannot be checked out"):
        compare(repository, "after", ["fake"], 1)
    (repository / "bench" / "new.py").write_text(BENCHMARK)
    with pytest.raises(SystemExit, match="before has no benchmark named new"):
        compare(repository, "before", ["new"], 1)


def test_a_side_that_would_run_other_code_is_refused(repository: Path) -> None:
    (repository / "src" / "wal2lake" / "__init__.py").unlink()
    with pytest.raises(SystemExit, match="this tree would measure"):
        compare(repository, "before", ["fake"], 1)
