"""`python -m bench packages`: wheel and sdist are the same bytes twice, and install alone, with each extra as it is.

The tree's files are copied to two folders, with other times and another umask, and built in each. Then the wheel is
installed into an empty environment for the core and for every extra that users may choose, and a command of each runs
there; of the core every command runs: it works without more, or says in one sentence what to install. What is
installed with `all` is written down as an SBOM (CycloneDX).
`--extra arrow` chooses; packages come from the index that pip is set up for.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from bench.common import judge
from tests.cli.commands import COMMANDS, LEAVES, words
from wal2lake.changelog.format import LogIdentity
from wal2lake.changelog.log import ChangeLog
from wal2lake.lsn import LSN

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).parent / "uv"
AWAY = "host=127.0.0.1 port=1 dbname=x"
_UNREACHED, _WRONG = 4, 2
_ALONE = ("init", "events")  # reach for no server
_ANSWERS_S, _ENDS_S = 120.0, 60.0


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel and an extra in it, and an empty folder beside it."""

    python: Path
    folder: Path

    def run(self, *command: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        """Call a program of the environment with nothing of ours in its surroundings."""
        return subprocess.run(
            self._program(command), cwd=self.folder, env=self._surroundings() | variables, input=stdin,
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip

    @contextmanager
    def running(self, *command: str) -> Iterator[subprocess.Popen[str]]:
        """The program beside what follows, which is to end it."""
        with subprocess.Popen(
            self._program(command), cwd=self.folder, env=self._surroundings(), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ) as process:  # fmt: skip
            try:
                yield process
            finally:
                process.kill()

    def _program(self, command: Sequence[str]) -> list[str]:
        return [str(self.python.parent / command[0]), *command[1:]]

    def _surroundings(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "LANG") if name in os.environ}
        return {**kept, "HOME": str(self.folder)}

    def wal2lake(self, *arguments: str) -> tuple[int, str]:
        """Code, and all that was said."""
        done = self.run("wal2lake", *arguments)
        return done.returncode, done.stdout + done.stderr


def main(argv: list[str]) -> int:
    """Print what was built and how each environment did; 1 when bytes differ or a command does not what it should."""
    parser = argparse.ArgumentParser(prog="python -m bench packages", description=__doc__)
    parser.add_argument("--extra", action="append", choices=sorted(TRIED), help="only this one; core: without any")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "dist", help="where wheel, sdist and SBOM go")
    chosen = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="wal2lake-packages-") as folder:
        built = [_build(Path(folder) / name, umask, age) for name, umask, age in (("one", 0o022, 0), ("two", 0o077, 9))]
        same = _compare(*built)
        described = list(_description(built[0]))
        print(f"description: {'; '.join(described) or 'no link in it is dead on an index'}")
        _keep(built[0], chosen.out)
        found = {}
        for name in chosen.extra or TRIED:
            found[name] = _try(name, built[0], Path(folder), chosen.out)
            print(f"{name}: {'; '.join(found[name]) or 'installs and runs'}", flush=True)
    print(f"wheel and sdist built twice: {'the same bytes' if same else 'THEY DIFFER'}")
    good = sum(not faults for faults in found.values())
    print(f"environments that install and run: {good} / {len(found)}")
    missed = judge("install and run", good / len(found), 1.0)
    return 0 if same and not described and not missed else 1


def _description(built: Path) -> Iterator[str]:
    """What an index shows of wheel and sdist: README, without links to what the index does not have."""
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode().partition("\n\n")[2]
    if not text.startswith("# wal2lake\n"):
        yield "it is not README"
    yield from (f"a relative link: {link}" for link in re.findall(r"\]\(((?!https://|#)[^)]*)\)", text))


def _build(folder: Path, umask: int, age: int) -> Path:
    """The folder with the packages of a copy of the tree; ``age``: days by which its files are older."""
    tree, out = folder / f"tree{age}", folder / "dist"
    before = os.umask(umask)
    try:
        for name in _files():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, tree / name)
            moment = (tree / name).stat().st_mtime - age * 86_400
            os.utime(tree / name, (moment, moment))
        epoch = _run("git", "-C", str(ROOT), "log", "-1", "--format=%ct").strip()
        _run(str(UV), "build", "--quiet", "--out-dir", str(out), str(tree), SOURCE_DATE_EPOCH=epoch)
    finally:
        os.umask(before)
    return out


