"""A scripted HTTP server that speaks the wires of model providers, byte for byte as a test wants them.

One reply per request, each a list of steps: headers, bytes, a pause at a gate, a reset, a half-closed connection.
What arrived is kept in ``requests``; ``gone`` of a request is set when its client has gone away, ``pausing`` at the
first pause. A request that its real provider would not take is refused here too, whatever the script says, and the
reasons are kept in ``refused``.

::

    async with WireServer() as wire:
        wire.reply(*ok(), *OPENAI.text("hi"))
        ...
        assert wire.requests[0].json["stream"] is True
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeAlias

from tests.integration.wire_rules import refusals

__all__ = [
    "ANTHROPIC",
    "HALF_CLOSE",
    "OPENAI",
    "RESET",
    "RESPONSES",
    "Arrived",
    "Pause",
    "Step",
    "WireServer",
    "chunked",
    "ok",
    "refuse",
    "sse",
]


@dataclass(frozen=True)
class Pause:
    """Wait for the gate, or until the client has gone."""

    gate: asyncio.Event


RESET: Literal["reset"] = "reset"
"""Cut the connection so that the other side sees a reset, not an end."""
HALF_CLOSE: Literal["half-close"] = "half-close"
"""End the sending side and keep the connection otherwise open."""

Step: TypeAlias = bytes | Pause | Literal["reset", "half-close"]


@dataclass
class Arrived:
    """A request as it came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class WireServer:
    """Plays replies in the order they were given; ``answer`` or ``always`` is for when none is left."""

    def __init__(self, answer: Callable[[Arrived], Sequence[Step]] | None = None) -> None:
        self.requests: list[Arrived] = []
        self.refused: list[str] = []
        self.pausing = asyncio.Event()
        self._answer = answer
        self._replies: deque[Sequence[Step]] = deque()
        self._always: Sequence[Step] = refuse(500, {"error": {"message": "the script is used up"}})
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrival = asyncio.Condition()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def reply(self, *steps: Step) -> None:
        self._replies.append(steps)

    def forget(self) -> None:
        """Begin anew: no replies left, nothing seen."""
        self._replies.clear()
        self.requests.clear()
        self.refused.clear()
        self.pausing.clear()

    def always(self, *steps: Step) -> None:
        self._always = steps

    async def arrived(self, count: int) -> Arrived:
        """The request with that number, once it is there."""
        async with self._arrival:
            await self._arrival.wait_for(lambda: len(self.requests) >= count)
        return self.requests[count - 1]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        watch: asyncio.Task[None] | None = None
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                request = await _read_request(reader)
                broken = refusals(request.path, request.json)
                self.refused += broken
                if broken:
                    steps: Sequence[Step] = refuse(400, {"error": {"message": "; ".join(broken)}})
                elif self._replies:
                    steps = self._replies.popleft()
                else:
                    steps = self._always if self._answer is None else self._answer(request)
                async with self._arrival:
                    self.requests.append(request)
                    self._arrival.notify_all()
                watch = asyncio.get_running_loop().create_task(_watch(reader, request.gone))
                await self._play(steps, writer, request.gone)
        finally:
            if watch is not None:
                watch.cancel()
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _play(self, steps: Sequence[Step], writer: asyncio.StreamWriter, gone: asyncio.Event) -> None:
        for step in steps:
            if isinstance(step, bytes):
                writer.write(step)
                await writer.drain()
            elif isinstance(step, Pause):
                self.pausing.set()
                await _first(step.gate.wait(), gone.wait())
            elif step == HALF_CLOSE:
                writer.write_eof()
                await gone.wait()
            else:
                # With a linger time of zero, closing sends a reset instead of an end.
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                writer.transport.abort()
                return


async def _read_request(reader: asyncio.StreamReader) -> Arrived:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Arrived(method, path, headers, body)


async def _watch(reader: asyncio.StreamReader, gone: asyncio.Event) -> None:
    with contextlib.suppress(ConnectionError):
        while await reader.read(1024):
            pass
    gone.set()


async def _first(*waits: Any) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


# What goes over the wire.


def ok(headers: Mapping[str, str] | None = None) -> list[Step]:
    """The head of a stream without a length: its end is the end of the connection."""
    return [_head(200, {"content-type": "text/event-stream", "connection": "close", **(headers or {})})]


