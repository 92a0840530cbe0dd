"""A provider of your own: a model server that speaks JSON, one line for each piece, over a plain connection.

Whatever answers piece by piece is told in clew's chunks. What it used is counted, what it refuses is raised with a kind
that says whether another try may help, and an answer that breaks off is never taken for a whole one.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from typing import Any

import clew
from clew.transcript.chunk import Chunk, TextDelta, TextEnd, TextStart, ToolInputAvailable


class LineServer(clew.Provider):
    """One connection for each call: the request in one line, then lines until ``{"end": …}``."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port

    async def stream(self, request: clew.ModelRequest) -> AsyncGenerator[Chunk | clew.UsageUpdate | clew.StepEnd, None]:
        try:
            reader, writer = await asyncio.open_connection(self._host, self._port)
        except OSError as error:
            raise clew.ProviderFailure(f"nobody answers: {error}", kind="transient") from error
        try:
            writer.write(json.dumps(self._asked(request)).encode() + b"\n")
            await writer.drain()
            speaks = False
            async for line in reader:
                piece = json.loads(line)
                if "text" in piece:
                    if not speaks:
                        yield TextStart("t")
                    speaks = True
                    yield TextDelta("t", piece["text"])
                elif "call" in piece:
                    call = piece["call"]
                    yield ToolInputAvailable(call["id"], call["tool"], call["arguments"])
                elif "busy" in piece:  # nothing of it was shown yet, so it is tried again
                    raise clew.ProviderFailure(piece["busy"], kind="transient", status=429, retry_after_ms=1)
                else:
                    if speaks:
                        yield TextEnd("t")
                    used = piece["end"]
                    yield clew.StepEnd(usage=clew.Usage(input=used["read"], output=used["said"]))
                    return
            raise clew.ProviderFailure("it ended before the answer was whole", kind="transient")
        finally:
            writer.close()

    def _asked(self, request: clew.ModelRequest) -> dict[str, Any]:
        said = [{"role": message.role, "parts": message.parts} for message in request.messages]
        tools = [{"name": tool.name, "arguments": tool.input_schema} for tool in request.tools]
        return {"model": request.model.model_id, "system": request.system, "said": said, "tools": tools}


async def main(host: str, port: int) -> None:
    async with clew.open("sqlite:///talk.db", providers={"line": LineServer(host, port)}) as engine:
        session = await engine.create_session(model="line/small")
        async for chunk in engine.run(session.id, "Hello"):
            print(chunk.get("delta", ""), end="", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
