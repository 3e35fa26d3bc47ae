"""The report's plots: each figure beside its bar, and the rounds of each benchmark that alternates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "wal2lake", "font.family": "sans-serif"})


def draw(folder: Path, figures: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
    """Write the plots of ``figures`` (benchmark, figure as noted) into ``folder``; the names of their files."""
    judged = [(name, figure) for name, figure in figures if "bar" in figure]
    drawn = [_bars(folder, judged)] if judged else []
    return drawn + [_rounds(folder, name, figure["rates"]) for name, figure in figures if "rates" in figure]


def _bars(folder: Path, judged: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """How many times better than its bar each figure is, from its bar to either side."""
    plot = Figure(figsize=(8, 1 + 0.3 * len(judged)), layout="constrained")
    axes = plot.subplots()
    labels = [f"{name}: {figure['figure']}" for name, figure in judged]
    times = [_times_better(figure) for _, figure in judged]
    axes.barh(
        range(len(labels)),
        [better - 1 for better in times],
        left=1,
        color=["#2f7d4f" if better >= 1 else "#b3402a" for better in times],
    )
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set_xscale("log", base=2)
    axes.set_xlim(min(0.5, *times), max(2, *times))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xlabel("times better than the bar (the line)")
    return _written(plot, folder, "bars.svg")


def _times_better(figure: dict[str, Any]) -> float:
    value, bar = figure["value"], figure["bar"]
    return float(bar / value if figure["at_most"] else value / bar)


def _rounds(folder: Path, name: str, rates: dict[str, list[float]]) -> str:
    plot = Figure(figsize=(8, 3), layout="constrained")
    axes = plot.subplots()
    for contestant, values in rates.items():
        axes.plot(range(1, len(values) + 1), values, marker="o", label=contestant)
    axes.set_ylim(bottom=0)
    axes.set_xticks(range(1, max(map(len, rates.values())) + 1))
    axes.set_xlabel("round")
    axes.set_ylabel("per second")
    axes.set_title(name)
    axes.legend()
    return _written(plot, folder, f"{name}.svg")


def _written(plot: Figure, folder: Path, name: str) -> str:
    plot.savefig(folder / name, metadata={"Date": None})
    return name
