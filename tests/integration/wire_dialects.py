"""One answer as each kind of provider says it: a thought, words, two calls at once, and what was counted.

The input was 100 tokens, 40 of them from the cache; the output 30, 12 of them thought. A wire that cannot tell a count
leaves it out. Beside it a short answer (:class:`Short`), which may end as each wire tells it, or be a call.
``WireServer`` plays all of them but xAI's, which is gRPC (:class:`XaiWire`).
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import grpc
from xai_sdk.proto import chat_pb2, chat_pb2_grpc, sample_pb2, usage_pb2

from clew.providers.base import EndpointKind
from tests.integration.wire_server import ANTHROPIC, OPENAI, RESPONSES, Arrived, Step, ok, refuse, sse

__all__ = [
    "CALLS",
    "DIALECTS",
    "ENDS",
    "MODELS",
    "THOUGHT",
    "WORDS",
    "End",
    "Reply",
    "Short",
    "XaiWire",
    "answer",
    "refusal",
]

THOUGHT, WORDS = ("Let me ", "think."), ("One ", "two.")
CALLS = ((0, "call0123A", 1), (1, "call0123B", 2))
"""Index, id, and the number each call notes."""

MODELS: dict[EndpointKind, str] = {
    "anthropic": "claude-sonnet-5-5",
    "openai": "gpt-6.1-sol",
    "openai-responses": "gpt-6.1-sol",
    "openai-compatible": "some-model",
    "openrouter": "anthropic/claude-sonnet-5.5",
    "ollama": "qwen3:8b",
    "deepseek": "deepseek-v4-pro",
    "google": "gemini-3.8-flash",
    "google-cloud": "gemini-3.8-flash",
    "mistral": "mistral-small-latest",
    "groq": "openai/gpt-oss-120b",
    "bedrock": "us.anthropic.claude-sonnet-5",
    "xai": "grok-4.7",
}
End: TypeAlias = Literal["stop", "length", "filter", "call"]
_CHAT_ENDS = {"stop": "stop", "length": "length", "filter": "content_filter", "call": "tool_calls"}
_NO_FILTER = {key: value for key, value in _CHAT_ENDS.items() if key != "filter"}
_GOOGLE_ENDS = {"stop": "STOP", "length": "MAX_TOKENS", "filter": "SAFETY", "call": "STOP"}
ENDS: dict[EndpointKind, dict[str, str]] = {
    **dict.fromkeys(MODELS, _CHAT_ENDS),
    "anthropic": {"stop": "end_turn", "length": "max_tokens", "filter": "refusal", "call": "tool_use"},
    "openai-responses": {"stop": "", "length": "max_output_tokens", "filter": "content_filter", "call": ""},
    "google": _GOOGLE_ENDS,
    "google-cloud": _GOOGLE_ENDS,
    "mistral": _NO_FILTER,
    "groq": _NO_FILTER,
    "bedrock": {"stop": "end_turn", "length": "max_tokens", "filter": "content_filtered", "call": "tool_use"},
    "xai": {"stop": "REASON_STOP", "length": "REASON_MAX_LEN", "call": "REASON_TOOL_CALLS"},
}
"""How each wire says why an answer ended; three have no word for a filter."""


class Short(NamedTuple):
    """A short answer: words, or a call of a tool with its arguments."""

    words: str = "fine"
    end: End = "stop"
    call: tuple[str, str] | None = None


Chunks: TypeAlias = list[chat_pb2.GetChatCompletionChunk]
Reply: TypeAlias = Sequence[Step] | Chunks | tuple[grpc.StatusCode, str]


def _anthropic(short: Short | None) -> list[bytes]:
    if short:
        said = ANTHROPIC.text_block(0, short.words)
        if short.call:
            # It is asked to think, and a call without a thought could not be sent back.
            said = [*ANTHROPIC.thinking_block(0, *THOUGHT), *ANTHROPIC.tool_block(1, "call0123A", *short.call)]
        return [ANTHROPIC.start(), *said, *ANTHROPIC.stop(ENDS["anthropic"][short.end])]
    calls = [
        event
        for index, id_, n in CALLS
        for event in ANTHROPIC.tool_block(index + 2, f"{id_}", "note", '{"n"', f": {n}}}")
    ]
    return [
        ANTHROPIC.start(input_tokens=60, cache_read_input_tokens=40),
        *ANTHROPIC.thinking_block(0, *THOUGHT, signature="sealed"),
        *ANTHROPIC.text_block(1, *WORDS),
        *calls,
        *ANTHROPIC.stop("tool_use", output_tokens=30, output_tokens_details={"thinking_tokens": 12}),
    ]


def _chat(thought: Callable[[str], dict[str, Any]]) -> Callable[[Short | None], list[bytes]]:
    """OpenAI's chat completions in a dialect, which tells thoughts in a field of its own."""

    def told(short: Short | None) -> list[bytes]:
        if short:
            call = OPENAI.call(0, "call0123A", *short.call) if short.call else OPENAI.chunk({"content": short.words})
            return [call, OPENAI.chunk({}, _CHAT_ENDS[short.end]), OPENAI.usage(), OPENAI.done]
        return [
            *(OPENAI.chunk(thought(word)) for word in THOUGHT),
            *(OPENAI.chunk({"content": word}) for word in WORDS),
            *(OPENAI.call(index, id_, "note", '{"n"') for index, id_, _ in CALLS),
            *(OPENAI.call(index, None, None, f": {n}}}") for index, _, n in CALLS),
            OPENAI.chunk({}, "tool_calls"),
            OPENAI.usage(100, 30, cached=40, reasoning=12),
            OPENAI.done,
        ]

    return told


