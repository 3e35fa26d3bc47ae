"""All benchmarks, each in a process of its own, and what they found as a report: Markdown, JSON, plots as SVG.

A benchmark notes its figures with `bench.common`, into the file that WAL2LAKE_BENCH_FIGURES names; whether it met its
bars is its exit code, which is all that counts. What else the machine did shows in its load beside each benchmark.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench import common, plots
from wal2lake.testing.embedded import EmbeddedPostgres

_LIBRARIES = ("pyarrow", "deltalake", "pyspark", "psycopg")
_LAST_LINES = 12


@dataclass(frozen=True)
class Run:
    """One benchmark: its exit code, seconds, CPU seconds, the machine's load before, figures and last words."""

    name: str
    exit: int
    seconds: float
    cpu_seconds: float
    load: float
    figures: list[dict[str, Any]]
    said: list[str]

    @property
    def verdict(self) -> str:
        return "missed" if self.exit else "met"


def run(names: Sequence[str], folder: Path) -> int:
    """Run them one after the other, write the report into ``folder`` after each; 0 if all bars are met, else 1."""
    folder.mkdir(parents=True, exist_ok=True)
    described, runs = machine(), []
    for name in names:
        print(f"== {name}", flush=True)
        runs.append(_measured(name))
        write(folder, described, runs)
    missed = [one.name for one in runs if one.exit]
    print(f"report: {folder / 'report.md'}")
    print(f"bars missed: {', '.join(missed)}" if missed else "all bars met")
    return 1 if missed else 0


def _measured(name: str) -> Run:
    with tempfile.NamedTemporaryFile("r", prefix="wal2lake-figures-") as noted:
        before, load, began = _children_cpu(), os.getloadavg()[0], time.monotonic()
        environment = {**os.environ, common.FIGURES: noted.name}
        command = [sys.executable, "-m", "bench", name]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            said = []
            for line in process.stdout:
                print(line, end="", flush=True)
                said.append(line.rstrip("\n"))
        figures = [json.loads(line) for line in noted]
    seconds = time.monotonic() - began
    return Run(name, process.returncode, seconds, _children_cpu() - before, load, figures, said[-_LAST_LINES:])


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def machine() -> dict[str, str]:
    """What the figures were measured on; no name of a host or a user."""
    cpu = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.splitlines()
    with EmbeddedPostgres() as postgres:
        server = postgres.psql("SHOW server_version").strip()
    return {
        "CPU": f"{cpu[0] if cpu else platform.processor()}, {len(os.sched_getaffinity(0))} cores",
        "memory": f"{memory / (1 << 30):.0f} GiB",
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "Python": platform.python_version(),
        "Java": java[0] if java else "none",
        "PostgreSQL": server,
        **{name: version(name) for name in _LIBRARIES},
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if os.path.exists(path) else []


def write(folder: Path, described: dict[str, str], runs: Sequence[Run]) -> None:
    """report.json, report.md and its plots."""
    document = {"machine": described, "benchmarks": [asdict(one) for one in runs]}
    (folder / "report.json").write_text(json.dumps(document, indent=1) + "\n")
    drawn = plots.draw(folder, [(one.name, figure) for one in runs for figure in one.figures])
    (folder / "report.md").write_text("\n".join(_markdown(described, runs, drawn)) + "\n")


def _markdown(described: dict[str, str], runs: Sequence[Run], drawn: Sequence[str]) -> list[str]:
    lines = ["# Benchmarks", "", "| machine | |", "| --- | --- |"]
    lines += [f"| {name} | {value} |" for name, value in described.items()]
    lines += ["", "| benchmark | figure | value | bar | | seconds | CPU s | load before |", "| --- " * 8 + "|"]
    for one in runs:
        costs = f"{one.seconds:.0f} | {one.cpu_seconds:.0f} | {one.load:.1f}"
        judged = [figure for figure in one.figures if "bar" in figure]
        lines += [f"| {one.name} | {_cells(figure)} | {one.verdict} | {costs} |" for figure in judged]
        if not judged:
            lines.append(f"| {one.name} | {_last(one)} | | | {one.verdict} | {costs} |")
    lines += [line for name in drawn for line in ("", f"![{name.removesuffix('.svg')}]({name})")]
    for one in runs:
        lines += ["", f"## {one.name}", "", "```text", *one.said, "```"]
    return lines


def _cells(figure: dict[str, Any]) -> str:
    return f"{figure['figure']} | {figure['value']:.2f} | {'≤' if figure['at_most'] else '≥'} {figure['bar']:g}"


def _last(one: Run) -> str:
    return one.said[-1].replace("|", "/") if one.said else "nothing said"
