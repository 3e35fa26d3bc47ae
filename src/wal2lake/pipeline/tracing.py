"""Traces of batches by OpenTelemetry, where it is installed (the extra ``otel``). With or without it a span is a line
of the log, at level debug, with how long it took.

The rule: where spans go is said as OpenTelemetry says it, by its own environment variables (OTEL_*), and by nothing of
ours; a program that has a tracer provider of its own gets them there. Tracing never ends or delays a batch: spans are
sent by a thread of the SDK's, and what cannot be sent is dropped. No attribute holds a cell value or a credential.

Source: OpenTelemetry specification, "Environment Variable Specification".
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from wal2lake import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

_WANTED: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER")
_EXPORTERS: Final = ("otlp", "console", "none")
_NAME: Final = "wal2lake"
_logger = logging.getLogger(__name__)
_own: list[TracerProvider] = []  # of this process, while it traces by the environment; the last one counts


@contextmanager
def tracing(processor: SpanProcessor | None = None) -> Iterator[None]:
    """In the block, spans go where the environment says, or to ``processor``; at its end what is left is sent.

    Without a word in the environment it does nothing, and so it does, with a warning, where the extra is missing.
    """
    if processor is None and not _is_wanted():
        yield
        return
    try:
        provider = _provider(processor)
    except ModuleNotFoundError as error:
        _logger.warning("Nothing is traced: %s is not installed; pip install 'wal2lake[otel]' brings it.", error.name)
        yield
        return
    _own.append(provider)
    try:
        yield
    finally:
        _own.remove(provider)
        provider.shutdown()


def _is_wanted() -> bool:
    disabled = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return not disabled and any(os.environ.get(name) for name in _WANTED) and _exporter() != "none"


def _exporter() -> str:
    return os.environ.get("OTEL_TRACES_EXPORTER") or "otlp"


def _provider(processor: SpanProcessor | None) -> TracerProvider:
    from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource  # noqa: PLC0415 - an extra
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter  # noqa: PLC0415

    named = {SERVICE_NAME: os.environ.get("OTEL_SERVICE_NAME") or _NAME, SERVICE_VERSION: __version__}
    provider = TracerProvider(resource=Resource.create(named))
    if processor is None:
        exporter: SpanExporter
        if _exporter() == "console":
            exporter = ConsoleSpanExporter()
        else:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

            if _exporter() not in _EXPORTERS:
                _logger.warning("OTEL_TRACES_EXPORTER is not one of %s: otlp is taken.", ", ".join(_EXPORTERS))
            exporter = OTLPSpanExporter()
        processor = BatchSpanProcessor(exporter)
    provider.add_span_processor(processor)
    return provider


class Span:
    """What is being done; ``set`` adds what is known of it by now."""

    def __init__(self, span: Any = None) -> None:
        self._span = span
        self.attributes: dict[str, str | int | float] = {}

    def set(self, **attributes: str | int | float) -> None:
        """``batch_id`` becomes wal2lake.batch_id."""
        self.attributes |= attributes
        if self._span is not None:
            self._span.set_attributes({f"{_NAME}.{name}": value for name, value in attributes.items()})


@contextmanager
def span(name: str, **attributes: str | int | float) -> Iterator[Span]:
    """The block as a span below the one around it; what it raises is the span's status, by its class alone."""
    began = time.monotonic()
    with _span(name) as made:
        made.set(**attributes)
        try:
            yield made
        finally:
            known = "".join(f", {what} {value}" for what, value in made.attributes.items())
            _logger.debug("%s: %.3f s%s", name, time.monotonic() - began, known)


@contextmanager
def _span(name: str) -> Iterator[Span]:
    try:
        from opentelemetry import trace  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        yield Span()
        return
    provider = _own[-1] if _own else trace.get_tracer_provider()
    tracer = provider.get_tracer(_NAME, __version__)
    with tracer.start_as_current_span(name, record_exception=False, set_status_on_exception=False) as current:
        try:
            yield Span(current)
        except BaseException as error:
            current.set_status(trace.Status(trace.StatusCode.ERROR, type(error).__name__))
            raise
