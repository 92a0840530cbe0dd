"""What a run does, told to OpenTelemetry by the names of its conventions, and to Prometheus as a page of plain text."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from prometheus_client.parser import text_string_to_metric_families

import clew
from clew.providers.base import EndpointKind
from clew.providers.registry import ProviderConfig, ProviderRegistry
from clew.telemetry.spans import Spans
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, call, cut_after, fail, say, then, wait
from clew.transcript.usage import Usage
from tests.integration.http_client import served
from tests.integration.processes import serving
from tests.integration.wire_server import WireServer, ok
from tests.integration.wired import SHORT

pytestmark = pytest.mark.rule("OT-1")
ALLOWED = [clew.Rule("look_up", "*", "allow")]
CONVENTION = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """A collector of spans that somebody has set up."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return exporter


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> InMemoryMetricReader:
    reader = InMemoryMetricReader()
    monkeypatch.setattr(metrics._internal, "_METER_PROVIDER", MeterProvider([reader]))
    return reader


@clew.tool
async def look_up(word: str) -> str:
    """Look a word up."""
    with trace.get_tracer("host").start_as_current_span("the host's own"):
        return f"{word} opens the door"


def shape(spans: Sequence[ReadableSpan]) -> list[tuple[str, str | None]]:
    """Each span with the one it is a part of."""
    names = {span.context.span_id: span.name for span in spans}
    pairs = [(span.name, names[span.parent.span_id] if span.parent else None) for span in spans]
    return sorted(pairs, key=lambda pair: (pair[0], pair[1] or ""))


def attributes(spans: Sequence[ReadableSpan], name: str) -> list[dict[str, Any]]:
    return [dict(span.attributes or {}) for span in spans if span.name == name]


def script() -> ScriptedModel:
    usage = Usage(input=10, output=3, reasoning=2, cache_read=5, cache_write=1)
    return ScriptedModel([then(call("look_up", {"word": "swordfish"}, id="call_1"), usage=usage), say("a silver key")])


async def talk(model: ScriptedModel, text: str = "say the magic word") -> tuple[str, str]:
    async with clew.open(
        "memory:",
        config=clew.Config(),
        providers=FakeProviders(model),
        tools=[look_up],
        rules=[clew.Rule("look_up", "*", "allow")],
    ) as engine:
        session = await engine.create_session(model="test/wise")
        submission = await engine.submit(session.id, text)
        outcome = await submission.wait()
        return session.id, outcome.turn_id


async def test_a_turn_its_model_calls_and_its_tools_are_spans_of_one_another(told: InMemorySpanExporter) -> None:
    """By the conventions' names; and what a tool does of its own is told as a part of it."""
    session_id, turn_id = await talk(script())
    spans = [span for span in told.get_finished_spans() if "title" not in str(span.attributes)]
    turn, tool = "invoke_agent assistant", "execute_tool look_up"
    assert shape(spans) == [
        ("chat wise", turn),
        ("chat wise", turn),
        (tool, turn),
        ("invoke_agent assistant", None),
        ("the host's own", tool),
    ]
    assert attributes(spans, turn) == [
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "assistant",
            "gen_ai.conversation.id": session_id,
            "gen_ai.provider.name": "test",
            "gen_ai.request.model": "wise",
            "clew.turn.id": turn_id,
            "clew.turn.status": "completed",
        }
    ]
    assert attributes(spans, tool) == [
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "look_up",
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": "call_1",
        }
    ]
    first, second = attributes(spans, "chat wise")
    assert first.pop("gen_ai.response.time_to_first_chunk") >= 0
    assert first == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "test",
        "gen_ai.request.model": "wise",
        "gen_ai.conversation.id": session_id,
        "clew.turn.id": turn_id,
        "gen_ai.request.stream": True,
        "gen_ai.usage.input_tokens": 16,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.reasoning.output_tokens": 2,
        "gen_ai.usage.cache_read.input_tokens": 5,
        "gen_ai.usage.cache_creation.input_tokens": 1,
        "gen_ai.response.finish_reasons": ("tool-calls",),
        "clew.cost_usd": 0.0,
        "clew.call.purpose": "answer",
        "clew.call.ended": "completed",
        "clew.call.estimated": False,
    }
    assert second["gen_ai.response.finish_reasons"] == ("stop",)
    named = {key for span in spans for key in span.attributes or {} if key.startswith("gen_ai.")}
    if "gen_ai.usage.reasoning.output_tokens" in CONVENTION:  # the oldest library that works knows fewer names
        assert named <= CONVENTION
    assert {span.kind.name for span in spans if span.name.startswith("chat")} == {"CLIENT"}


