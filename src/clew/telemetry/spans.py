"""Spans: turns, model calls, tools and compactions told to OpenTelemetry, by the names of its GenAI conventions.

The host, or `clew serve`, sets OpenTelemetry up; clew only speaks to its API. Where that is not installed, or nobody
has set anything up, nothing is made. What people and models said is told only where the conventions' own variable,
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
_NAMED: Final = ("cohere", "huggingface", "perplexity")
"""Providers with a name of their own that are reached over the wire of another kind."""
_SECONDS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKENS: Final = tuple(4**exponent for exponent in range(14))
_BOUNDARIES: Final[Mapping[str, Sequence[float]]] = {"s": _SECONDS, "{token}": _TOKENS}
"""Bucket boundaries of histograms by unit, as the conventions advise."""
_CONTENT: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_inside: Final[contextvars.ContextVar[bool]] = contextvars.ContextVar("clew_turn", default=False)


def provider_name(provider_id: str, kind: str | None) -> str:
    """Return what the conventions call a provider of this kind, under any id in the configuration.

    Servers that speak OpenAI's dialect are ``openai``, as the conventions have it for what cannot be told apart. A kind
    the conventions do not name keeps clew's name for it; without a kind the name is the provider's id.
    """
    if kind is None or provider_id in _NAMED:
        return provider_id
    return _PROVIDERS.get(kind, "openai" if kind == "openai-compatible" else kind)


class Spans:
    """Speaks to whatever OpenTelemetry was set up with, also after this was made."""

    def __init__(self) -> None:
        from opentelemetry import context, metrics, trace

        self._trace, self._metrics, self._context = trace, metrics, context
        self._tracer = trace.get_tracer("clew", __version__)
        self._meter = metrics.get_meter("clew", __version__)
        self._instruments: dict[str, Histogram] = {}
        self.shows_content = os.environ.get(_CONTENT, "").lower() in ("true", "1", "span_only", "span_and_event")

    @property
    def traces(self) -> bool:
        """Whether anybody collects spans: until a provider is set up there is a proxy in its place."""
        provider = self._trace.get_tracer_provider()
        return not isinstance(provider, self._trace.ProxyTracerProvider | self._trace.NoOpTracerProvider)

    @property
    def measures(self) -> bool:
        return type(self._metrics.get_meter_provider()).__module__.partition(".sdk.")[1] != ""

    @contextlib.contextmanager
    def turn(self, name: str, attributes: Attributes, *, nested: bool) -> Iterator[Span]:
        """``nested``: it belongs to what goes on now. Any other turn that a turn has begun stands by itself."""
        outer = None if nested or not _inside.get() else self._context.Context()
        with self._tracer.start_as_current_span(
            name, context=outer, attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            mark = _inside.set(True)
            try:
                yield span
            finally:
                _inside.reset(mark)

    @contextlib.contextmanager
    def inner(self, name: str, attributes: Attributes) -> Iterator[Span]:
        """Something that goes on inside this process; what it does in turn is told as a part of it."""
        with self._tracer.start_as_current_span(name, attributes=attributes, record_exception=False) as span:
            yield span

    def fail(self, span: Span, error_type: str) -> None:
        span.set_attribute("error.type", error_type)
        span.set_status(self._trace.StatusCode.ERROR)

    def called(self, call: ModelCall, attributes: Attributes, error_type: str | None) -> None:
        """A model call that has ended, with the times it was noted to have."""
        begun, ended = call.asked_at, call.ended_at or call.asked_at
        span = self._tracer.start_span(
            f"chat {call.model.model_id}",
            kind=self._trace.SpanKind.CLIENT,
            attributes=attributes,
            start_time=begun * 1_000_000,
        )
        if error_type is not None:
            self.fail(span, error_type)
        span.end(end_time=ended * 1_000_000)

    def measure(self, name: str, unit: str, value: float, attributes: Attributes) -> None:
        found = self._instruments.get(name)
        if found is None:
            make: Callable[..., Any] = self._meter.create_histogram
            advised = _BOUNDARIES.get(unit)
            try:
                found = make(name, unit=unit, explicit_bucket_boundaries_advisory=advised)
            except TypeError:
                # Before 1.30 the API took no advice.
                found = make(name, unit=unit)
            self._instruments[name] = found
        found.record(value, attributes)
