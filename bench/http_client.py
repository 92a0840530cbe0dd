"""A fast HTTP client: one persistent connection, one request at a time, with the time of the first byte."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import orjson

__all__ = ["TOKEN", "Answer", "Connection", "ask_chat", "connect"]

TOKEN = "bench-0123456789"
_END = b"\r\n0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Answer:
    """A response. ``first_ms`` is the time to the first byte of the body, for a stream to its first frame."""

    status: int
    body: bytes
    first_ms: float
    whole_ms: float


class Connection(asyncio.Protocol):
    """A connection. ``on_data`` receives the data of a stream as it arrives; the body is then empty."""

    def __init__(self, port: int) -> None:
        self._host = f"127.0.0.1:{port}"
        self._data = bytearray()
        self._head = 0
        self._length: int | None = None
        self._began = self._first = 0.0
        self._on_data: Callable[[bytes], None] | None = None
        self._response: asyncio.Future[Answer] | None = None
        self._transport: asyncio.Transport | None = None

    async def ask(
        self, method: str, path: str, body: object = None, on_data: Callable[[bytes], None] | None = None
    ) -> Answer:
        sent = b"" if body is None else orjson.dumps(body)
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: {self._host}\r\nauthorization: Bearer {TOKEN}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(sent)}\r\n\r\n"
        )
        self._data.clear()
        self._head, self._length, self._first, self._on_data = 0, None, 0.0, on_data
        self._response = asyncio.get_running_loop().create_future()
        if self._transport is None:
            raise RuntimeError("not connected")
        self._began = time.perf_counter()
        self._transport.write(head.encode() + sent)
        return await self._response

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._response is not None and not self._response.done():
            self._response.set_exception(ConnectionError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        if self._head and self._on_data is not None:
            self._on_data(data)
            # Keep only the end from here on.
            del self._data[self._head : -len(_END)]
        self._data += data
        if not self._head:
            at = self._data.find(b"\r\n\r\n")
            if at < 0:
                return
            self._head = at + 4
            head = bytes(self._data[:at]).lower()
            if b"content-length:" in head:
                self._length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
            if self._on_data is not None:
                self._on_data(bytes(self._data[self._head :]))
        if not self._first and len(self._data) > self._head:
            self._first = time.perf_counter()
        whole = len(self._data) - self._head >= self._length if self._length is not None else self._data.endswith(_END)
        if whole and self._response is not None and not self._response.done():
            now = time.perf_counter()
            status, body = int(self._data[9:12]), bytes(self._data[self._head :])
            first = (self._first or now) - self._began
            self._response.set_result(Answer(status, body, first * 1000, (now - self._began) * 1000))


async def connect(port: int) -> Connection:
    loop = asyncio.get_running_loop()
    return (await loop.create_connection(lambda: Connection(port), "127.0.0.1", port))[1]


def ask_chat(session_id: str, number: int, text: str) -> dict[str, object]:
    """Return the body of a prompt as the AI SDK sends it."""
    message = {"id": f"m-{session_id}-{number}", "role": "user", "parts": [{"type": "text", "text": text}]}
    return {"id": session_id, "messages": [message], "trigger": "submit-message"}
