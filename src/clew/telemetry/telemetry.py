"""Telemetry of runs. Counting is always on and costs a few additions per event; the metrics have Prometheus' text
format.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import orjson

from clew.errors import ClewError
from clew.telemetry.spans import Spans, provider_name
from clew.transcript.message import Message
from clew.transcript.model_call import ModelCall
from clew.transcript.part import (
    Part,
    call_id_of,
    input_of,
    is_call,
    is_open_call,
    kind_of,
    result_text,
    text_of,
    tool_name,
)
from clew.transcript.session import Model
from clew.transcript.usage import Usage

if TYPE_CHECKING:
    from opentelemetry.trace import Span

__all__ = ["Doing", "Telemetry"]

_Attributes: TypeAlias = dict[str, str | int | float | bool | list[str]]
_MODEL: Final = ("provider", "model")
_BOUNDS: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
_MAX_LABEL_SETS: Final = 500
"""Label sets of one metric. Normally there are few tools and models; invented names must not exhaust memory."""
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Doing:
    """A measured activity: ``ended`` is a label such as ``completed``, ``error`` the reason of a failure."""

    def __init__(self, ended: str) -> None:
        self.ended = ended
        self.error: str | None = None
        self.attributes: _Attributes = {}


class Telemetry:
    """The metrics and spans of one engine."""

    def __init__(self) -> None:
        self.metrics = _Metrics()
        self._created: Spans | None = None

    @property
    def _spans(self) -> Spans | None:
        # A program that has set OpenTelemetry up has imported it; others do not pay for the import.
        if self._created is None and "opentelemetry.trace" in sys.modules:
            self._created = Spans()
        return self._created

    def turn(
        self, session_id: str, turn_id: str, agent: str, model: Model, *, kind: str | None = None, subagent: bool
    ) -> AbstractContextManager[Doing]:
        def begin(spans: Spans) -> AbstractContextManager[Span]:
            attributes = {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": agent,
                "gen_ai.conversation.id": session_id,
                "gen_ai.provider.name": provider_name(model.provider_id, kind),
                "gen_ai.request.model": model.model_id,
                "clew.turn.id": turn_id,
            }
            return spans.turn(f"invoke_agent {agent}", attributes, nested=subagent)

        return self._measure("clew_turns_total", begin, seconds="clew_turn_seconds", ended_as="clew.turn.status")

    @contextlib.contextmanager
    def tool(self, name: str, call_id: str, arguments: Mapping[str, Any]) -> Iterator[Doing]:
        def begin(spans: Spans) -> AbstractContextManager[Span]:
            attributes = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": name,
                "gen_ai.tool.type": "function",
                "gen_ai.tool.call.id": call_id,
            }
            if spans.shows_content:
                attributes["gen_ai.tool.call.arguments"] = _json(arguments)
            return spans.inner(f"execute_tool {name}", attributes)

        with self._measure("clew_tool_calls_total", begin, name, seconds="clew_tool_seconds") as doing:
            try:
                yield doing
                doing.ended = "completed"
            except asyncio.CancelledError:
                doing.ended = "stopped"
                raise

    def gave(self, doing: Doing, result: Any) -> None:
        """Record the result of a tool, if content is captured."""
        if self._spans is not None and self._spans.shows_content and self._spans.traces:
            doing.attributes["gen_ai.tool.call.result"] = _json(result)

    def compaction(self, session_id: str) -> AbstractContextManager[Doing]:
        def begin(spans: Spans) -> AbstractContextManager[Span]:
            return spans.inner("clew.compact", {"gen_ai.conversation.id": session_id})

        return self._measure("clew_compactions_total", begin, ended_as="clew.compaction.strategy")

    @contextlib.contextmanager
    def _measure(
        self,
        figure: str,
        begin: Callable[[Spans], AbstractContextManager[Span]],
        *labels: str,
        seconds: str | None = None,
        ended_as: str | None = None,
    ) -> Iterator[Doing]:
        """Count an activity, time it as ``seconds``, and record a span (if collected) with the outcome ``ended_as``."""
        doing, started = Doing("failed"), time.perf_counter()
        with contextlib.ExitStack() as stack:
            spans = self._spans
            span = stack.enter_context(begin(spans)) if spans is not None and spans.traces else None
            try:
                yield doing
            except Exception as error:
                doing.error = _error_type(error)
                raise
            finally:
                self.metrics.count(figure, *labels, doing.ended)
                if seconds is not None:
                    self.metrics.time(seconds, time.perf_counter() - started, *labels)
                if span is not None and spans is not None:
                    span.set_attributes(
                        doing.attributes if ended_as is None else {**doing.attributes, ended_as: doing.ended}
                    )
                    if doing.error is not None:
                        spans.fail(span, doing.error)

    def called(
        self,
        call: ModelCall,
        failure: BaseException | None,
        sent: Sequence[Message],
        reply: Sequence[Part],
        finish_reason: str | None = None,
        *,
        answered: Mapping[str, Any] = MappingProxyType({}),
        kind: str | None = None,
    ) -> None:
        """Record a finished model call from its row; ``sent`` and ``reply`` only where content is captured.

        ``answered`` has the id and the model of the provider's response, ``kind`` is that of its endpoint.
        """
        took = ((call.ended_at or call.asked_at) - call.asked_at) / 1000
        first = None if call.first_chunk_at is None else (call.first_chunk_at - call.asked_at) / 1000
        self._count_call(call, took, first)
        spans = self._spans
        if spans is None or not (spans.traces or spans.measures):
            return
        error_type = None if failure is None else _error_type(failure)
        request = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider_name(call.model.provider_id, kind),
            "gen_ai.request.model": call.model.model_id,
        }
        model = answered.get("response_model")
        response = {} if not model else {"gen_ai.response.model": str(model)}
        if spans.traces:
            attributes = {**request, **_call_attributes(call), **response}
            if first is not None:
                attributes["gen_ai.response.time_to_first_chunk"] = first
            if finish_reason is not None:
                attributes["gen_ai.response.finish_reasons"] = [finish_reason]
            if response_id := answered.get("response_id"):
                attributes["gen_ai.response.id"] = str(response_id)
            if spans.shows_content:
                messages = [{"role": message.role, "parts": _parts(message.parts)} for message in sent]
                attributes["gen_ai.input.messages"] = _json(messages)
                answer = {"role": "assistant", "parts": _parts(reply), "finish_reason": finish_reason or call.ended}
                attributes["gen_ai.output.messages"] = _json([answer])
            spans.called(call, attributes, error_type)
        if spans.measures:
            _measure_call(spans, call, {**request, **response}, took, first, error_type)

    def _count_call(self, call: ModelCall, took: float, first: float | None) -> None:
        metrics, provider, model = self.metrics, call.model.provider_id, call.model.model_id
        metrics.count("clew_model_calls_total", provider, model, call.purpose, call.ended)
        metrics.time("clew_model_call_seconds", took, provider, model)
        if first is not None:
            metrics.time("clew_first_chunk_seconds", first, provider, model)
        for type_ in ("input", "output", "reasoning", "cache_read", "cache_write"):
            if tokens := getattr(call.usage, type_):
                metrics.count("clew_tokens_total", provider, model, type_, by=tokens)
        if call.cost_usd:
            metrics.count("clew_cost_usd_total", provider, model, by=call.cost_usd)


def _call_attributes(call: ModelCall) -> _Attributes:
    input_tokens, output_tokens = _inclusive(call.usage)
    ids = {"gen_ai.conversation.id": call.session_id, "clew.turn.id": call.turn_id}
    return {
        **{key: value for key, value in ids.items() if value is not None},
        "gen_ai.request.stream": True,
        "gen_ai.usage.input_tokens": input_tokens,
        "gen_ai.usage.output_tokens": output_tokens,
        "gen_ai.usage.reasoning.output_tokens": call.usage.reasoning,
        "gen_ai.usage.cache_read.input_tokens": call.usage.cache_read,
        "gen_ai.usage.cache_creation.input_tokens": call.usage.cache_write,
        "clew.cost_usd": call.cost_usd,
        "clew.call.purpose": call.purpose,
        "clew.call.ended": call.ended,
        "clew.call.estimated": call.estimated,
    }


def _measure_call(
    spans: Spans, call: ModelCall, attributes: dict[str, str], took: float, first: float | None, error_type: str | None
) -> None:
    failed = {} if error_type is None else {"error.type": error_type}
    spans.measure("gen_ai.client.operation.duration", "s", took, {**attributes, **failed})
    if first is not None:
        spans.measure("gen_ai.client.operation.time_to_first_chunk", "s", first, attributes)
    for type_, tokens in zip(("input", "output"), _inclusive(call.usage), strict=True):
        if tokens:
            spans.measure("gen_ai.client.token.usage", "{token}", tokens, {**attributes, "gen_ai.token.type": type_})
    if call.cost_usd:
        spans.measure("clew.cost", "{USD}", call.cost_usd, attributes)


def _inclusive(usage: Usage) -> tuple[int, int]:
    """Return the tokens as the conventions count them: input includes cached tokens, output includes reasoning."""
    return usage.input + usage.cache_read + usage.cache_write, usage.output + usage.reasoning


def _parts(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Return message parts in the conventions' format: texts, reasoning, tool calls and their results."""
    converted: list[dict[str, Any]] = []
    for part in parts:
        kind = kind_of(part)
        if is_call(part):
            converted.append(
                {"type": "tool_call", "id": call_id_of(part), "name": tool_name(part), "arguments": input_of(part)}
            )
            if not is_open_call(part):
                converted.append({"type": "tool_call_response", "id": call_id_of(part), "response": result_text(part)})
        elif kind in ("text", "reasoning"):
            converted.append({"type": kind, "content": text_of(part)})
        else:
            converted.append({"type": kind})
    return converted


