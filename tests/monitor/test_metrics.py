"""The metrics are what a look has found, under names that documentation, dashboard and alert rules share."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.monitor.looks import empty_look, whole_look
from wal2lake.monitor.metrics import METRICS, Look, Metrics
from wal2lake.monitor.problem import PROBLEMS, Problem

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "monitoring.md").read_text()
RULES, DASHBOARD = (ROOT / "deploy/monitoring" / name for name in ("prometheus-rules.yml", "grafana-dashboard.json"))
ADDED = {"instance", "job"}  # labels that Prometheus adds


def samples(look: Look | None) -> dict[tuple[str, tuple[str, ...]], float]:
    """By name and label values, as Prometheus reads them."""
    metrics = Metrics()
    metrics.look = look
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    text = generate_latest(registry).decode()
    return {
        (sample.name, tuple(sample.labels[label] for label in METRICS[sample.name].labels)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_look_that_knows_everything_has_every_metric() -> None:
    found = samples(whole_look((Problem("table_quarantined", "Left out.", "public.b"),)))
    assert {name for name, _ in found} == set(METRICS)
    assert found["wal2lake_slot_retained_wal_bytes", ()] == 60
    assert found["wal2lake_slot_lag_bytes", ()] == 30
    assert found["wal2lake_pipeline_lag_seconds", ()] == 2.5
    assert found["wal2lake_pipeline_batch_seconds_total", ()] == 2.5
    assert found["wal2lake_table_state", ("public.a", "streaming")] == 1
    assert found["wal2lake_table_rows", ("public.a",)] == 5
    assert found["wal2lake_tables", ("quarantined",)] == 1
    assert found["wal2lake_problem", ("table_quarantined", "public.b")] == 1
    assert found["wal2lake_process_starts_total", ("pipeline",)] == 2


def test_what_a_database_user_named_stays_a_label() -> None:
    (table,) = (
        labels[0]
        for name, labels in samples(whole_look())
        if name == "wal2lake_table_snapshot_chunks" and labels[0] != "public.a"
    )
    assert table == 'we"ird\\.\\n\\x1b[31m'


def test_what_is_not_known_has_no_sample() -> None:
    found = samples(empty_look())
    assert {name for name, _ in found} == {
        "wal2lake_build_info", "wal2lake_look_timestamp_seconds", "wal2lake_problem", "wal2lake_problems",
        "wal2lake_capture_state", "wal2lake_capture_up", "wal2lake_pipeline_state", "wal2lake_pipeline_up",
    }  # fmt: skip
    assert (found["wal2lake_capture_up", ()], found["wal2lake_problems", ()]) == (0, 1)
    assert ("wal2lake_table_rows", ('we"ird\\.\\n\\x1b[31m',)) not in samples(whole_look())
    assert samples(None) == {}


def test_the_documentation_has_every_metric_as_it_is() -> None:
    documented = dict(re.findall(r"^\| `(wal2lake_\w+)` \| (.*) \|$", PAGE, re.M))
    assert documented == {
        name: f"{metric.kind} | {', '.join(f'`{label}`' for label in metric.labels)} | {metric.help}"
        for name, metric in METRICS.items()
    }
    assert set(re.findall(r"`wal2lake_\w+`", PAGE)) <= {f"`{name}`" for name in METRICS}


def test_the_documentation_has_every_kind_of_problem() -> None:
    listed = PAGE.partition("`kind` of `wal2lake_problem` is one of ")[2].partition("Label values")[0]
    assert (
        dict(re.findall(r"`(\w+)` \((.*?)\)[,.] ?", listed.replace("(max_slot_wal_keep_size)", "[x]"))).keys()
        == PROBLEMS.keys()
    )


def _rule_expressions() -> Iterator[str]:
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"])


def _dashboard_expressions(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (
            text for key, text in value.items() if key in ("expr", "query", "definition") and isinstance(text, str)
        )
        yield from (found for below in value.values() for found in _dashboard_expressions(below))
    elif isinstance(value, list):
        yield from (found for below in value for found in _dashboard_expressions(below))


@pytest.mark.parametrize(
    ("expressions", "at_least"),
    [(list(_rule_expressions()), 14), (list(_dashboard_expressions(json.loads(DASHBOARD.read_text()))), 20)],
    ids=["rules", "dashboard"],
)
def test_what_watches_asks_for_what_there_is(expressions: list[str], at_least: int) -> None:
    asked = [ask for text in expressions for ask in re.findall(r"(wal2lake_\w+)(?:\{(.*?)\})?", text)]
    assert len(asked) >= at_least
    for name, matchers in asked:
        assert name in METRICS, name
        labels = set(re.findall(r"(\w+)\s*(?:=|!=|=~|!~)", re.sub(r'"[^"]*"', "", matchers)))
        assert labels <= {*METRICS[name].labels, *ADDED}, (name, labels)
    counters = {name for name, metric in METRICS.items() if metric.kind == "counter"}
    for text in expressions:
        for name in set(re.findall(r"wal2lake_\w+", text)) & counters:
            assert re.search(rf"(rate|increase)\({name}", text), f"{name} is a counter: {text}"


def test_the_dashboard_is_one() -> None:
    document = json.loads(DASHBOARD.read_text())
    panels = document["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["title"] and panel["targets"] for panel in panels)
    assert "localhost" not in DASHBOARD.read_text()


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_promtool_finds_the_rules_right() -> None:
    for words in (["check", "rules", str(RULES)], ["test", "rules", str(Path(__file__).with_name("rules_test.yml"))]):
        done = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
