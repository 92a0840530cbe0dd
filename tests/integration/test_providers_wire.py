"""Real models over real wires: Anthropic messages and OpenAI chat completions, as bytes over a socket.

What a whole answer becomes, what a conversation looks like to the provider, and what is counted. What goes wrong is
in ``test_providers_faults``.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest

from clew.providers.base import ModelRequest, ProviderFailure, StepEnd, ToolSchema
from clew.providers.pydantic_ai import Endpoint, PydanticAIProvider
from clew.providers.pydantic_ai.endpoint import EndpointKind, connect
from clew.providers.pydantic_ai.stream import _CallIds
from clew.transcript import chunk as c
from clew.transcript.chunk import Chunk
from clew.transcript.fold import Fold
from clew.transcript.message import Message
from clew.transcript.session import Model
from clew.transcript.usage import Usage
from tests.integration.wire_server import ANTHROPIC, OPENAI, Step, WireServer, ok

pytestmark = pytest.mark.slow

Items = list[Chunk | StepEnd]
READ = ToolSchema(
    "read",
    "Reads a file.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)
IDS: dict[EndpointKind, str] = {"anthropic": "anthropic", "openai": "openai", "openai-compatible": "local"}


@pytest.fixture
async def wire() -> AsyncIterator[WireServer]:
    async with WireServer() as server:
        yield server


class Talk:
    """A provider that reaches the server."""

    def __init__(self, wire: WireServer, kind: EndpointKind, **options: Any) -> None:
        base_url = wire.url if kind == "anthropic" else f"{wire.url}/v1"
        endpoint = Endpoint(provider_id=IDS[kind], kind=kind, base_url=base_url, api_key="sk-a-key-to-hide")
        self.wire = wire
        self.provider = PydanticAIProvider(endpoint, **options)

    def request(self, *messages: Message, **fields: Any) -> ModelRequest:
        model = fields.pop("model", Model(self.provider.endpoint.provider_id, "some-model"))
        return ModelRequest(model=model, messages=messages or (user("hello"),), **{"system": "", **fields})

    async def play(self, *steps: Step, asked: ModelRequest | None = None, into: Items | None = None) -> Items:
        """What becomes of one reply; every chunk is checked by the fold."""
        self.wire.reply(*steps)
        got: Items = [] if into is None else into
        fold = Fold("answer")
        fold.apply(c.StartStep())
        async for item in self.provider.stream(asked or self.request()):
            if not isinstance(item, StepEnd):
                fold.apply(item)
            got.append(item)
        fold.apply(c.FinishStep())
        return got

    async def body(self, *messages: Message, **fields: Any) -> Any:
        """What the provider is sent for these messages."""
        text = ANTHROPIC.text("ok") if self.provider.endpoint.kind == "anthropic" else OPENAI.text("ok")
        await self.play(*ok(), *text, asked=self.request(*messages, **fields))
        return self.wire.requests[-1].json


@pytest.fixture
async def anthropic(wire: WireServer) -> AsyncIterator[Talk]:
    talk = Talk(wire, "anthropic")
    yield talk
    await talk.provider.close()


@pytest.fixture
async def openai(wire: WireServer) -> AsyncIterator[Talk]:
    talk = Talk(wire, "openai-compatible")
    yield talk
    await talk.provider.close()


def user(text: str, id: str = "m1") -> Message:
    return Message(id, "user", [{"type": "text", "text": text}], {})


def assistant(*parts: dict[str, Any], id: str = "a1") -> Message:
    return Message(id, "assistant", list(parts), {})


def stamp(request: ModelRequest) -> str:
    return _CallIds(request).stamp


def calls_of(items: Items) -> list[Chunk]:
    return [item for item in items if isinstance(item, c.ToolInputAvailable | c.ToolInputError)]


# Answers


async def test_anthropic_text_and_reasoning(anthropic: Talk) -> None:
    """Chunk for chunk; the signature that the provider wants back goes with the reasoning."""
    asked = anthropic.request()
    mark = stamp(asked)
    got = await anthropic.play(
        *ok(),
        ANTHROPIC.start(),
        ANTHROPIC.ping,
        *ANTHROPIC.thinking_block(0, "let me ", "see", signature="signed"),
        *ANTHROPIC.text_block(1, "Grüße, ", "", "世界 🙂"),
        *ANTHROPIC.stop(),
        asked=asked,
    )
    assert got == [
        c.ReasoningStart(f"reasoning_{mark}_1"),
        c.ReasoningDelta(f"reasoning_{mark}_1", "let me "),
        c.ReasoningDelta(f"reasoning_{mark}_1", "see"),
        c.ReasoningEnd(f"reasoning_{mark}_1", provider_metadata={"anthropic": {"signature": "signed"}}),
        c.TextStart(f"text_{mark}_2"),
        c.TextDelta(f"text_{mark}_2", "Grüße, "),
        c.TextDelta(f"text_{mark}_2", "世界 🙂"),
        c.TextEnd(f"text_{mark}_2"),
        StepEnd(
            usage=Usage(input=10, output=5),
            data={"response_id": "msg_1", "response_model": "claude-test"},
        ),
    ]


async def test_openai_text_and_reasoning(openai: Talk) -> None:
    """Reasoning comes in a field of its own, which is remembered to send it back the same way."""
    asked = openai.request()
    mark = stamp(asked)
    got = await openai.play(
        *ok(),
        OPENAI.chunk({"role": "assistant", "content": ""}),
        OPENAI.chunk({"reasoning_content": "let me see"}),
        OPENAI.chunk({"content": "Grüße, "}),
        b": keep-alive\n\n",
        OPENAI.chunk({"content": "世界 🙂"}),
        OPENAI.chunk({}, "stop"),
        OPENAI.usage(),
        OPENAI.done,
        asked=asked,
    )
    assert got == [
        c.ReasoningStart(f"reasoning_{mark}_1"),
        c.ReasoningDelta(f"reasoning_{mark}_1", "let me see"),
        c.ReasoningEnd(f"reasoning_{mark}_1", provider_metadata={"local": {"id": "reasoning_content"}}),
        c.TextStart(f"text_{mark}_2"),
        c.TextDelta(f"text_{mark}_2", "Grüße, "),
        c.TextDelta(f"text_{mark}_2", "世界 🙂"),
        c.TextEnd(f"text_{mark}_2"),
        StepEnd(
            usage=Usage(input=10, output=5),
            data={"response_id": "chatcmpl-1", "response_model": "gpt-test"},
        ),
    ]


async def test_reasoning_that_is_kept_secret_is_still_kept(anthropic: Talk) -> None:
    """There is nothing to read in it, but the provider wants it back."""
    hidden = {"type": "redacted_thinking", "data": "encrypted"}
    asked = anthropic.request()
    got = await anthropic.play(
        *ok(),
        ANTHROPIC.start(),
        *ANTHROPIC.block(0, hidden),
        *ANTHROPIC.text_block(1, "hi"),
        *ANTHROPIC.stop(),
        asked=asked,
    )
    id_ = f"reasoning_{stamp(asked)}_1"
    kept = {"anthropic": {"id": "redacted_thinking", "signature": "encrypted"}}
    assert got[:2] == [c.ReasoningStart(id_), c.ReasoningEnd(id_, provider_metadata=kept)]


async def test_anthropic_tool_calls(anthropic: Talk) -> None:
    """Arguments as they are written, then the calls; one without arguments has none."""
    got = await anthropic.play(
        *ok(),
        ANTHROPIC.start(),
        *ANTHROPIC.text_block(0, "Let me look."),
        *ANTHROPIC.tool_block(1, "toolu_0123456789abcdef", "read", '{"path"', ': "a.txt"}'),
        *ANTHROPIC.tool_block(2, "toolu_abcdef0123456789", "ls"),
        *ANTHROPIC.stop("tool_use"),
    )
    assert got[3:] == [
        c.ToolInputStart("toolu_0123456789abcdef", "read"),
        c.ToolInputDelta("toolu_0123456789abcdef", '{"path"'),
        c.ToolInputDelta("toolu_0123456789abcdef", ': "a.txt"}'),
        c.ToolInputStart("toolu_abcdef0123456789", "ls"),
        c.ToolInputAvailable("toolu_0123456789abcdef", "read", {"path": "a.txt"}),
        c.ToolInputAvailable("toolu_abcdef0123456789", "ls", {}),
        StepEnd(
            usage=Usage(input=10, output=5),
            finish_reason="tool-calls",
            data={"response_id": "msg_1", "response_model": "claude-test"},
        ),
    ]


async def test_openai_tool_calls_that_are_written_in_turns(openai: Talk) -> None:
    """Pieces of two calls may alternate; each goes to its own."""
    first, second = "call_0123456789abcdef", "call_abcdef0123456789"
    got = await openai.play(
        *ok(),
        OPENAI.call(0, first, "read", ""),
        OPENAI.call(1, second, "ls", ""),
        OPENAI.call(0, None, None, '{"path":'),
        OPENAI.call(1, None, None, "{}"),
        OPENAI.call(0, None, None, '"a"}'),
        OPENAI.chunk({}, "stop"),
        OPENAI.usage(),
        OPENAI.done,
    )
    assert got == [
        c.ToolInputStart(first, "read"),
        c.ToolInputStart(second, "ls"),
        c.ToolInputDelta(first, '{"path":'),
        c.ToolInputDelta(second, "{}"),
        c.ToolInputDelta(first, '"a"}'),
        c.ToolInputAvailable(first, "read", {"path": "a"}),
        c.ToolInputAvailable(second, "ls", {}),
        StepEnd(
            usage=Usage(input=10, output=5),
            finish_reason="tool-calls",
            data={"response_id": "chatcmpl-1", "response_model": "gpt-test"},
        ),
    ]


@pytest.mark.parametrize(
    "written", ["{not json", "[1, 2]", '"text"', "null", '{"n": NaN}', '{"a":1}{"b":2}', "[" * 9999]
)
async def test_arguments_that_are_no_object_are_an_error_of_the_call(
    anthropic: Talk, openai: Talk, written: str
) -> None:
    """With what was written, on both wires; the rest of the answer is not affected."""
    error = "the arguments are not a JSON object"
    got = await openai.play(*ok(), *OPENAI.calls(OPENAI.call(0, "call_0123456789abcdef", "read", written)))
    assert calls_of(got) == [c.ToolInputError("call_0123456789abcdef", "read", written, error)]
    got = await anthropic.play(
        *ok(),
        ANTHROPIC.start(),
        *ANTHROPIC.tool_block(0, "toolu_0123456789abcdef", "read", written),
        *ANTHROPIC.stop("tool_use"),
    )
    assert calls_of(got) == [c.ToolInputError("toolu_0123456789abcdef", "read", written, error)]
    assert isinstance(got[-1], StepEnd)


async def test_two_calls_with_the_same_id_become_two(openai: Talk) -> None:
    """Ids that are counted, not drawn, are also told apart from those of other answers."""
    asked = openai.request()
    mark = stamp(asked)
    pieces = [OPENAI.call(index, "call_1", "read", f'{{"path":"{index}"}}') for index in range(2)]
    got = await openai.play(*ok(), *OPENAI.calls(*pieces), asked=asked)
    assert calls_of(got) == [
        c.ToolInputAvailable(f"call_1_{mark}", "read", {"path": "0"}),
        c.ToolInputAvailable(f"call_1_{mark}_2", "read", {"path": "1"}),
    ]


async def test_an_id_that_the_conversation_has_already_is_not_used_again(openai: Talk) -> None:
    """Also a long one."""
    used = "call_0123456789abcdef"
    done = {"type": "tool-read", "toolCallId": used, "input": {}, "state": "output-available", "output": "x"}
    asked = openai.request(user("hello"), assistant({"type": "step-start"}, done))
    got = await openai.play(*ok(), *OPENAI.calls(OPENAI.call(0, used, "read", "{}")), asked=asked)
    assert calls_of(got) == [c.ToolInputAvailable(f"{used}_{stamp(asked)}_2", "read", {})]


@pytest.mark.parametrize(
    ("wire_reason", "reason"),
    [("stop", "stop"), ("length", "length"), ("content_filter", "content-filter"), ("odd", "other")],
)
async def test_openai_finish_reasons(openai: Talk, wire_reason: str, reason: str) -> None:
    """As the contract names them."""
    *_, end = await openai.play(*ok(), OPENAI.chunk({"content": "x"}), OPENAI.chunk({}, wire_reason), OPENAI.done)
    assert isinstance(end, StepEnd)
    assert (end.finish_reason, end.data["usage"]) == (reason, "not reported")


@pytest.mark.parametrize(
    ("wire_reason", "reason"),
    [("end_turn", "stop"), ("max_tokens", "length"), ("refusal", "content-filter"), ("pause_turn", "other")],
)
async def test_anthropic_finish_reasons(anthropic: Talk, wire_reason: str, reason: str) -> None:
    """As the contract names them."""
    *_, end = await anthropic.play(
        *ok(), ANTHROPIC.start(), *ANTHROPIC.text_block(0, "x"), *ANTHROPIC.stop(wire_reason)
    )
    assert isinstance(end, StepEnd)
    assert end.finish_reason == reason


async def test_a_refusal_ends_well(openai: Talk) -> None:
    """It has a field of its own and no other content."""
    got = await openai.play(*ok(), OPENAI.chunk({"refusal": "I will not."}), OPENAI.usage(), OPENAI.done)
    assert [type(item) for item in got] == [StepEnd]
    assert isinstance(got[0], StepEnd)
    assert got[0].finish_reason == "content-filter"


async def test_two_calls_at_a_time_do_not_mix(openai: Talk) -> None:
    """Each has its own connection."""
    answers = await asyncio.gather(
        *(openai.play(*ok(), *OPENAI.text("a", "b"), asked=openai.request(user(str(n)))) for n in range(8))
    )
    assert [[item.delta for item in got if isinstance(item, c.TextDelta)] for got in answers] == [["a", "b"]] * 8


# What is counted


@pytest.mark.rule("US-1")
async def test_anthropic_usage_in_five_kinds_that_do_not_overlap(anthropic: Talk) -> None:
    """On this wire input excludes the cache and output includes the thinking."""
    *_, end = await anthropic.play(
        *ok(),
        ANTHROPIC.start(input_tokens=100, cache_creation_input_tokens=300, cache_read_input_tokens=2000),
        *ANTHROPIC.thinking_block(0, "hm"),
        *ANTHROPIC.text_block(1, "hi"),
        *ANTHROPIC.stop(output_tokens=50, output_tokens_details={"thinking_tokens": 20}),
    )
    assert isinstance(end, StepEnd)
    assert end.usage == Usage(input=100, output=30, reasoning=20, cache_read=2000, cache_write=300)
    assert end.usage.total == 100 + 300 + 2000 + 50


@pytest.mark.rule("US-1")
async def test_openai_usage_in_five_kinds_that_do_not_overlap(openai: Talk) -> None:
    """On this wire input includes the cache and output includes the reasoning."""
    *_, end = await openai.play(
        *ok(),
        OPENAI.chunk({"content": "hi"}),
        OPENAI.chunk({}, "stop"),
        OPENAI.usage(2400, 80, cached=2000, written=100, reasoning=60),
        OPENAI.done,
    )
    assert isinstance(end, StepEnd)
    assert end.usage == Usage(input=300, output=20, reasoning=60, cache_read=2000, cache_write=100)
    assert end.usage.total == 2480


# What is sent

CONVERSATION = [
    user("Look at a.txt", "m1"),
    assistant(
        {"type": "step-start"},
        {
            "type": "reasoning",
            "text": "mine",
            "providerMetadata": {"anthropic": {"signature": "signed"}},
        },
        {
            "type": "reasoning",
            "text": "theirs",
            "providerMetadata": {"local": {"id": "reasoning_content"}},
        },
        {"type": "reasoning", "text": "nobody's"},
        {"type": "text", "text": "I will."},
        {
            "type": "tool-read",
            "toolCallId": "functions.read:0",
            "state": "output-available",
            "input": {"path": "a.txt"},
            "output": {"lines": ["x"]},
        },
        {
            "type": "dynamic-tool",
            "toolName": "ls",
            "toolCallId": "call_2",
            "state": "output-error",
            "input": {},
            "errorText": "no such folder",
        },
        {
            "type": "tool-bash",
            "toolCallId": "call_3",
            "state": "output-denied",
            "input": {"command": "rm"},
            "approval": {"id": "x", "approved": False, "reason": "too risky"},
        },
        {"type": "tool-edit", "toolCallId": "call_4", "state": "output-error", "rawInput": "{oops", "errorText": "bad"},
        {"type": "tool-write", "toolCallId": "call_5", "state": "input-available", "input": {}},
        {"type": "data-compaction", "data": {"summary": "not for the model"}},
        {"type": "source-url", "sourceId": "s", "url": "http://x"},
        {"type": "something-new", "text": "unknown"},
        {"type": "step-start"},
        {"type": "text", "text": "Done."},
        {"type": "text", "text": "  \n"},
    ),
    user("Thanks. ", "m2"),
]


async def test_anthropic_is_sent_the_conversation_step_by_step(anthropic: Talk) -> None:
    """Results after their calls, its own reasoning with its signature and nobody else's, errors as errors."""
    body = await anthropic.body(*CONVERSATION, system="Be brief.", tools=(READ,), max_output_tokens=99, temperature=0.2)
    assert body == {
        "model": "some-model",
        "stream": True,
        "max_tokens": 99,
        "temperature": 0.2,
        "system": "Be brief.",
        "tools": [
            {
                "name": "read",
                "description": "Reads a file.",
                "input_schema": {
                    "type": "object",
                    "properties": {"path": {"type": "string"}},
                    "required": ["path"],
                },
            }
        ],
        "tool_choice": {"type": "auto"},
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Look at a.txt"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "mine", "signature": "signed"},
                    {"type": "text", "text": "I will."},
                    {"type": "tool_use", "id": "functions_read_0", "name": "read", "input": {"path": "a.txt"}},
                    {"type": "tool_use", "id": "call_2", "name": "ls", "input": {}},
                    {"type": "tool_use", "id": "call_3", "name": "bash", "input": {"command": "rm"}},
                    {"type": "tool_use", "id": "call_4", "name": "edit", "input": {"invalid_arguments": "{oops"}},
                    {"type": "tool_use", "id": "call_5", "name": "write", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    _result("functions_read_0", '{"lines":["x"]}'),
                    _result("call_2", "no such folder", error=True),
                    _result("call_3", "The user did not allow this call. Reason: too risky"),
                    _result("call_4", "bad", error=True),
                    _result("call_5", "The call has no result: it was interrupted. What it did is not known."),
                ],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
            {"role": "user", "content": [{"type": "text", "text": "Thanks. "}]},
        ],
    }