def _json(value: Any) -> str:
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def _error_type(error: BaseException) -> str:
    """Return a low-cardinality label: a provider's kind of failure, or an error code."""
    if isinstance(error, ClewError):
        return str(getattr(error, "kind", None) or error.code)
    return type(error).__name__


class _Kind(NamedTuple):
    type: str
    labels: tuple[str, ...]
    help: str


_KINDS: Final = {
    "clew_turns_total": _Kind("counter", ("status",), "Ended turns by status."),
    "clew_turn_seconds": _Kind("histogram", (), "Duration of turns."),
    "clew_model_calls_total": _Kind("counter", (*_MODEL, "purpose", "ended"), "Model calls by purpose and outcome."),
    "clew_model_call_seconds": _Kind("histogram", _MODEL, "Time from a model request to the end of the response."),
    "clew_first_chunk_seconds": _Kind(
        "histogram", _MODEL, "Time from a model request to the first chunk of the response."
    ),
    "clew_tokens_total": _Kind("counter", (*_MODEL, "type"), "Tokens of all model calls; each token has one type."),
    "clew_cost_usd_total": _Kind("counter", _MODEL, "Cost of model calls in US dollars, where prices are known."),
    "clew_tool_calls_total": _Kind("counter", ("tool", "result"), "Executed tool calls by result."),
    "clew_tool_seconds": _Kind("histogram", ("tool",), "Duration of tool calls."),
    "clew_compactions_total": _Kind("counter", ("strategy",), "Compactions by strategy."),
}