def _openrouter_thought(word: str) -> dict[str, Any]:
    detail = {"type": "reasoning.text", "text": word, "format": "anthropic-claude-v1", "index": 0}
    if word == THOUGHT[-1]:
        detail["signature"] = "sealed"
    return {"reasoning": word, "reasoning_details": [detail]}


def _groq(short: Short | None) -> list[bytes]:
    events = _chat(lambda word: {"reasoning": word})(short)
    # Its counts stand in a field of its own, in the last event.
    *said, _, done = events
    counts: dict[str, Any] = {
        "prompt_tokens": 10 if short else 100,
        "completion_tokens": 5 if short else 30,
        "total_tokens": 130,
    }
    if not short:
        counts |= {
            "prompt_tokens_details": {"cached_tokens": 40},
            "completion_tokens_details": {"reasoning_tokens": 12},
        }
    last = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}
    return [*said, sse({**last, "x_groq": {"id": "r", "usage": counts}}), done]


def _responses(short: Short | None) -> list[bytes]:
    if short:
        said = RESPONSES.call(0, "call0123A", *short.call) if short.call else RESPONSES.message(0, short.words)
        reason = ENDS["openai-responses"][short.end]
        return [*RESPONSES.created(), *said, RESPONSES.end("incomplete" if reason else "completed", reason or None)]
    calls = [e for index, id_, n in CALLS for e in RESPONSES.call(index + 2, id_, "note", '{"n"', f": {n}}}")]
    end = RESPONSES.end(input=100, output=30, cached=40, reasoning=12)
    return [*RESPONSES.created(), *RESPONSES.reasoning(0, *THOUGHT), *RESPONSES.message(1, *WORDS), *calls, end]


def _google(short: Short | None) -> list[bytes]:
    def said(*parts: dict[str, Any], finish: str | None = None, **used: int) -> bytes:
        candidate = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
        if finish:
            candidate["finishReason"] = finish
        counts = {"usageMetadata": used} if used else {}
        return sse({"candidates": [candidate], "modelVersion": "g", "responseId": "r1", **counts})

    if short:
        part: dict[str, Any] = {"text": short.words}
        if short.call:
            part = {"functionCall": {"name": short.call[0], "args": json.loads(short.call[1]), "id": "call0123A"}}
        end = said({"text": ""}, finish=_GOOGLE_ENDS[short.end], promptTokenCount=10, candidatesTokenCount=5)
        return [said(part), end]
    sealed = base64.b64encode(b"sealed").decode()
    calls: list[dict[str, Any]] = [
        {"functionCall": {"name": "note", "args": {"n": n}, "id": id_}} for _, id_, n in CALLS
    ]
    calls[0]["thoughtSignature"] = sealed
    return [
        *(said({"text": word, "thought": True}) for word in THOUGHT),
        *(said({"text": word}) for word in WORDS),
        said(
            *calls,
            finish="STOP",
            promptTokenCount=100,
            cachedContentTokenCount=40,
            candidatesTokenCount=18,
            thoughtsTokenCount=12,
            totalTokenCount=130,
        ),
    ]


