"""A small HTTP client for tests: the same calls straight into an ASGI app or through a socket.

It sends what it is told, also what no decent client would send, reads streams frame by frame, and can leave in the
middle of one. Every answer that passes through it is held against the OpenAPI document: whatever a test is about, it
also shows that the document is true.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any
from urllib.parse import quote, unquote

import clew
from clew.config import Config
from clew.fronts.http.app import make_app
from clew.fronts.http.sse import Streams
from clew.session.api import Engine
from clew.testing.scripted import FakeProviders, ScriptedModel
from clew.transcript.chunk import parse_chunk
from clew.transcript.fold import Fold
from tests.integration.http_document import check_answer, check_frame

TOKEN = "test-token-0123456789"
HOST = "clew.test:7717"
_FRAME = re.compile(rb"(?:id: ([!-~]+)\n)?data: ([^\n]+)")


class Reply:
    """An answer that may still be coming."""

    def __init__(self, status: int, headers: dict[str, str], body: AsyncIterator[bytes]) -> None:
        self.status = status
        self.headers = headers
        self.asked = ("", "")
        self.comments = 0
        self.finished = False
        self.last_id: str | None = None
        self._body = body

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self._body])

    async def frames(self) -> AsyncIterator[Any]:
        """What each ``data:`` frame holds; ``[DONE]`` as it is. Anything but frames and comments is an error."""
        rest = b""
        async for piece in self._body:
            *blocks, rest = (rest + piece).split(b"\n\n")
            for block in blocks:
                if block.startswith(b":"):
                    self.comments += 1
                    continue
                found = _FRAME.fullmatch(block)
                assert found, block
                self.last_id = found[1].decode() if found[1] else self.last_id
                data = found[2].decode()
                if data == "[DONE]":
                    yield data
                    continue
                value = json.loads(data)
                check_frame(*self.asked, value)
                yield value
        assert rest == b"", rest
        self.finished = True


class Answer:
    """A whole answer."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str | None:
        """The code of a problem; None for what is not one."""
        if self.headers.get("content-type") != "application/problem+json":
            return None
        problem = self.json()
        assert problem["status"] == self.status
        assert {"type", "title", "detail", "code"} <= problem.keys()
        return str(problem["code"])

    def __repr__(self) -> str:
        return f"Answer({self.status}, {self.body[:300]!r})"


class Client:
    """Calls by method name; a body is bytes as they are, or a value as JSON. Headers of None are left out."""

    host = HOST
    token = TOKEN

    async def request(self, method: str, path: str, body: Any = None, **options: Any) -> Answer:
        async with self.open(method, path, body, **options) as reply:
            answer = Answer(reply.status, reply.headers, await reply.read())
        check_answer(method, path, answer.status, answer.headers, answer.body)
        return answer

    async def get(self, path: str, **options: Any) -> Answer:
        return await self.request("GET", path, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> Answer:
        return await self.request("POST", path, body, **options)

    @contextlib.asynccontextmanager
    async def open(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str | None] | None = None
    ) -> AsyncIterator[Reply]:
        """The answer while it comes; leaving the block leaves the stream."""
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        sent: dict[str, str | None] = {
            "host": self.host,
            "authorization": f"Bearer {self.token}",
            "content-type": "application/json",
            "content-length": str(len(data)),
            **(headers or {}),
        }
        raw = [(name, value) for name, value in sent.items() if value is not None]
        async with self._exchange(method, path, raw, data) as reply:
            reply.asked = (method, path)
            yield reply

    def _exchange(
        self, method: str, path: str, headers: list[tuple[str, str]], body: bytes
    ) -> contextlib.AbstractAsyncContextManager[Reply]:
        raise NotImplementedError

    # What tests say often.

    async def session(self, **fields: Any) -> str:
        answer = await self.post("/api/sessions", fields)
        assert answer.status == 201, answer
        return str(answer.json()["id"])

    async def prompt(self, session_id: str, text: str, **fields: Any) -> Answer:
        return await self.post(f"/api/sessions/{session_id}/prompt", {"text": text, **fields})

    async def messages(self, session_id: str, view: str = "visible") -> list[dict[str, Any]]:
        answer = await self.get(f"/api/sessions/{session_id}/messages?view={view}")
        assert answer.status == 200, answer
        return list(answer.json()["messages"])

    async def chat(self, session_id: str, text: str, message_id: str = "u1", **fields: Any) -> list[Any]:
        """Send a message as the AI SDK does and read the stream to its end, without ``[DONE]``."""
        async with self.open("POST", "/api/chat", chat_body(session_id, text, message_id, **fields)) as reply:
            assert reply.status == 200, await reply.read()
            assert reply.headers["x-vercel-ai-ui-message-stream"] == "v1"
            frames = [frame async for frame in reply.frames()]
        assert frames[-1] == "[DONE]"
        return frames[:-1]

    async def status(self, session_id: str) -> dict[str, Any]:
        return dict((await self.get(f"/api/sessions/{session_id}/status")).json())

    async def idle(self, session_id: str) -> dict[str, Any]:
        """Wait until nothing runs; the status it then has."""
        headers = {"accept": "text/event-stream"}
        async with self.open("GET", f"/api/sessions/{session_id}/status", headers=headers) as reply:
            async for status in reply.frames():
                if status["state"] in ("idle", "error"):
                    return dict(status)
        raise AssertionError("the status stream ended")