def _result(id: str, content: str, *, error: bool = False) -> dict[str, Any]:
    said = [{"type": "text", "text": content}]
    return {"type": "tool_result", "tool_use_id": id, "content": said, "is_error": error}


async def test_openai_is_sent_the_conversation_step_by_step(openai: Talk) -> None:
    """The same conversation, in the other wire's words."""
    body = await openai.body(*CONVERSATION, system="Be brief.", tools=(READ,), max_output_tokens=99, temperature=0.2)

    def call(id: str, name: str, arguments: str) -> dict[str, Any]:
        return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}

    assert body == {
        "model": "some-model",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 99,
        "temperature": 0.2,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "read",
                    "description": "Reads a file.",
                    "parameters": {
                        "type": "object",
                        "properties": {"path": {"type": "string"}},
                        "required": ["path"],
                    },
                },
            }
        ],
        "tool_choice": "auto",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Look at a.txt"},
            {
                "role": "assistant",
                "content": "I will.",
                "reasoning_content": "theirs",
                "tool_calls": [
                    call("functions_read_0", "read", '{"path":"a.txt"}'),
                    call("call_2", "ls", "{}"),
                    call("call_3", "bash", '{"command":"rm"}'),
                    call("call_4", "edit", '{"invalid_arguments":"{oops"}'),
                    call("call_5", "write", "{}"),
                ],
            },
            {"role": "tool", "tool_call_id": "functions_read_0", "content": '{"lines":["x"]}'},
            {"role": "tool", "tool_call_id": "call_2", "content": '{"error":"no such folder"}'},
            {
                "role": "tool",
                "tool_call_id": "call_3",
                "content": "The user did not allow this call. Reason: too risky",
            },
            {"role": "tool", "tool_call_id": "call_4", "content": '{"error":"bad"}'},
            {
                "role": "tool",
                "tool_call_id": "call_5",
                "content": "The call has no result: it was interrupted. What it did is not known.",
            },
            {"role": "assistant", "content": "Done."},
            {"role": "user", "content": "Thanks. "},
        ],
    }


