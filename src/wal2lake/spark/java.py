"""Finding a Java that Spark runs on, so that its absence is one sentence and not a stack trace.

A Java home says its version and modules in its ``release`` file; nothing is executed to learn them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from wal2lake.errors import SparkError

VERSIONS = (17, 21)
_MODULE = "jdk.incubator.vector"  # Spark starts its JVM with --add-modules=jdk.incubator.vector
FOLDERS = (Path("/usr/lib/jvm"), Path("/Library/Java/JavaVirtualMachines"), Path("/opt/java"))


def find_java() -> Path:
    """The home of a Java 17 or 21: JAVA_HOME's if it is one, else PATH's, else one from the usual folders.

    Raises SparkError saying what to install. Source: Spark documentation, "Downloading".
    """
    for home in _candidates():
        if suits(home):
            return home
    raise SparkError(
        f"Spark needs Java {' or '.join(map(str, VERSIONS))} (with the module {_MODULE}), and none was found.",
        hint="Install it (Debian and Ubuntu: apt-get install openjdk-17-jre-headless; Fedora: dnf install "
        "java-21-openjdk-headless; macOS: brew install openjdk@21), or set JAVA_HOME to where it is.",
    )


def suits(home: Path) -> bool:
    """Whether ``home`` is a Java that Spark can run on."""
    if not (home / "bin" / "java").is_file():
        return False
    release = read_release(home)
    major = release.get("JAVA_VERSION", "").partition(".")[0]
    return major in map(str, VERSIONS) and _MODULE in release.get("MODULES", _MODULE).split()


def read_release(home: Path) -> dict[str, str]:
    """``release`` as a mapping; empty when there is none."""
    try:
        lines = (home / "release").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {name: value.strip().strip('"') for name, _, value in pairs}


def _candidates() -> Iterator[Path]:
    if named := os.environ.get("JAVA_HOME"):
        yield Path(named)
    if found := shutil.which("java"):
        yield Path(found).resolve().parent.parent
    for folder in FOLDERS:
        for home in sorted(folder.glob("*"), reverse=True):
            yield home / "Contents" / "Home" if (home / "Contents").is_dir() else home