def _files() -> Iterator[str]:
    """What git knows of the tree, or would add to it."""
    listed = _run("git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    yield from (name for name in listed.split("\0") if name and (ROOT / name).is_file())


def _run(*command: str, **variables: str) -> str:
    done = subprocess.run(
        command, env=os.environ | variables, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:4])} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def _compare(one: Path, two: Path) -> bool:
    names = sorted(path.name for path in one.iterdir() if not path.name.startswith("."))
    for name in names:
        print(f"{name}: {(one / name).stat().st_size:,} bytes, sha256 {_digest(one / name)}")
    return all((two / name).exists() and _digest(one / name) == _digest(two / name) for name in names)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _keep(built: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for path in built.glob("wal2lake-*"):
        shutil.copy(path, out)


def _try(name: str, built: Path, folder: Path, out: Path) -> list[str]:
    """What is wrong in an environment that has the wheel and the extra ``name`` and nothing else."""
    place = folder / name
    (place / "work").mkdir(parents=True)
    (wheel,) = built.glob("*.whl")
    _run(str(UV), "venv", "--quiet", "--python", sys.executable, str(place / "venv"))
    installed = Installed(place / "venv" / "bin" / "python", place / "work")
    wanted = str(wheel) if name == "core" else f"{wheel}[{name}]"
    _run(str(UV), "pip", "install", "--quiet", "--python", str(installed.python), wanted)
    return [*_parts(installed), *TRIED[name](installed), *(_sbom(installed, out) if name == "all" else ())]


def _parts(installed: Installed) -> Iterator[str]:
    """What comes beside the modules."""
    share = installed.python.parents[1] / "share"
    for name in ("man/man1/wal2lake.1", "bash-completion/completions/wal2lake", "zsh/site-functions/_wal2lake",
                 "fish/vendor_completions.d/wal2lake.fish"):  # fmt: skip
        if not (share / name).exists():
            yield f"share/{name} is missing"


def _core(installed: Installed) -> Iterator[str]:
    """Every command: it needs nothing more, and does not reach the server; or one sentence says what to install."""
    for name in LEAVES:
        code, said = installed.wal2lake(*words(name, AWAY))
        sentences = [line for line in said.splitlines() if line.startswith("wal2lake: ")]
        if COMMANDS[name].extra:
            good = code == _WRONG and len(sentences) == 1 and "pip install 'wal2lake[" in sentences[0]
        else:
            good = code == (0 if name in _ALONE else _UNREACHED)
        if not good or "Traceback" in said:
            yield f"wal2lake {name} ended with {code}: {said[-300:]}"


def _libpq(installed: Installed) -> Iterator[str]:
    """The wheel's libpq, not the system's."""
    done = installed.run("python", "-c", "import psycopg; print(psycopg.pq.__impl__)")
    if done.stdout.strip() != "binary":
        yield f"psycopg uses {done.stdout.strip() or done.stderr[-200:]}"
    yield from _ends(installed, _UNREACHED, "identify", "--dsn", AWAY)


def _arrow(installed: Installed) -> Iterator[str]:
    yield from _ends(installed, 0, "log", "list", "--json", "--log", _empty_log(installed))


def _delta(installed: Installed) -> Iterator[str]:
    """A server that is away is a finding."""
    yield from _ends(installed, 1, "status", "--dsn", AWAY, "--log", _empty_log(installed))


def _objects(installed: Installed) -> Iterator[str]:
    """A store that is away is a sentence."""
    place = "s3://nobody/log?endpoint=http://127.0.0.1:9&allow_http=true&skip_signature=true&region=x"
    yield from _ends(installed, _UNREACHED, "log", "list", "--log", place)


_LAND = """
import os
import pyarrow as pa
from wal2lake.config import LakeConfig
from wal2lake.sinks.factory import open_sink
sink = open_sink(LakeConfig(os.path.abspath("lake"), format="iceberg"), "p", "shop", "item")
sink.commit_files([], 16, pa.schema([("id", pa.int64())]), None)
print("applied:", sink.state().applied_lsn)
"""


def _iceberg(installed: Installed) -> Iterator[str]:
    """A table is made in a catalog of its own."""
    done = installed.run("python", "-", stdin=_LAND)
    if "applied: 0/10" not in done.stdout:
        yield f"an Iceberg table ended with {done.returncode}: {done.stderr[-500:]}"


def _metrics(installed: Installed) -> Iterator[str]:
    """A server that is away is a finding of what is served."""
    yield from _serves(
        installed, "metrics", "--metrics-port", "/metrics", 'wal2lake_problem{kind="server",table=""} 1.0'
    )


def _ui(installed: Installed) -> Iterator[str]:
    yield from _serves(installed, "ui", "--port", "/", "way-lake")


def _serves(installed: Installed, command: str, port_option: str, path: str, word: str) -> Iterator[str]:
    """``command`` serves a page with ``word`` in it, and ends when it is told to."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    place = ["--dsn", AWAY, "--log", _empty_log(installed)]
    with installed.running("wal2lake", command, port_option, str(port), *place) as process:
        until = time.monotonic() + _ANSWERS_S
        while process.poll() is None and word not in _got(f"http://127.0.0.1:{port}{path}"):
            if time.monotonic() > until:
                yield f"wal2lake {command} serves no {word} within {_ANSWERS_S:g} s"
                return
            time.sleep(0.2)
        process.terminate()
        said = process.communicate(timeout=_ENDS_S)[0]
    if process.returncode or "Traceback" in said:
        yield f"wal2lake {command} ended with {process.returncode}: {said[-300:]}"


def _got(url: str) -> str:
    try:
        with urlopen(url, timeout=10) as answer:
            return str(answer.read().decode())
    except OSError:  # not yet
        return ""


_TRACE = """
from wal2lake.pipeline.tracing import span, tracing
with tracing(), span("batch", batch_id=7):
    pass
"""


def _otel(installed: Installed) -> Iterator[str]:
    """A span reaches the exporter that OpenTelemetry's own variables name."""
    done = installed.run("python", "-", stdin=_TRACE, OTEL_TRACES_EXPORTER="console")
    if done.returncode or "wal2lake.batch_id" not in done.stdout:
        yield f"tracing ended with {done.returncode}: {(done.stdout + done.stderr)[-500:]}"


_READ = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print("rows:", spark.read.format("wal2lake").load("log").count())
"""


def _spark(installed: Installed) -> Iterator[str]:
    _empty_log(installed)
    done = installed.run("python", "-", stdin=_READ)
    if "rows: 0" not in done.stdout:
        yield f"the data source ended with {done.returncode}: {done.stderr[-500:]}"


def _all(installed: Installed) -> Iterator[str]:
    yield from _ends(installed, _UNREACHED, "check", "--dsn", AWAY)
    yield from _ends(installed, _UNREACHED, "verify", "--dsn", AWAY, "--log", _empty_log(installed))


def _demo(installed: Installed) -> Iterator[str]:
    yield from _ends(installed, 0, "demo", "--seconds", "1")


def _docs(installed: Installed) -> Iterator[str]:
    os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")
    site = installed.folder / "site"
    done = installed.run("mkdocs", "build", "--strict", "--quiet", "-f", str(ROOT / "mkdocs.yml"), "-d", str(site))
    if done.returncode or not (site / "index.html").exists():
        yield f"mkdocs ended with {done.returncode}: {done.stderr[-300:]}"


def _ends(installed: Installed, code: int, *arguments: str) -> Iterator[str]:
    found, said = installed.wal2lake(*arguments)
    if found != code or "Traceback" in said:
        yield f"wal2lake {arguments[0]} ended with {found}, not {code}: {said[-300:]}"


def _empty_log(installed: Installed) -> str:
    path = installed.folder / "log"
    if not path.exists():
        ChangeLog.create(str(path), LogIdentity("1", 1, "x", "wal2lake", "wal2lake", LSN(16)))
    return str(path)


def _sbom(installed: Installed, out: Path) -> Iterator[str]:
    """What is installed, as a release says it."""
    target = out / "sbom.cdx.json"
    program = Path(sys.executable).parent / "cyclonedx-py"
    _run(str(program), "environment", "--output-reproducible", "--output-file", str(target), str(installed.python))
    text = target.read_text()
    yield from (f"the SBOM has no {name}" for name in ("wal2lake", "pyspark", "pyarrow", "psycopg") if name not in text)
    print(f"SBOM: {target}")


# bench and dev are for who works on wal2lake, and are installed by `make setup`, which knows what to override.
TRIED: Mapping[str, Callable[[Installed], Iterator[str]]] = {
    "core": _core, "libpq": _libpq, "arrow": _arrow, "delta": _delta, "objects": _objects, "iceberg": _iceberg,
    "metrics": _metrics,
    "ui": _ui, "otel": _otel, "spark": _spark, "all": _all, "demo": _demo, "docs": _docs,
}  # fmt: skip
