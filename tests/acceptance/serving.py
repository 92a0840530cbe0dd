"""A server whose model follows a script and counts what it is sent: what the tests about presets in life stand on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

import clew
from clew.providers.base import ModelRequest
from clew.testing.scripted import FakeProviders, Turnout, say
from clew.transcript.usage import Usage
from tests.acceptance.compacting import Playing, answer, info, summary
from tests.integration.http_client import AsgiClient, served

__all__ = ["PLACE", "begin", "dump", "say_to", "serving"]

PLACE = {"workerId": "w-1", "workspaceId": "harbour"}
ALLOW = [{"permission": tool, "pattern": "*", "action": "allow"} for tool in ("dump", "task")]


@clew.tool
async def dump(chars: int, word: str = "log") -> str:
    """Gives as many characters as are asked for."""
    return f"{word} begins {'x' * (chars - 2 * len(word) - 14)} {word} ends"


class Counting(Playing):
    """A model that takes four characters for a token and says how many it was sent; unless the script says it."""

    def _next(self, request: ModelRequest) -> Turnout:
        turnout = super()._next(request)
        sent = len(request.system) + sum(len(str(message.parts)) for message in request.messages)
        return turnout if turnout.usage else msgspec.structs.replace(turnout, usage=Usage(input=sent // 4, output=5))


@asynccontextmanager
async def serving(tmp_path: Path, *script: Any, window: int = 100_000, **options: Any) -> AsyncIterator[AsgiClient]:
    """A server on a ``json:`` store, which has the preset ``checkpoint``; its model follows the script."""
    known = [info("test/model", window, tools=True), info("cheap/model", 200_000, summariser=None)]
    models = {
        "test": Counting(script, otherwise=answer()),
        "cheap": Playing((), otherwise=say(summary("the goal"))),
    }
    options.setdefault("store", f"json:{tmp_path / 'store'}")
    async with served(providers=FakeProviders(models, infos=known), tools=(dump,), **options) as client:
        yield client


async def begin(client: AsgiClient, **fields: Any) -> str:
    session_id = await client.session(**{"metadata": PLACE, **fields})
    rules = await client.request("PUT", f"/api/sessions/{session_id}/permissions", {"rules": ALLOW})
    assert rules.status == 200
    return session_id


async def say_to(client: AsgiClient, session_id: str, text: str, **fields: Any) -> None:
    body = {"text": text, **fields} if "parts" not in fields else fields
    answered = await client.post(f"/api/sessions/{session_id}/prompt", body)
    assert answered.status == 202, answered
    await client.idle(session_id)
    # What begins at the end of a turn begins under its lock.
    async with client.engine._runtime.sessions.lock(session_id):
        pass
    await client.idle(session_id)
