"""OpenTelemetry spans for turns, model calls, tools and compactions, named after the GenAI conventions.

The host, or `clew serve`, sets OpenTelemetry up; clew uses only its API. Where that is not installed, or no provider is
set up, nothing is created. Message content is recorded only where the conventions' own variable,
``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT``, asks for it.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from clew._version import __version__

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram
    from opentelemetry.trace import Span

    from clew.transcript.model_call import ModelCall

__all__ = ["Attributes", "Spans", "provider_name"]

Attributes: TypeAlias = Mapping[str, str | int | float | bool | list[str]]

_PROVIDERS: Final = {
    "bedrock": "aws.bedrock",
    "google": "gcp.gemini",
    "google-cloud": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "moonshotai": "moonshot_ai",
    "openai-responses": "openai",
    "xai": "x_ai",
}
_OWN_NAMES: Final = ("cohere", "huggingface", "perplexity")
"""Providers with a name in the conventions that are reached over another provider's wire format."""
_SECONDS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKENS: Final = tuple(4**exponent for exponent in range(14))
_BOUNDARIES: Final[Mapping[str, Sequence[float]]] = {"s": _SECONDS, "{token}": _TOKENS}
"""Bucket boundaries by unit, as the conventions advise."""
_CONTENT: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_in_turn: Final[contextvars.ContextVar[bool]] = contextvars.ContextVar("clew_turn", default=False)


def provider_name(provider_id: str, kind: str | None) -> str:
    """Return the conventions' name for a provider of this kind, whatever its id in the configuration.

    Servers that speak OpenAI's dialect are ``openai``, as the conventions say for servers that cannot be told apart. A
    kind the conventions do not name keeps clew's name; without a kind the name is the provider's id.
    """
    if kind is None or provider_id in _OWN_NAMES:
        return provider_id
    return _PROVIDERS.get(kind, "openai" if kind == "openai-compatible" else kind)


class Spans:
    """Access to OpenTelemetry, including providers set up after this was created."""

    def __init__(self) -> None:
        from opentelemetry import context, metrics, trace

        self._trace, self._metrics, self._context = trace, metrics, context
        self._tracer = trace.get_tracer("clew", __version__)
        self._meter = metrics.get_meter("clew", __version__)
        self._instruments: dict[str, Histogram] = {}
        self.shows_content = os.environ.get(_CONTENT, "").lower() in ("true", "1", "span_only", "span_and_event")

    @property
    def traces(self) -> bool:
        """Return whether spans are collected: until a provider is set up, there is a proxy."""
        provider = self._trace.get_tracer_provider()
        return not isinstance(provider, self._trace.ProxyTracerProvider | self._trace.NoOpTracerProvider)

    @property
    def measures(self) -> bool:
        return type(self._metrics.get_meter_provider()).__module__.partition(".sdk.")[1] != ""

    @contextlib.contextmanager
    def turn(self, name: str, attributes: Attributes, *, nested: bool) -> Iterator[Span]:
        """Start the span of a turn: a child of the current span if ``nested``, otherwise outside any other turn."""
        context = None if nested or not _in_turn.get() else self._context.Context()
        with self._tracer.start_as_current_span(
            name, context=context, attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            token = _in_turn.set(True)
            try:
                yield span
            finally:
                _in_turn.reset(token)

    @contextlib.contextmanager
    def inner(self, name: str, attributes: Attributes) -> Iterator[Span]:
        """Start a span inside this process; what runs within becomes its child."""
        with self._tracer.start_as_current_span(name, attributes=attributes, record_exception=False) as span:
            yield span

    def fail(self, span: Span, error_type: str) -> None:
        span.set_attribute("error.type", error_type)
        span.set_status(self._trace.StatusCode.ERROR)

    def called(self, call: ModelCall, attributes: Attributes, error_type: str | None) -> None:
        """Record a finished model call, with its stored times."""
        started, ended = call.asked_at, call.ended_at or call.asked_at
        span = self._tracer.start_span(
            f"chat {call.model.model_id}",
            kind=self._trace.SpanKind.CLIENT,
            attributes=attributes,
            start_time=started * 1_000_000,
        )
        if error_type is not None:
            self.fail(span, error_type)
        span.end(end_time=ended * 1_000_000)

    def measure(self, name: str, unit: str, value: float, attributes: Attributes) -> None:
        histogram = self._instruments.get(name)
        if histogram is None:
            create: Callable[..., Any] = self._meter.create_histogram
            boundaries = _BOUNDARIES.get(unit)
            try:
                histogram = create(name, unit=unit, explicit_bucket_boundaries_advisory=boundaries)
            except TypeError:
                # The API accepts the advisory only from 1.30 on.
                histogram = create(name, unit=unit)
            self._instruments[name] = histogram
        histogram.record(value, attributes)
