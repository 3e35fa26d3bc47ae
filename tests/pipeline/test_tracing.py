"""A batch is a trace: what it is made of, without a value; sent where OpenTelemetry's own variables say."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.otlp import Taken, collecting
from tests.pipeline.conftest import LocalEngine, Site
from wal2lake.errors import UnrepresentableError
from wal2lake.pipeline.loop import Pipeline
from wal2lake.pipeline.tracing import span, tracing


@pytest.mark.server
def test_a_batch_is_a_trace(site: Site) -> None:
    site.sql("CREATE TABLE public.a (id int PRIMARY KEY, day date)", "INSERT INTO a VALUES (1)")
    site.publish("a")
    exporter = InMemorySpanExporter()
    with tracing(SimpleSpanProcessor(exporter)):
        site.run()
        site.sql("INSERT INTO a VALUES (2)", "INSERT INTO a VALUES (3, 'infinity')")
        site.capture()
        with pytest.raises(UnrepresentableError):
            Pipeline(site.config, LocalEngine(site), site.stop).run()
    spans: dict[str, ReadableSpan] = {made.name: made for made in exporter.get_finished_spans()}
    assert spans.keys() == {"copy chunks", "batch", "plan", "follow schemas", "apply"}
    batch, apply = spans["batch"], spans["apply"]
    assert batch.parent is None
    for below in (apply, spans["plan"], spans["follow schemas"]):
        assert below.parent is not None
        assert (below.parent.span_id, below.context.trace_id) == (batch.context.span_id, batch.context.trace_id)
    assert batch.attributes is not None and apply.attributes is not None
    assert (batch.attributes["wal2lake.tables"], apply.attributes["wal2lake.left_out"]) == (1, 1)
    assert batch.attributes["wal2lake.end_lsn"] == str(site.log().last_end_lsn)
    assert spans["copy chunks"].parent is None


def test_an_error_is_told_by_its_class_alone() -> None:
    exporter = InMemorySpanExporter()
    with tracing(SimpleSpanProcessor(exporter)), pytest.raises(ValueError), span("batch"):
        raise ValueError("a cell's value")
    (made,) = exporter.get_finished_spans()
    assert (made.status.is_ok, made.status.description, made.events) == (False, "ValueError", ())


def test_outside_of_it_nothing_is_traced_and_the_log_has_it(caplog: pytest.LogCaptureFixture) -> None:
    exporter = InMemorySpanExporter()
    with tracing(SimpleSpanProcessor(exporter)):
        pass
    caplog.set_level(logging.DEBUG, "wal2lake")
    with span("batch", batch_id=1) as made:
        made.set(changes=2)
    assert re.fullmatch(r"batch: 0\.\d{3} s, batch_id 1, changes 2", caplog.messages[-1])
    assert exporter.get_finished_spans() == ()


@pytest.fixture
def collector() -> Iterator[tuple[str, Taken]]:
    with collecting() as found:
        yield found


def test_spans_go_where_the_environment_says(collector: tuple[str, Taken], monkeypatch: pytest.MonkeyPatch) -> None:
    url, taken = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "lake of shop")
    with tracing(), span("batch", batch_id=7):
        pass
    (resource,) = taken[0].resource_spans
    assert {(pair.key, pair.value.string_value) for pair in resource.resource.attributes} >= {
        ("service.name", "lake of shop")
    }
    (made,) = resource.scope_spans[0].spans
    assert (made.name, made.attributes[0].key, made.attributes[0].value.int_value) == ("batch", "wal2lake.batch_id", 7)
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with tracing(), span("batch"):
        pass
    monkeypatch.delenv("OTEL_SDK_DISABLED")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    with tracing(), span("batch"):
        pass
    assert len(taken) == 1


def test_the_documentation_has_every_span() -> None:
    root = Path(__file__).parents[2]
    page = (root / "docs" / "monitoring.md").read_text().partition("| span |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `([\w ]+)` \|.*\|(.*)\|$", page, re.M)
    documented = {name: set(re.findall(r"`(\w+)`", row)) for name, row in rows}
    code = "".join(file.read_text() for file in (root / "src" / "wal2lake" / "pipeline").glob("*.py"))
    made = dict(re.findall(r'with span\("([\w ]+)"(.*)', code))
    assert documented.keys() == made.keys()
    for name, arguments in made.items():
        assert set(re.findall(r"(\w+)=", arguments)) <= documented[name], name