async def test_what_an_answer_became_can_be_sent_back(anthropic: Talk) -> None:
    """Through the fold, as a run stores it: reasoning, text and a call with its result."""
    asked = anthropic.request()
    got = await anthropic.play(
        *ok(),
        ANTHROPIC.start(),
        *ANTHROPIC.thinking_block(0, "I must look", signature="signed"),
        *ANTHROPIC.tool_block(1, "toolu_0123456789abcdef", "read", '{"path":"a"}'),
        *ANTHROPIC.stop("tool_use"),
        asked=asked,
    )
    fold = Fold("a1")
    fold.apply(c.StartStep())
    for item in got:
        if not isinstance(item, StepEnd):
            fold.apply(item)
    fold.apply(c.ToolOutputAvailable("toolu_0123456789abcdef", "contents"))
    fold.apply(c.FinishStep())
    body = await anthropic.body(user("hello"), assistant(*fold.parts))
    assert body["messages"][1:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "I must look", "signature": "signed"},
                {"type": "tool_use", "id": "toolu_0123456789abcdef", "name": "read", "input": {"path": "a"}},
            ],
        },
        {"role": "user", "content": [_result("toolu_0123456789abcdef", "contents")]},
    ]


async def test_files_are_shown_or_named(openai: Talk) -> None:
    """An image as an image, text as text; what is not at hand is named, never fetched."""
    pixel = b"\x89PNG\r\n\x1a\n"
    encoded = base64.b64encode(pixel).decode()
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": "See:"},
        {"type": "file", "mediaType": "image/png", "url": f"data:image/png;base64,{encoded}"},
        {"type": "file", "mediaType": "text/plain", "filename": "a.txt", "url": "data:text/plain,h%C3%A9"},
        {"type": "file", "mediaType": "image/png", "filename": "b.png", "url": "https://example.com/b.png"},
    ]
    body = await openai.body(Message("m1", "user", parts, {}))
    assert body["messages"] == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "See:"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded}"}},
                {"type": "text", "text": "[a.txt]\nhé"},
                {"type": "text", "text": "[b.png (image/png) is not shown]"},
            ],
        }
    ]


