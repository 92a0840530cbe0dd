"""A model behind OpenAI's chat completions on loopback: it follows the script, records requests and holds answers.

It is as strict as the real API in one point: a request with a tool call that has no result is refused with 400.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from bench.kill_matrix.script import CALL, NEXT, PAST, PROMPTS, SUMMARY, TARGET, TOOL, WORDS

__all__ = ["SHOWN", "Wire", "dangling", "text_of"]

SHOWN: Final = 20
"""Words sent before the answer is held."""


def text_of(message: dict[str, Any]) -> str:
    """Return the text of a message, whether it is a string or a list of parts."""
    content = message.get("content")
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def dangling(messages: list[dict[str, Any]]) -> list[str]:
    """Return the tool calls that are not followed by their results, for which the real API answers 400."""
    missing: list[str] = []
    wanted: list[str] = []
    for message in messages:
        if message.get("role") == "tool":
            wanted = [call for call in wanted if call != message.get("tool_call_id")]
            continue
        missing += wanted
        wanted = [call["id"] for call in message.get("tool_calls") or ()]
    return missing + wanted


class Wire:
    """The server. ``held`` is set while an answer is held; closing the server lets all of them go."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.scenario = ""
        self.phase = "start"
        self.held = threading.Event()
        self._over = threading.Event()
        wire = self

        class Handler(_Handler):
            owner = wire

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def close(self) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()

    def enter(self, scenario: str, phase: str) -> None:
        """Follow the script of this phase: ``start``, ``answer`` (an approval is answered) or ``resume``."""
        self.scenario, self.phase = scenario, phase
        self.held.clear()

    def in_phase(self, phase: str) -> list[dict[str, Any]]:
        return [one["body"] for one in self.requests if one["phase"] == phase]

    def hold(self) -> None:
        self.held.set()
        self._over.wait()

    def pieces(self, body: dict[str, Any]) -> Iterator[str | dict[str, Any] | None]:
        """Return the answer: pieces of text, or a tool call; None is where it is held."""
        messages = body["messages"]
        newest = next((text_of(one) for one in reversed(messages) if one.get("role") == "user"), "")
        past = next((reply for asked, reply in PAST if newest.strip().endswith(asked)), None)
        if messages[-1].get("role") == "tool":
            if self.phase == "answer":
                yield None
            yield "It is done."
        elif self.scenario == "compaction" and _summarises(messages):
            if self.phase == "start":
                yield None
            yield SUMMARY
        elif NEXT in newest:
            yield "Nothing is next."
        elif past is not None:
            yield past
        elif self.scenario == "text" and self.phase == "start":
            yield from (f"{word} " for word in WORDS[:SHOWN])
            yield None
        elif body.get("tools") and PROMPTS["tool"] in newest and CALL not in json.dumps(messages):
            yield {"target": TARGET}
        else:
            yield "Fine."


def _summarises(messages: list[dict[str, Any]]) -> bool:
    """Return whether a summary is asked for: in the system prompt or in the last message."""
    asked = [text_of(one) for one in messages if one.get("role") in ("system", "developer")] + [text_of(messages[-1])]
    return any("summar" in text.lower() for text in asked)


class _Handler(BaseHTTPRequestHandler):
    owner: Wire
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        return

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
        wire = self.owner
        missing = dangling(body.get("messages", []))
        record = {"phase": wire.phase, "at": time.time(), "body": body, "refused": bool(missing)}
        wire.requests.append(record)
        try:
            if self.path.endswith("/responses/compact") and wire.phase == "start":
                wire.hold()
            elif not self.path.endswith("/chat/completions"):
                self._send(
                    404, {"error": {"message": f"{self.path} is not served here", "type": "invalid_request_error"}}
                )
            elif missing:
                text = f"An assistant message with 'tool_calls' must be followed by tool messages: {missing}"
                self._send(400, {"error": {"message": text, "type": "invalid_request_error"}})
            elif body.get("stream"):
                self._stream(body)
            else:
                self._whole(body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _send(self, status: int, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _whole(self, body: dict[str, Any]) -> None:
        message: dict[str, Any] = {"role": "assistant", "content": None}
        for piece in self.owner.pieces(body):
            if piece is None:
                self.owner.hold()
            elif isinstance(piece, str):
                message["content"] = (message["content"] or "") + piece
            else:
                message["tool_calls"] = [_call(piece)]
        reason = "tool_calls" if "tool_calls" in message else "stop"
        choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
        self._send(200, _envelope("chat.completion", body, [choice]) | {"usage": _USAGE})

    def _stream(self, body: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True

        def event(delta: dict[str, Any], reason: str | None = None) -> None:
            choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
            self._event(_envelope("chat.completion.chunk", body, [choice]))

        reason = "stop"
        event({"role": "assistant", "content": ""})
        for piece in self.owner.pieces(body):
            if piece is None:
                self.owner.hold()
            elif isinstance(piece, str):
                event({"content": piece})
            else:
                reason = "tool_calls"
                event({"tool_calls": [{"index": 0, **_call(piece)}]})
        event({}, reason)
        self._event(_envelope("chat.completion.chunk", body, []) | {"usage": _USAGE})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, value: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")
        self.wfile.flush()


_USAGE: Final = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def _envelope(kind: str, body: dict[str, Any], choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": body.get("model"), "choices": choices}


def _call(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"id": CALL, "type": "function", "function": {"name": TOOL, "arguments": json.dumps(arguments)}}
