"""What real models are sent: the conversation step by step, files, variants, and nothing of another provider."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from clew.providers.base import EndpointKind, ProviderFailure, StepEnd, ToolSchema
from clew.providers.pydantic_ai import Endpoint
from clew.providers.pydantic_ai.endpoint import connect
from clew.transcript import chunk as c
from clew.transcript.fold import Fold
from clew.transcript.message import Message
from clew.transcript.session import Model
from tests.integration.wire_server import ANTHROPIC, OPENAI, WireServer, ok
from tests.integration.wire_talk import IDS, Talk, anthropic, assistant, calls_of, openai, user, wire

__all__ = ["anthropic", "openai", "wire"]

pytestmark = pytest.mark.slow
READ = ToolSchema(
    "read",
    "Reads a file.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)

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


CACHED = {"type": "ephemeral", "ttl": "5m"}


async def test_what_a_call_gave_before_its_result_is_not_sent_for_it(anthropic: Talk, openai: Talk) -> None:
    """Whoever left it so, each provider is told that there is no result."""
    early = {"state": "output-available", "input": {}, "output": "half", "preliminary": True}
    cut = assistant({"type": "step-start"}, {"type": "tool-read", "toolCallId": "call_1", **early})
    no_result = "The call has no result: it was interrupted. What it did is not known."
    for talk in (anthropic, openai):
        sent = str((await talk.body(user("Look", "m1"), cut, user("And?", "m2"), tools=(READ,)))["messages"])
        assert (no_result in sent, "half" in sent) == (True, False)


async def test_anthropic_is_sent_the_conversation_step_by_step(anthropic: Talk) -> None:
    """Results after their calls, its own reasoning with its signature and nobody else's, errors as errors."""
    body = await anthropic.body(*CONVERSATION, system="Be brief.", tools=(READ,), max_output_tokens=99, temperature=0.2)
    assert body == {
        "model": "some-model",
        "stream": True,
        "max_tokens": 99,
        "temperature": 0.2,
        "cache_control": CACHED,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": CACHED}],
        "tools": [
            {
                "name": "read",
                "description": "Reads a file.",
                "input_schema": {
                    "type": "object",
                    "properties": {"path": {"type": "string"}},
                    "required": ["path"],
                },
                "cache_control": CACHED,
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
    body = await anthropic.body(user("hello"), assistant(*fold.parts), tools=[READ])
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
    """An image as an image; what is not at hand is named, never fetched. Text was made text before."""
    pixel = b"\x89PNG\r\n\x1a\n"
    encoded = base64.b64encode(pixel).decode()
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": "See:"},
        {"type": "file", "mediaType": "image/png", "url": f"data:image/png;base64,{encoded}"},
        {"type": "file", "mediaType": "image/png", "filename": "b.png", "url": "https://example.com/b.png"},
    ]
    body = await openai.body(Message("m1", "user", parts, {}))
    assert body["messages"] == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "See:"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded}"}},
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


@pytest.mark.rule("RN-8")
@pytest.mark.parametrize("kind", ["anthropic", "openai", "openai-responses", "openrouter"])
async def test_whatever_a_turn_left_behind_can_be_sent(wire: WireServer, kind: EndpointKind) -> None:
    """Reasoning that nothing follows or nobody sealed, words of space, calls without a result, ids no wire takes."""
    talk = Talk(wire, kind)
    sealed = {IDS[kind]: {"id": "rs_1", "signature": "sealed"}}
    long = "call_" + "ä" * 90
    step: dict[str, Any] = {"type": "step-start"}
    thought: dict[str, Any] = {"type": "reasoning", "text": "hm", "state": "done", "providerMetadata": sealed}
    left: list[list[dict[str, Any]]] = [
        [thought],
        [{"type": "text", "text": "yes", "state": "done"}, thought],
        [{"type": "text", "text": " \n", "state": "streaming"}, thought],
        [
            {"type": "reasoning", "text": "cut", "state": "streaming"},
            {"type": "text", "text": "", "state": "streaming"},
        ],
        [thought, {"type": "tool-read", "toolCallId": long, "state": "input-available", "input": {"path": "a"}}],
        [{"type": "tool-read", "toolCallId": f"{long}2", "state": "input-streaming", "input": None}, thought],
        [
            {
                "type": "tool-read",
                "toolCallId": f"{long}3",
                "state": "output-available",
                "input": {"path": "a"},
                "output": "",
            },
            {"type": "tool-read", "toolCallId": f"{long}4", "state": "output-error", "input": None, "errorText": ""},
        ],
    ]
    history = [m for n, parts in enumerate(left) for m in (assistant(step, *parts, id=f"a{n}"), user("go on", f"u{n}"))]
    model = Model(IDS[kind], "openai/some-model")
    await talk.body(user("hello"), *history, tools=[READ], model=model)
    imported = {"type": "dynamic-tool", "toolName": "a server/a tool", "toolCallId": "c", "state": "output-available"}
    history.insert(0, assistant({**imported, "input": {}, "output": "x"}, id="b"))
    sent = await talk.body(user("hello"), *history, model=model)
    # Nothing is offered any more, and what was called is still named.
    assert "a_server_a_tool" in str(sent["tools"])
    assert "none" in str(sent["tool_choice"])
    assert wire.refused == []
    await talk.provider.close()
