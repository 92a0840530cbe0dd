"""The sides of the kill matrix in the tests: clew with a small provider, and a control that stores nothing."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import clew
from bench.kill_matrix.peers import clew as peer
from bench.kill_matrix.script import NEXT, PAST, TARGET, TOOL, Side, run_side
from clew.transcript.chunk import Chunk, TextDelta, TextEnd, TextStart, ToolInputAvailable

__all__ = ["main"]


async def _deltas(url: str, messages: list[dict[str, Any]], tools: bool = True) -> AsyncGenerator[dict[str, Any], None]:
    """Ask the wire and return the deltas of its answer, without a library: those take seconds to import."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    body = json.dumps({"model": "m", "stream": True, "messages": messages, "tools": [TOOL] if tools else []}).encode()
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: wire\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    async for line in reader:
        if line.startswith(b"data: {") and (choices := json.loads(line[6:])["choices"]):
            yield choices[0]["delta"]
    writer.close()


class _Plain(clew.Provider):
    def __init__(self, url: str) -> None:
        self._url = url

    async def stream(self, request: clew.ModelRequest) -> AsyncGenerator[Chunk | clew.UsageUpdate | clew.StepEnd, None]:
        messages: list[dict[str, Any]] = [{"role": "system", "content": request.system}]
        for message in request.messages:
            for part in message.parts:
                if part["type"] == "text":
                    messages.append({"role": message.role, "content": part["text"]})
                elif "toolCallId" in part:
                    call = {"id": part["toolCallId"], "function": {"name": TOOL}}
                    messages.append({"role": "assistant", "tool_calls": [call]})
                    result = str(part.get("output", part.get("errorText")))
                    messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        yield TextStart("t")
        async for delta in _deltas(self._url, messages, bool(request.tools)):
            if delta.get("content"):
                yield TextDelta("t", delta["content"])
            for call in delta.get("tool_calls", ()):
                yield ToolInputAvailable(call["id"], TOOL, json.loads(call["function"]["arguments"]))
        yield TextEnd("t")
        yield clew.StepEnd(usage=clew.Usage(input=10, output=5))


async def _forget(side: Side) -> None:
    """Start without storing anything."""
    asked = f"Summarise: {PAST}" if side.scenario == "compaction" else side.submit()
    async for delta in _deltas(side.url, [{"role": "user", "content": asked}]):
        side.show(delta.get("content") or "")
        if delta.get("tool_calls"):
            if side.scenario == "approval":
                await side.wait_for_kill(pending=TOOL)
            await side.adeploy(TARGET)


async def _begin_again(side: Side) -> None:
    """Resume from nothing: run the prompt again, as a program would that trusts nothing it has."""
    if side.scenario in ("tool", "approval"):
        result = await side.adeploy(TARGET)
        call = {"id": "call_1", "function": {"name": TOOL}}
        messages: list[dict[str, Any]] = [{"role": "assistant", "tool_calls": [call]}]
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        async for _ in _deltas(side.url, messages):
            pass
    async for _ in _deltas(side.url, [{"role": "user", "content": NEXT}]):
        pass


def main() -> None:
    if sys.argv.pop(1) == "forgets":
        run_side(_forget, _begin_again)
    providers = lambda side: {"wire": _Plain(side.url)}  # noqa: E731
    run_side(partial(peer.start, providers=providers), partial(peer.resume, providers=providers))
