"""The disk under the log fills up while `wal2lake run` is at work: one sentence, nothing lost, and on it goes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.waiting import eventually
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1500)]


def _mount(path: Path, *options: str) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(path)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "log"
    path.mkdir()
    if not _mount(path, "size=8m"):
        pytest.skip("a small file system can be mounted by root only; tests/capture limits the size of files instead")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


class Shop:
    """A table ``t``, and `wal2lake run` from it into ``folder``."""

    def __init__(self, server: EmbeddedPostgres, folder: Path, log: Path) -> None:
        self.server, self.folder, self.log, self.rows = server, folder, log, 0
        server.psql("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION wal2lake FOR TABLE t")

    def insert(self, count: int) -> None:
        # random, so that compression does not make room
        values = "md5(random()::text) || md5(random()::text)"
        first, self.rows = self.rows + 1, self.rows + count
        self.server.psql(f"INSERT INTO t SELECT g, {values} FROM generate_series({first}, {self.rows}) g")

    def start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "wal2lake", "run", "--dsn", self.server.dsn]
        places = ["--log", str(self.log), "--lake", str(self.folder / "lake")]
        return subprocess.Popen([*command, *places], cwd=self.folder, stderr=subprocess.PIPE, text=True)

    def await_lake(self, run: subprocess.Popen[str]) -> None:
        def alive() -> bool:
            assert run.poll() is None, run.communicate()[1]
            return True

        eventually(lambda: self._lake_rows() == self.rows, alive=alive, timeout_s=180, poll_s=0.5)

    def _lake_rows(self) -> int:
        path = self.folder / "lake/public/t"
        return DeltaTable(str(path)).to_pyarrow_table().num_rows if (path / "_delta_log").exists() else -1


def _assert_says_full(run: subprocess.Popen[str]) -> None:
    _, said = run.communicate(timeout=600)
    assert run.returncode == 13, said
    (sentence,) = (line for line in said.splitlines() if line.startswith("wal2lake: "))
    assert "No space left on device. Make room there and start again" in sentence
    assert "Traceback" not in said


def test_a_full_disk_under_run(small_disk: Path, tmp_path: Path) -> None:
    with EmbeddedPostgres() as server:
        shop = Shop(server, tmp_path, small_disk)
        shop.insert(100)
        run = shop.start()
        try:
            shop.await_lake(run)
            while run.poll() is None and shop.rows < 500_000:
                shop.insert(5000)
            _assert_says_full(run)
            run = shop.start()
            _assert_says_full(run)
            assert _mount(small_disk, "remount", "size=500m")
            run = shop.start()
            shop.await_lake(run)
        finally:
            run.terminate()
            run.communicate(timeout=600)
        assert run.returncode == 0
