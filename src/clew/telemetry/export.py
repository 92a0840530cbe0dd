"""OpenTelemetry export for clew's own server, configured by the standard environment variables."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import Final

from clew._version import __version__

__all__ = ["exporting"]

log = logging.getLogger("clew.telemetry")
_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_TRACES: Final = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
_METRICS: Final = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"


@contextlib.contextmanager
def exporting() -> Iterator[None]:
    """Export spans and metrics for as long as this is entered, if one of these variables names a collector."""
    configured = {name for name in (_ENDPOINT, _TRACES, _METRICS) if os.environ.get(name)}
    if not configured or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        yield
        return
    try:
        from opentelemetry import metrics, trace
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        package = "clew-sessions[otel]"
        log.warning("%s is set, but %s is not installed: pip install '%s'", min(configured), error.name, package)
        yield
        return
    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "clew"}
    resource = Resource.create({**named, "service.version": __version__})
    with contextlib.ExitStack() as stack:
        # Under opentelemetry-instrument a provider is already set up, and shut down there.
        if configured & {_ENDPOINT, _TRACES} and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            traces = TracerProvider(resource=resource, shutdown_on_exit=False)
            traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
            trace.set_tracer_provider(traces)
            stack.callback(traces.shutdown)
        if configured & {_ENDPOINT, _METRICS} and not isinstance(metrics.get_meter_provider(), MeterProvider):
            reader = PeriodicExportingMetricReader(OTLPMetricExporter())
            meters = MeterProvider([reader], resource, shutdown_on_exit=False)
            metrics.set_meter_provider(meters)
            stack.callback(meters.shutdown)
        yield
