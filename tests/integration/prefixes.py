"""Engines whose model is behind a wire, and how much of one request is the beginning of the next."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import clew
from clew.session.api import Engine
from tests.integration.wire_server import ANTHROPIC, OPENAI, RESPONSES, WireServer, ok

__all__ = ["SPEAKS", "calls", "characters", "common", "opened"]

SPEAKS: dict[str, list[bytes]] = {
    "anthropic": ANTHROPIC.text("fine"),
    "openai": OPENAI.text("fine"),
    "openai-responses": RESPONSES.text("fine"),
}


def calls(kind: str, n: int, tool: str, **args: Any) -> list[bytes]:
    """A step that calls a tool, in the words of a wire."""
    given = json.dumps(args)
    if kind == "anthropic":
        block = ANTHROPIC.tool_block(0, f"toolu_{n:020}", tool, given)
        return [ANTHROPIC.start(), *block, *ANTHROPIC.stop("tool_use")]
    if kind == "openai":
        return OPENAI.calls(OPENAI.call(0, f"call_{n:020}", tool, given))
    return [*RESPONSES.created(), *RESPONSES.call(0, f"call_{n:020}", tool, given), RESPONSES.end()]


@asynccontextmanager
async def opened(
    wire: WireServer, kind: str, folder: Path, *, window: int = 100_000, **figures: Any
) -> AsyncIterator[tuple[Engine, str]]:
    """An engine whose model is behind the wire, and a session in a folder."""
    wire.always(*ok(), *SPEAKS[kind])
    address = wire.url if kind == "anthropic" else f"{wire.url}/v1"
    provider = {
        "kind": kind,
        "base_url": address,
        "api_key": "sk-a-key",
        "models": {"m": {"window": window, **figures}},
    }
    config = clew.Config(providers={"far": provider}, default_model="far/m")
    async with clew.open("memory:", config=config) as engine:
        session = await engine.create_session(title="named", workspace_root=folder)
        yield engine, session.id


def characters(body: Any) -> str:
    """A request in the order in which a provider reads it, without the marks for its cache."""
    kept = json.loads(json.dumps(body), object_hook=lambda one: {k: v for k, v in one.items() if k != "cache_control"})
    said = [*kept.get("system", []), *kept.get("messages", []), *kept.get("input", [])]
    return "\n".join(map(json.dumps, [*kept["tools"], kept.get("instructions"), *said]))


def common(before: str, after: str) -> str:
    """The beginning that both have."""
    low, high = 0, min(len(before), len(after))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if after.startswith(before[:middle]) else (low, middle - 1)
    return before[:low]