@pytest.mark.parametrize("variant", ["low", "high", "none"])
async def test_a_variant_is_how_hard_a_model_thinks(wire: WireServer, variant: str) -> None:
    """For the models that can; the temperature then is theirs."""
    talk = Talk(wire, "openai")
    body = await talk.body(model=Model("openai", "gpt-5.2", variant), temperature=0.2)
    assert (body["reasoning_effort"], "temperature" in body) == (variant, False)
    await talk.provider.close()


async def test_a_variant_nobody_knows_is_refused(openai: Talk) -> None:
    """With those that are known, before anything is sent."""
    with pytest.raises(ProviderFailure, match="has no variant 'loud'; there are none, minimal, low") as caught:
        await openai.body(model=Model("local", "m", "loud"))
    assert (caught.value.kind, openai.wire.requests) == ("invalid", [])


async def test_what_the_environment_holds_for_one_provider_is_not_sent_to_another(
    wire: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDKs read keys, organisations and headers by themselves; only their makers' endpoints get them."""
    for name in (
        "OPENAI_API_KEY",
        "OPENAI_ADMIN_KEY",
        "OPENAI_ORG_ID",
        "OPENAI_PROJECT_ID",
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
    ):
        monkeypatch.setenv(name, "a-foreign-secret")
    for name in ("OPENAI_CUSTOM_HEADERS", "ANTHROPIC_CUSTOM_HEADERS"):
        monkeypatch.setenv(name, "x-foreign: a-foreign-secret")
    kinds: tuple[EndpointKind, ...] = ("openai-compatible", "anthropic")
    for kind in kinds:
        talk = Talk(wire, kind)
        await talk.body()
        await talk.provider.close()
    assert [name for seen in wire.requests for name, value in seen.headers.items() if "foreign" in name + value] == []
    assert [seen.headers["authorization"] for seen in wire.requests] == ["Bearer sk-a-key-to-hide"] * 2


@pytest.mark.parametrize(
    ("kind", "home"), [("openai", "https://api.openai.com/v1/"), ("anthropic", "https://api.anthropic.com")]
)
def test_without_an_address_a_provider_is_its_makers(
    kind: EndpointKind, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the environment sends it elsewhere is decided by the registry, not by an SDK on its own."""
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/elsewhere")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9/elsewhere")
    connection = connect(Endpoint(provider_id=kind, kind=kind, api_key="k" * 20, ambient=True), 1_000)
    assert connection.base_url.rstrip("/") == home.rstrip("/")


async def test_what_a_provider_hangs_on_a_call_goes_back_with_it(openai: Talk) -> None:
    """Some sign their calls and refuse a conversation without the signature."""
    signed = {"google": {"thought_signature": "signed"}}
    call = {
        "index": 0,
        "id": "call_0123456789abcdef",
        "type": "function",
        "function": {"name": "read", "arguments": "{}"},
        "extra_content": signed,
    }
    got = await openai.play(*ok(), *OPENAI.calls(OPENAI.chunk({"tool_calls": [call]})))
    assert calls_of(got) == [
        c.ToolInputAvailable(
            "call_0123456789abcdef", "read", {}, provider_metadata={"local": {"details": {"extra_content": signed}}}
        )
    ]
    fold = Fold("a1")
    for item in got:
        if not isinstance(item, StepEnd):
            fold.apply(item)
    fold.apply(c.ToolOutputAvailable("call_0123456789abcdef", "contents"))
    body = await openai.body(user("hello"), assistant(*fold.parts))
    assert body["messages"][1]["tool_calls"][0]["extra_content"] == signed
