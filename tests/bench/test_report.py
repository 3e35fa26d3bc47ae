"""A report says of each benchmark what it measured, beside its bar, and whether the bar was met."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from bench import common, report

MACHINE = {"CPU": "one"}


def run(name: str, code: int, *figures: dict[str, object]) -> report.Run:
    return report.Run(name, code, 2.0, 1.5, 0.25, list(figures), ["words", "last | words"])


def test_figures_stand_beside_their_bars_and_a_count_by_its_last_words(tmp_path: Path) -> None:
    rates = {"rates": {"wal2lake": [3.0, 4.0], "other": [2.0, 2.0]}}
    slow = {"figure": "ratio", "value": 0.5, "bar": 1.5, "at_most": False}
    small = {"figure": "memory", "value": 1.184, "bar": 1.3, "at_most": True}
    report.write(tmp_path, MACHINE, [run("capture", 1, rates, slow), run("streamed", 0, small), run("types", 0)])
    lines = (tmp_path / "report.md").read_text().splitlines()
    assert "| capture | ratio | 0.50 | ≥ 1.5 | missed | 2 | 2 | 0.2 |" in lines
    assert "| streamed | memory | 1.18 | ≤ 1.3 | met | 2 | 2 | 0.2 |" in lines
    assert "| types | last / words | | | met | 2 | 2 | 0.2 |" in lines
    assert json.loads((tmp_path / "report.json").read_text())["benchmarks"][1]["figures"] == [small]
    for name in ("bars.svg", "capture.svg"):
        assert f"![{name.removesuffix('.svg')}]({name})" in lines
        assert ET.parse(tmp_path / name).getroot().tag.endswith("svg")


@pytest.mark.parametrize(("value", "at_most", "code"), [(2, False, 0), (1, False, 1), (1, True, 0), (2, True, 1)])
def test_a_figure_is_judged_printed_and_noted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    value: float,
    at_most: bool,
    code: int,
) -> None:
    monkeypatch.setenv(common.FIGURES, str(tmp_path / "figures"))
    assert common.judge("ratio", value, 1.5, at_most=at_most) == code
    assert capsys.readouterr().out == f"ratio: {value:.2f} (bar 1.5)\n"
    noted = {"figure": "ratio", "value": value, "bar": 1.5, "at_most": at_most}
    assert json.loads((tmp_path / "figures").read_text()) == noted
