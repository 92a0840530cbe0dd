"""Captures requests as sent to a provider: clew's own provider sends them to a server that records and rejects them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final

import msgspec
import orjson

from bench.provider_cache import Block
from clew.providers.base import EndpointKind, ModelRequest, ProviderFailure
from clew.providers.pydantic_ai import Endpoint, PydanticAIProvider
from clew.transcript.session import Model

__all__ = ["Wire", "blocks_of", "open_wire"]

_MARK: Final = "cache_control"
_REFUSAL: Final = b'{"error":{"type":"invalid_request_error","message":"recorded"}}'
_ANSWER: Final = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
    len(_REFUSAL),
    _REFUSAL,
)


class Wire:
    """The API of one provider; ``models`` maps the models of the bench to those of the provider."""

    def __init__(self, kind: EndpointKind, url: str, models: Mapping[str, str], bodies: asyncio.Queue[bytes]) -> None:
        self._kind = kind
        self._models = models
        self._bodies = bodies
        self._provider = PydanticAIProvider(Endpoint(provider_id=kind, kind=kind, base_url=url, api_key="sk-bench"))

    async def blocks(self, request: ModelRequest) -> list[Block]:
        """Return the request as sent, in the order in which the provider reads it, with its cache marks."""
        model = Model(self._kind, self._models[request.model.model_id])
        with contextlib.suppress(ProviderFailure):
            async for _ in self._provider.stream(msgspec.structs.replace(request, model=model)):
                pass
        return blocks_of(orjson.loads(self._bodies.get_nowait()))

    async def close(self) -> None:
        await self._provider.close()


@contextlib.asynccontextmanager
async def open_wire(kind: EndpointKind, models: Mapping[str, str]) -> AsyncIterator[Wire]:
    bodies: asyncio.Queue[bytes] = asyncio.Queue()
    handlers: set[asyncio.Task[None] | None] = set()

    async def record(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.add(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                size = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
                bodies.put_nowait(await reader.readexactly(size))
                writer.write(_ANSWER)
        writer.close()

    async with await asyncio.start_server(record, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        wire = Wire(kind, f"http://127.0.0.1:{port}{'' if kind == 'anthropic' else '/v1'}", models, bodies)
        try:
            yield wire
        finally:
            await wire.close()
            await asyncio.gather(*filter(None, handlers))


def blocks_of(body: Mapping[str, Any]) -> list[Block]:
    """Return the blocks of a request in the order in which the provider reads them."""
    found = [*_blocks(body)]
    if _MARK in body:
        # A mark on the whole request applies to its last block.
        found[-1] = Block(found[-1].text, marked=True)
    return found


def _blocks(body: Mapping[str, Any]) -> Iterator[Block]:
    for tool in body.get("tools", ()):
        yield _block("tool", tool)
    system = body.get("system", ())
    # Without a mark the system prompt is a plain string.
    for piece in [{"type": "text", "text": system}] if isinstance(system, str) else system:
        yield _block("system", piece)
    for message in body["messages"]:
        content = message.get("content")
        if isinstance(content, list):
            for piece in content:
                yield _block(message["role"], piece)
        else:
            yield _block("message", message)


def _block(role: str, piece: Any) -> Block:
    # The mark is for the cache; the model does not read it.
    shown = {key: value for key, value in piece.items() if key != _MARK}
    return Block(f"{role}{json.dumps(shown, ensure_ascii=False, separators=(',', ':'))}\n", marked=_MARK in piece)