class _Metrics:
    """The metrics, updated on the event loop. Label sets beyond ``_MAX_LABEL_SETS`` are counted as ``other``."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in _KINDS}
        self._buckets: dict[str, dict[tuple[str, ...], list[int]]] = {
            name: {} for name, kind in _KINDS.items() if kind.type == "histogram"
        }

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        counts = self._counts[name]
        labels = self._bounded(counts, labels)
        counts[labels] = counts.get(labels, 0) + by

    def time(self, name: str, seconds: float, *labels: str) -> None:
        self.count(name, *labels, by=seconds)
        buckets = self._buckets[name]
        found = buckets.setdefault(self._bounded(buckets, labels), [0] * (len(_BOUNDS) + 1))
        found[bisect_left(_BOUNDS, seconds)] += 1

    def text(self, now: Mapping[str, tuple[str, float]]) -> str:
        """Format for Prometheus; ``now`` holds current values, each with its help text."""
        lines: list[str] = []
        for name, kind in _KINDS.items():
            lines += (f"# HELP {name} {kind.help}", f"# TYPE {name} {kind.type}")
            for labels, value in self._counts[name].items():
                if kind.type == "counter":
                    lines.append(f"{name}{_format_labels(zip(kind.labels, labels, strict=True))} {value:.12g}")
                else:
                    lines += _histogram(name, kind, labels, value, self._buckets[name][labels])
        for name, (help_text, value) in now.items():
            type_ = "counter" if name.endswith("_total") else "gauge"
            lines += (f"# HELP {name} {help_text}", f"# TYPE {name} {type_}", f"{name} {value:.12g}")
        return "\n".join(lines) + "\n"

    @staticmethod
    def _bounded(existing: Mapping[tuple[str, ...], object], labels: tuple[str, ...]) -> tuple[str, ...]:
        return labels if labels in existing or len(existing) < _MAX_LABEL_SETS else ("other",) * len(labels)


def _histogram(name: str, kind: _Kind, labels: tuple[str, ...], total: float, buckets: list[int]) -> list[str]:
    pairs = list(zip(kind.labels, labels, strict=True))
    lines, count = [], 0
    for bound, in_bucket in zip((*_BOUNDS, None), buckets, strict=True):
        count += in_bucket
        upper = "+Inf" if bound is None else f"{bound:g}"
        lines.append(f"{name}_bucket{_format_labels([*pairs, ('le', upper)])} {count}")
    return [*lines, f"{name}_sum{_format_labels(pairs)} {total:.12g}", f"{name}_count{_format_labels(pairs)} {count}"]


def _format_labels(pairs: Iterable[tuple[str, str]]) -> str:
    labels = ",".join(f'{key}="{value.translate(_ESCAPES)}"' for key, value in pairs)
    return f"{{{labels}}}" if labels else ""
