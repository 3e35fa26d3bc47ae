from __future__ import annotations

from pathlib import Path

import pytest

from wal2lake.errors import SparkError
from wal2lake.spark import java

RELEASE = 'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\nMODULES="java.base {module}"\n'


def make_java(home: Path, version: str, module: str = "jdk.incubator.vector") -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(mode=0o755)
    (home / "release").write_text(RELEASE.format(version=version, module=module))
    return home


@pytest.fixture(autouse=True)
def only_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "FOLDERS", (tmp_path / "jvm",))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = make_java(tmp_path / "mine", "21.0.2")
    make_java(tmp_path / "jvm" / "17", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(mine))
    assert java.find_java() == mine


def test_an_unfit_java_home_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "new", "25.0.3")))
    fit = make_java(tmp_path / "jvm" / "17", "17.0.1")
    make_java(tmp_path / "jvm" / "old", "1.8.0_402")
    assert java.find_java() == fit


def test_java_on_the_path_is_followed_home(tmp_path: Path) -> None:
    home = make_java(tmp_path / "somewhere", "17.0.9")
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "java").symlink_to(home / "bin" / "java")
    assert java.find_java() == home


def test_a_runtime_without_the_vector_module_does_not_do(tmp_path: Path) -> None:
    make_java(tmp_path / "jvm" / "small", "17.0.1", module="java.sql")
    with pytest.raises(SparkError, match="with the module"):
        java.find_java()


def test_without_java_the_error_says_what_to_install() -> None:
    with pytest.raises(SparkError, match="apt-get install openjdk-17-jre-headless"):
        java.find_java()