class AsgiClient(Client):
    """Calls the app in this process, as a server would."""

    def __init__(self, app: Any, engine: Engine, streams: Streams) -> None:
        self.app = app
        self.engine = engine
        self.streams = streams

    async def session(self, **fields: Any) -> str:
        # A folder of JSON files wants to know who works where; most tests do not.
        place = dict.fromkeys(self.engine.store.capabilities.required_metadata, "here")
        metadata = {**place, **(fields.pop("metadata", None) or {})}
        return await super().session(**fields, **({"metadata": metadata} if metadata else {}))

    @contextlib.asynccontextmanager
    async def _exchange(
        self, method: str, path: str, headers: list[tuple[str, str]], body: bytes
    ) -> AsyncIterator[Reply]:
        target, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(target),
            "raw_path": quote(target, safe="/%").encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 7717),
        }
        left = asyncio.Event()
        requests = [{"type": "http.request", "body": body, "more_body": False}]
        sent: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

        async def receive() -> Any:
            if requests:
                return requests.pop()
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.put_nowait(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                left.set()

        async def run() -> None:
            try:
                await self.app(scope, receive, send)
            finally:
                sent.put_nowait(None)

        async def pieces() -> AsyncIterator[bytes]:
            while (message := await sent.get()) is not None:
                yield message.get("body", b"")
                if not message.get("more_body"):
                    return

        task = asyncio.get_running_loop().create_task(run())
        try:
            start = await sent.get()
            assert start is not None, "the app answered nothing"
            yield Reply(start["status"], {k.decode(): v.decode() for k, v in start["headers"]}, pieces())
        finally:
            left.set()
            await task


class SocketClient(Client):
    """Speaks HTTP/1.1 over a socket of its own for each call."""

    def __init__(self, port: int, token: str = TOKEN) -> None:
        self.port = port
        self.host = f"127.0.0.1:{port}"
        self.token = token

    @contextlib.asynccontextmanager
    async def _exchange(
        self, method: str, path: str, headers: list[tuple[str, str]], body: bytes
    ) -> AsyncIterator[Reply]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
            writer.write("\r\n".join([*lines, "connection: close", "", ""]).encode("latin-1") + body)
            status, answered = await _read_head(reader)
            yield Reply(status, answered, _read_body(reader, answered))
        finally:
            # Not closed in good order: whoever leaves a page does not say goodbye either.
            writer.transport.abort()


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = dict(line.split(": ", 1) for line in head[1:] if line)
    return int(head[0].split(" ")[1]), {name.lower(): value for name, value in headers.items()}


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> AsyncIterator[bytes]:
    if headers.get("transfer-encoding") != "chunked":
        yield await reader.readexactly(int(headers.get("content-length", "0")))
        return
    while size := int(await reader.readline(), 16):
        yield await reader.readexactly(size)
        await reader.readexactly(2)


def chat_body(session_id: str, text: str, message_id: str = "u1", **fields: Any) -> dict[str, Any]:
    """What a v6 client posts."""
    message = {"id": message_id, "role": "user", "parts": [{"type": "text", "text": text}]}
    return {"id": session_id, "messages": [message], "trigger": "submit-message", **fields}


def reduced(chunks: list[Any], parts: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Id, role and parts of the message a client makes of these chunks."""
    fold = Fold(chunks[0]["messageId"], parts=parts or ())
    for chunk in chunks:
        fold.apply_shown(parse_chunk(chunk))
    return bare(fold.message())


def held(chunks: Iterable[Mapping[str, Any]]) -> list[Any]:
    """The chunks as a client holds them: of a message that is reset, only what comes after that."""
    kept: list[Any] = []
    for chunk in chunks:
        if chunk["type"] == "data-reset":
            begins = [one.get("messageId") if one["type"] == "start" else ... for one in kept]
            message_id = chunk["data"]["messageId"]
            kept = kept[: begins.index(message_id)] if message_id in begins else kept
        else:
            kept.append(chunk)
    return kept


def bare(message: Mapping[str, Any]) -> dict[str, Any]:
    """What a replay promises to give back: id, role and parts; not the approval of answered calls."""
    parts = [
        {k: v for k, v in part.items() if k != "approval" or part.get("state") == "approval-requested"}
        for part in message["parts"]
    ]
    return {"id": message["id"], "role": message["role"], "parts": parts}


def texts(message: Mapping[str, Any]) -> str:
    """The text of a message."""
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")


def types(chunks: list[Any]) -> list[str]:
    return [chunk["type"] for chunk in chunks]


@contextlib.asynccontextmanager
async def served(
    *script: Any,
    store: str = "memory:",
    providers: Any = None,
    heartbeat_s: float = 15.0,
    config: Config | None = None,
    **options: Any,
) -> AsyncIterator[AsgiClient]:
    """An engine whose model follows a script, behind the HTTP front, in this process."""
    providers = providers or FakeProviders(ScriptedModel(script))
    async with clew.open(store, config=config or Config(), providers=providers, **options) as engine:
        streams = Streams(heartbeat_s)
        app = make_app(engine, token=TOKEN, hosts={HOST}, streams=streams)
        yield AsgiClient(app, engine, streams)