def _mistral(short: Short | None) -> list[bytes]:
    def said(delta: dict[str, Any], finish: str | None = None, **usage: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        counts = {"usage": usage} if usage else {}
        return sse(
            {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **counts}
        )

    if short:
        used = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        first: dict[str, Any] = {"role": "assistant", "content": short.words}
        if short.call:
            function = {"name": short.call[0], "arguments": short.call[1]}
            first = {"role": "assistant", "tool_calls": [{"id": "call0123A", "index": 0, "function": function}]}
        return [said(first), said({"content": ""}, _NO_FILTER[short.end], **used), OPENAI.done]
    calls = [{"id": id_, "index": i, "function": {"name": "note", "arguments": f'{{"n": {n}}}'}} for i, id_, n in CALLS]
    counts = {"prompt_tokens": 100, "completion_tokens": 30, "total_tokens": 130}
    return [
        *(said({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": word}]}]}) for word in THOUGHT),
        *(said({"content": word}) for word in WORDS),
        said({"content": "", "tool_calls": calls}, "tool_calls", **counts, prompt_tokens_details={"cached_tokens": 40}),
        OPENAI.done,
    ]


def _bedrock(short: Short | None) -> list[bytes]:
    def block(index: int, *deltas: dict[str, Any], start: dict[str, Any] | None = None) -> list[bytes]:
        begun: list[tuple[str, dict[str, Any]]] = (
            [("contentBlockStart", {"contentBlockIndex": index, "start": start})] if start else []
        )
        told = [("contentBlockDelta", {"contentBlockIndex": index, "delta": delta}) for delta in deltas]
        return [_aws(*one) for one in [*begun, *told, ("contentBlockStop", {"contentBlockIndex": index})]]

    def end(reason: str, **usage: int) -> list[bytes]:
        return [
            _aws("messageStop", {"stopReason": reason}),
            _aws("metadata", {"usage": usage, "metrics": {"latencyMs": 1}}),
        ]

    start = _aws("messageStart", {"role": "assistant"})
    if short:
        said = block(0, {"text": short.words})
        if short.call:
            begin = {"toolUse": {"toolUseId": "call0123A", "name": short.call[0]}}
            said = block(0, {"toolUse": {"input": short.call[1]}}, start=begin)
        return [start, *said, *end(ENDS["bedrock"][short.end], inputTokens=10, outputTokens=5, totalTokens=15)]
    calls = [
        event
        for index, id_, n in CALLS
        for event in block(
            index + 2,
            {"toolUse": {"input": f'{{"n": {n}}}'}},
            start={"toolUse": {"toolUseId": id_, "name": "note"}},
        )
    ]
    return [
        start,
        *block(
            0,
            *({"reasoningContent": {"text": word}} for word in THOUGHT),
            {"reasoningContent": {"signature": "sealed"}},
        ),
        *block(1, *({"text": word} for word in WORDS)),
        *calls,
        *end(
            "tool_use",
            inputTokens=60,
            outputTokens=30,
            totalTokens=130,
            cacheReadInputTokens=40,
            cacheWriteInputTokens=0,
        ),
    ]


def _aws(event: str, payload: dict[str, Any]) -> bytes:
    """A frame of Amazon's event stream."""
    named = {":event-type": event, ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(
        struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", 7, len(value)) + value.encode()
        for name, value in named.items()
    )
    body = json.dumps(payload).encode()
    prelude = struct.pack("!II", 16 + len(headers) + len(body), len(headers))
    frame = prelude + struct.pack("!I", zlib.crc32(prelude)) + headers + body
    return frame + struct.pack("!I", zlib.crc32(frame))


def _xai(short: Short | None) -> Chunks:
    def said(delta: chat_pb2.Delta, finish: str = "REASON_INVALID", **usage: int) -> chat_pb2.GetChatCompletionChunk:
        reason = sample_pb2.FinishReason.Value(finish)
        output = chat_pb2.CompletionOutputChunk(delta=delta, index=0, finish_reason=reason)
        return chat_pb2.GetChatCompletionChunk(
            id="x1", model="grok", outputs=[output], usage=usage_pb2.SamplingUsage(**usage)
        )

    role = chat_pb2.MessageRole.ROLE_ASSISTANT

    def call(id: str, name: str, arguments: str) -> chat_pb2.ToolCall:
        kind = chat_pb2.ToolCallType.TOOL_CALL_TYPE_CLIENT_SIDE_TOOL
        return chat_pb2.ToolCall(id=id, type=kind, function=chat_pb2.FunctionCall(name=name, arguments=arguments))

    if short:
        first = chat_pb2.Delta(role=role, content=short.words)
        if short.call:
            first = chat_pb2.Delta(role=role, tool_calls=[call("call0123A", *short.call)])
        used = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        return [said(first), said(chat_pb2.Delta(role=role), ENDS["xai"][short.end], **used)]
    calls = [call(id_, "note", f'{{"n": {n}}}') for _, id_, n in CALLS]
    counts = {"prompt_tokens": 100, "completion_tokens": 18, "reasoning_tokens": 12, "total_tokens": 130}
    return [
        *(said(chat_pb2.Delta(role=role, reasoning_content=word)) for word in THOUGHT),
        *(said(chat_pb2.Delta(role=role, content=word)) for word in WORDS),
        said(chat_pb2.Delta(role=role, tool_calls=calls, encrypted_content="sealed")),
        said(chat_pb2.Delta(role=role), "REASON_TOOL_CALLS", **counts, cached_prompt_text_tokens=40),
    ]


DIALECTS: dict[EndpointKind, Callable[[Short | None], Sequence[Any]]] = {
    "anthropic": _anthropic,
    "openai": _chat(lambda word: {"reasoning_content": word}),
    "openai-responses": _responses,
    "openai-compatible": _chat(lambda word: {"reasoning_content": word}),
    "openrouter": _chat(_openrouter_thought),
    "ollama": _chat(lambda word: {"reasoning": word}),
    "deepseek": _chat(lambda word: {"reasoning_content": word}),
    "google": _google,
    "google-cloud": _google,
    "mistral": _mistral,
    "groq": _groq,
    "bedrock": _bedrock,
    "xai": _xai,
}


def answer(kind: EndpointKind, *, rich: bool = False, short: Short | None = None) -> Reply:
    """The rich answer, or a short one, as a reply of this wire."""
    told = DIALECTS[kind](None if rich else short or Short())
    if kind == "xai":
        return list(told)
    return [*ok({"content-type": "application/vnd.amazon.eventstream"} if kind == "bedrock" else None), *told]


_STATUS = {
    401: grpc.StatusCode.UNAUTHENTICATED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    400: grpc.StatusCode.INVALID_ARGUMENT,
}


def refusal(kind: EndpointKind, status: int, words: str, **headers: str) -> Reply:
    """A refusal, in the words and the envelope of this wire."""
    if kind == "xai":
        return _STATUS[status], words
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if kind == "bedrock":
        sent["x-amzn-ErrorType"] = {401: "UnrecognizedClientException", 429: "ThrottlingException"}.get(
            status, "ServiceUnavailableException" if status == 503 else "ValidationException"
        )
        return refuse(status, {"message": words}, sent)
    if kind in ("google", "google-cloud"):
        return refuse(status, {"error": {"code": status, "message": words, "status": "ERROR"}}, sent)
    return refuse(status, {"error": {"message": words, "type": "refused"}}, sent)


class XaiWire(chat_pb2_grpc.ChatServicer):  # type: ignore[misc]
    """xAI's chat service over gRPC: the same script as a ``WireServer`` has."""

    def __init__(self) -> None:
        self.requests: list[Arrived] = []
        self.refused: list[str] = []
        self._replies: deque[Any] = deque()

    async def __aenter__(self) -> Self:
        self._server = grpc.aio.server()
        chat_pb2_grpc.add_ChatServicer_to_server(self, self._server)
        port = self._server.add_insecure_port("127.0.0.1:0")
        self.url = f"http://127.0.0.1:{port}"
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(None)

    def reply(self, *reply: Any) -> None:
        self._replies.append(reply)

    async def GetCompletionChunk(self, request: Any, context: Any) -> Any:
        headers = dict(context.invocation_metadata())
        self.requests.append(Arrived("POST", "/xai_api.Chat", headers, str(request).encode()))
        reply = self._replies.popleft() if self._replies else answer("xai")
        if isinstance(reply[0], grpc.StatusCode):
            await context.abort(*reply)
        for chunk in reply:
            yield chunk