def refuse(status: int, body: Any = None, headers: Mapping[str, str] | None = None) -> list[Step]:
    """A refusal with a JSON body."""
    data = json.dumps(body if body is not None else {"error": {"message": "no", "type": "test"}}).encode()
    head = {"content-type": "application/json", "content-length": str(len(data)), **(headers or {})}
    return [_head(status, {**head, "connection": "close"}) + data]


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Status", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def sse(data: Any, event: str | None = None) -> bytes:
    """One event of a stream."""
    name = f"event: {event}\n" if event else ""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return f"{name}data: {text}\n\n".encode()


class _OpenAI:
    """OpenAI chat completions, as a stream."""

    done = b"data: [DONE]\n\n"

    def chunk(self, delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return sse({**self._frame(), "choices": [choice]})

    def usage(
        self, prompt: int = 10, completion: int = 5, *, cached: int = 0, written: int = 0, reasoning: int = 0
    ) -> bytes:
        counts = {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        }
        return sse({**self._frame(), "choices": [], "usage": counts})

    def text(self, *pieces: str) -> list[bytes]:
        """A whole answer of text."""
        return [
            self.chunk({"role": "assistant", "content": ""}),
            *(self.chunk({"content": piece}) for piece in pieces),
            self.chunk({}, "stop"),
            self.usage(),
            self.done,
        ]

    def call(self, index: int, id: str | None, name: str | None, arguments: str | None) -> bytes:
        """A piece of a tool call."""
        function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
        call: dict[str, Any] = {"index": index, "function": function}
        if id is not None:
            call |= {"id": id, "type": "function"}
        return self.chunk({"tool_calls": [call]})

    def calls(self, *pieces: bytes) -> list[bytes]:
        """A whole answer of tool calls."""
        return [*pieces, self.chunk({}, "tool_calls"), self.usage(), self.done]

    def error(self, message: str, **fields: Any) -> bytes:
        return sse({"error": {"message": message, **fields}})

    def _frame(self) -> dict[str, Any]:
        return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-test"}


class _Anthropic:
    """Anthropic messages, as a stream."""

    ping = sse({"type": "ping"}, "ping")

    def start(self, **usage: int) -> bytes:
        counts = {"input_tokens": 10, "output_tokens": 1, **usage}
        message: dict[str, Any] = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-test",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": counts,
        }
        return self._event("message_start", message=message)

    def block(self, index: int, block: Mapping[str, Any], *deltas: Mapping[str, Any]) -> list[bytes]:
        """A whole content block."""
        return [
            self.open(index, block),
            *(self.delta(index, delta) for delta in deltas),
            self.close(index),
        ]

    def open(self, index: int, block: Mapping[str, Any]) -> bytes:
        return self._event("content_block_start", index=index, content_block=block)

    def delta(self, index: int, delta: Mapping[str, Any]) -> bytes:
        return self._event("content_block_delta", index=index, delta=delta)

    def close(self, index: int) -> bytes:
        return self._event("content_block_stop", index=index)

    def text_block(self, index: int, *pieces: str) -> list[bytes]:
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
        return self.block(index, {"type": "text", "text": ""}, *deltas)

    def thinking_block(self, index: int, *pieces: str, signature: str = "sig") -> list[bytes]:
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
        sign = {"type": "signature_delta", "signature": signature}
        return self.block(index, {"type": "thinking", "thinking": "", "signature": ""}, *deltas, sign)

    def tool_block(self, index: int, id: str, name: str, *pieces: str) -> list[bytes]:
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        return self.block(index, {"type": "tool_use", "id": id, "name": name, "input": {}}, *deltas)

    def stop(self, reason: str | None = "end_turn", **usage: Any) -> list[bytes]:
        delta = {"stop_reason": reason, "stop_sequence": None}
        return [
            self._event("message_delta", delta=delta, usage={"output_tokens": 5, **usage}),
            self._event("message_stop"),
        ]

    def text(self, *pieces: str) -> list[bytes]:
        """A whole answer of text."""
        return [self.start(), *self.text_block(0, *pieces), *self.stop()]

    def error(self, kind: str, message: str) -> bytes:
        return self._event("error", error={"type": kind, "message": message})

    def _event(self, name: str, **fields: Any) -> bytes:
        return sse({"type": name, **fields}, name)