async def test_what_was_said_is_told_only_where_somebody_asks_for_it(
    told: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = ("the magic word", "swordfish", "opens the door", "a silver key")
    await talk(script())
    assert not [word for word in secrets for span in told.get_finished_spans() if word in span.to_json()]
    told.clear()
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    await talk(script())
    spans = told.get_finished_spans()
    assert [word for word in secrets if not any(word in span.to_json() for span in spans)] == []
    [tool] = attributes(spans, "execute_tool look_up")
    assert (tool["gen_ai.tool.call.arguments"], tool["gen_ai.tool.call.result"]) == (
        '{"word":"swordfish"}',
        '"swordfish opens the door"',
    )


async def test_a_call_that_fails_says_why_and_a_turn_that_fails_too(told: InMemorySpanExporter) -> None:
    await talk(ScriptedModel([cut_after(2, say("half an answer"), by=fail(401, "no such key"))]))
    spans = told.get_finished_spans()
    [called] = attributes(spans, "chat wise")
    [turn] = attributes(spans, "invoke_agent assistant")
    assert (called["clew.call.ended"], turn["clew.turn.status"]) == ("cut", "failed")
    assert (called["error.type"], turn["error.type"]) == ("auth", "model_failed")
    assert {span.status.status_code.name for span in spans} == {"ERROR"}


async def test_metrics_have_the_conventions_names_and_units(measured: InMemoryMetricReader) -> None:
    await talk(script())
    found = metrics_of(measured)
    units = {metric.name: metric.unit for metric in found}
    assert units == {
        "gen_ai.client.operation.duration": "s",
        "gen_ai.client.operation.time_to_first_chunk": "s",
        "gen_ai.client.token.usage": "{token}",
    }
    [tokens] = [metric for metric in found if metric.name == "gen_ai.client.token.usage"]
    kinds = {dict(point.attributes or {})["gen_ai.token.type"] for point in tokens.data.data_points}
    assert kinds == {"input", "output"}


@pytest.mark.parametrize(
    ("name", "kind", "provider"),
    [
        ("work", "anthropic", "anthropic"),
        ("work", "openai", "openai"),
        ("work", "openai-responses", "openai"),
        ("cohere", "openai-compatible", "cohere"),
        ("work", "openai-compatible", "openai"),
    ],
)
async def test_a_model_call_names_its_provider_by_kind_and_what_the_response_was_called(
    name: str, kind: EndpointKind, provider: str, told: InMemorySpanExporter, measured: InMemoryMetricReader
) -> None:
    """On the real wire, whatever the provider is called in the configuration."""
    said = {"anthropic": SHORT["anthropic"], "openai-responses": SHORT["openai-responses"]}.get(kind, SHORT["openai"])
    async with WireServer(lambda _: [*ok(), *said]) as wire:
        base_url = wire.url if kind == "anthropic" else f"{wire.url}/v1"
        config = ProviderConfig(kind=kind, base_url=base_url, api_key="k", models=["m"])
        registry = ProviderRegistry({name: config}, default_model=f"{name}/m", environ={})
        async with clew.open("memory:", config=clew.Config(), providers=registry) as engine:
            session = await engine.create_session(title="named")
            assert (await (await engine.submit(session.id, "go")).wait()).status == "completed"
    spans = told.get_finished_spans()
    [turn], [called] = attributes(spans, "invoke_agent assistant"), attributes(spans, "chat m")
    response = {"anthropic": ("msg_1", "claude-test"), "openai-responses": ("resp_1", "gpt-test")}
    assert (turn["gen_ai.provider.name"], called["gen_ai.provider.name"]) == (provider, provider)
    assert (called["gen_ai.response.id"], called["gen_ai.response.model"]) == response.get(
        kind, ("chatcmpl-1", "gpt-test")
    )
    points = [point for metric in metrics_of(measured) for point in metric.data.data_points]
    assert {dict(point.attributes)["gen_ai.provider.name"] for point in points} == {provider}
    assert {dict(point.attributes)["gen_ai.response.model"] for point in points} == {called["gen_ai.response.model"]}


def metrics_of(reader: InMemoryMetricReader) -> list[Any]:
    data = reader.get_metrics_data()
    assert data is not None
    return [metric for one in data.resource_metrics for scope in one.scope_metrics for metric in scope.metrics]


async def test_histograms_have_the_boundaries_that_the_conventions_advise(measured: InMemoryMetricReader) -> None:
    await talk(script())
    seconds = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
    tokens = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
    assert {metric.name: metric.data.data_points[0].explicit_bounds for metric in metrics_of(measured)} == {
        "gen_ai.client.operation.duration": seconds,
        "gen_ai.client.operation.time_to_first_chunk": seconds,
        "gen_ai.client.token.usage": tokens,
    }


async def test_nothing_is_made_where_nobody_has_set_anything_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("nobody listens")

    for name in ("turn", "inner", "called", "measure"):
        monkeypatch.setattr(Spans, name, never)
    async with clew.open(
        "memory:",
        config=clew.Config(),
        providers=FakeProviders(script()),
        tools=[look_up],
        rules=[clew.Rule("look_up", "*", "allow")],
    ) as engine:
        session = await engine.create_session(model="test/wise")
        assert (await (await engine.submit(session.id, "go")).wait()).status == "completed"


async def test_the_page_of_figures_tells_what_was_done_and_used_to_whoever_has_the_token() -> None:
    async with served(
        providers=FakeProviders(script()), tools=[look_up], rules=[clew.Rule("look_up", "*", "allow")]
    ) as client:
        session_id = await client.session(model="test/wise")
        await client.chat(session_id, "go")
        answer = await client.get("/metrics")
        assert (answer.status, answer.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        families = {family.name: family for family in text_string_to_metric_families(answer.body.decode())}
        assert (await client.get("/metrics", headers={"authorization": None})).status == 401
    values = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in families.values()
        for sample in family.samples
        if "_bucket" not in sample.name and "seconds" not in sample.name
    }
    assert values["clew_turns_total", "completed"] == 1
    assert values["clew_tool_calls_total", "completed", "look_up"] == 1
    assert values["clew_tokens_total", "cache_read", "test", "wise"] == 5
    assert values["clew_running_sessions",] == 0
    assert families["clew_first_chunk_seconds"].type == "histogram"
    buckets = [one for one in families["clew_first_chunk_seconds"].samples if one.name.endswith("_bucket")]
    assert (buckets[-1].labels["le"], buckets[-1].value) == ("+Inf", 2)


async def test_a_queued_turn_stands_by_itself_and_a_subagent_is_a_part_of_its_call(told: InMemorySpanExporter) -> None:
    """Though both are begun by a turn."""
    gate = Gate()
    asks = call("task", {"prompt": "look around"}, id="call_1")
    model = ScriptedModel([(wait(gate), asks), say("found"), say("done"), say("next")])
    rules = [clew.Rule("task", "*", "allow")]
    async with clew.open("memory:", config=clew.Config(), providers=FakeProviders(model), rules=rules) as engine:
        session = await engine.create_session(model="test/wise")
        first = await engine.submit(session.id, "go")
        await gate.reached.wait()
        second = await engine.submit(session.id, "and then?")
        gate.set()
        await first.wait()
        assert (await second.wait()).status == "completed"
    turns = [pair for pair in shape(told.get_finished_spans()) if pair[0].startswith("invoke_agent")]
    assert turns == [
        ("invoke_agent assistant", None),
        ("invoke_agent assistant", None),
        ("invoke_agent assistant", "execute_tool task"),
    ]


@pytest.mark.slow
async def test_a_server_sends_what_it_does_to_the_collector_its_environment_names(tmp_path: Path) -> None:
    """By OTLP over HTTP, as any other program; and what is left when it ends is sent then."""
    sent: dict[str, bytes] = {}

    async def collect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        size = int(re.search(r"(?i)content-length: (\d+)", head)[1])  # type: ignore[index]
        path = head.split(" ")[1]
        sent[path] = sent.get(path, b"") + await reader.readexactly(size)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(collect, "127.0.0.1", 0) as collector:
        port = collector.sockets[0].getsockname()[1]
        told = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
        }
        async with serving(tmp_path, **told) as server:
            session_id = await server.client.session(model="demo/echo")
            await server.client.chat(session_id, "hello")
            server.process.terminate()
            await server.process.wait()
    assert {path for path, data in sent.items() if b"gen_ai" in data} == {"/v1/traces", "/v1/metrics"}
    assert b"invoke_agent assistant" in sent["/v1/traces"]
    assert b"hello" not in b"".join(sent.values())