class _Responses:
    """OpenAI responses, as a stream."""

    def created(self) -> list[bytes]:
        return [self._status("created", "in_progress"), self._status("in_progress", "in_progress")]

    def reasoning(self, index: int, *pieces: str, sealed: str = "sealed") -> list[bytes]:
        """A whole item of reasoning, its summary readable and itself sealed."""
        item = {"id": f"rs_{index}", "type": "reasoning"}
        place = {"item_id": item["id"], "output_index": index, "summary_index": 0}
        part = {"type": "summary_text", "text": "".join(pieces)}
        return [
            self._event("output_item.added", output_index=index, item={**item, "summary": []}),
            self._event("reasoning_summary_part.added", **place, part={**part, "text": ""}),
            *(self._event("reasoning_summary_text.delta", **place, delta=piece) for piece in pieces),
            self._event("reasoning_summary_text.done", **place, text=part["text"]),
            self._event("reasoning_summary_part.done", **place, part=part),
            self._event(
                "output_item.done", output_index=index, item={**item, "summary": [part], "encrypted_content": sealed}
            ),
        ]

    def message(self, index: int, *pieces: str, kind: str = "output_text") -> list[bytes]:
        """A whole item of text, or with the kind ``refusal`` of one."""
        item = {"id": f"msg_{index}", "type": "message", "role": "assistant"}
        place = {"item_id": item["id"], "output_index": index, "content_index": 0}
        field = "refusal" if kind == "refusal" else "text"
        more: dict[str, Any] = {} if kind == "refusal" else {"annotations": []}
        part = {"type": kind, field: "".join(pieces), **more}
        logs: dict[str, Any] = {} if kind == "refusal" else {"logprobs": []}
        return [
            self._event("output_item.added", output_index=index, item={**item, "status": "in_progress", "content": []}),
            self._event("content_part.added", **place, part={**part, field: ""}),
            *(self._event(f"{kind}.delta", **place, delta=piece, **logs) for piece in pieces),
            self._event(f"{kind}.done", **place, **{field: part[field]}, **logs),
            self._event("content_part.done", **place, part=part),
            self._event(
                "output_item.done", output_index=index, item={**item, "status": "completed", "content": [part]}
            ),
        ]

    def call(self, index: int, id: str, name: str, *pieces: str) -> list[bytes]:
        """A whole item of a tool call."""
        item = {"id": f"fc_{index}", "type": "function_call", "call_id": id, "name": name}
        place = {"item_id": item["id"], "output_index": index}
        whole = "".join(pieces)
        return [
            self._event(
                "output_item.added", output_index=index, item={**item, "status": "in_progress", "arguments": ""}
            ),
            *(self._event("function_call_arguments.delta", **place, delta=piece) for piece in pieces),
            self._event("function_call_arguments.done", **place, name=name, arguments=whole),
            self._event(
                "output_item.done", output_index=index, item={**item, "status": "completed", "arguments": whole}
            ),
        ]

    def end(
        self,
        status: str = "completed",
        reason: str | None = None,
        *,
        error: Mapping[str, str] | None = None,
        **usage: int,
    ) -> bytes:
        """The last event: completed, incomplete for a reason, or failed."""
        counts = {"input": 10, "output": 5, "cached": 0, "reasoning": 0, **usage}
        return self._status(
            status,
            status,
            incomplete_details={"reason": reason} if reason else None,
            error=error,
            usage={
                "input_tokens": counts["input"],
                "input_tokens_details": {"cached_tokens": counts["cached"], "cache_write_tokens": 0},
                "output_tokens": counts["output"],
                "output_tokens_details": {"reasoning_tokens": counts["reasoning"]},
                "total_tokens": counts["input"] + counts["output"],
            },
        )

    def text(self, *pieces: str) -> list[bytes]:
        """A whole answer of text."""
        return [*self.created(), *self.message(0, *pieces), self.end()]

    def error(self, code: str, message: str) -> bytes:
        return sse({"type": "error", "sequence_number": 0, "code": code, "message": message, "param": None}, "error")

    def _status(self, name: str, status: str, **fields: Any) -> bytes:
        response = {
            "id": "resp_1",
            "object": "response",
            "created_at": 1,
            "status": status,
            "model": "gpt-test",
            "output": [],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": None,
            "error": None,
            "incomplete_details": None,
            **fields,
        }
        return self._event(name, response=response)

    def _event(self, event: str, **fields: Any) -> bytes:
        return sse({"type": f"response.{event}", "sequence_number": 0, **fields}, f"response.{event}")


OPENAI = _OpenAI()
ANTHROPIC = _Anthropic()
RESPONSES = _Responses()


def chunked(pieces: Iterable[bytes], *, end: bool = True) -> list[Step]:
    """A stream in HTTP's own chunks, so that a cut can be told from an end."""
    head = _head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
    body: list[Step] = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces]
    return [head, *body, *([b"0\r\n\r\n"] if end else [])]