async def test_a_call_that_is_stopped_counts_as_that_and_costs_are_added_up(told: InMemorySpanExporter) -> None:
    """Of prices that are known, to whoever reads the page of figures."""
    gate = Gate()

    @clew.tool
    async def hang() -> str:
        """Wait."""
        await gate.wait()
        return "never"

    usage = Usage(input=1_000, output=1_000)
    model = ScriptedModel([then(say("hello"), usage=usage), then(call("hang", {}), usage=usage)])
    providers = FakeProviders(model, cost=lambda _, used: used.output / 1_000_000)
    rules = [clew.Rule("hang", "*", "allow")]
    async with served(providers=providers, tools=[hang], rules=rules) as client:
        session_id = await client.session(model="test/wise")
        await client.chat(session_id, "go")
        await client.prompt(session_id, "and now?")
        await gate.reached.wait()
        await client.post(f"/api/sessions/{session_id}/abort")
        await client.idle(session_id)
        spent = (await client.engine.get_session(session_id)).spend.cost_usd
        page = (await client.get("/metrics")).body.decode()
    values = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    assert (values["clew_tool_calls_total", "hang", "stopped"], values["clew_turns_total", "aborted"]) == (1, 1)
    assert spent > 0
    assert values["clew_cost_usd_total", "test", "wise"] == pytest.approx(spent)
