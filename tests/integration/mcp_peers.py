"""MCP servers for tests: real ones out of the registry, and a rude one that does what a script tells it."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from tests.integration.http_client import AsgiClient

MODULES = Path(__file__).parents[1] / "node" / "node_modules"
MODERN = Path(__file__).parent / "mcp_modern.py"
RUDE = Path(__file__).parent / "mcp_rude.py"


def npm_server(package: str, script: str, *args: str, **more: Any) -> dict[str, Any]:
    """A server of the installed packages."""
    path = MODULES / package / script
    assert path.is_file(), f"{package} is not installed in tests/node: run make, which does it"
    return {"command": "node", "args": [str(path), *args], **more}


def rude_server(*manners: str, **more: Any) -> dict[str, Any]:
    """One in a few lines of Python, which knows no SDK and behaves as it is told."""
    return {"command": sys.executable, "args": ["-I", str(RUDE), *manners], **more}


async def ask(client: AsgiClient, session_id: str, text: str) -> list[dict[str, Any]]:
    """Send a prompt and wait until it is over, or somebody is asked; the last message's calls."""
    answer = await client.prompt(session_id, text)
    assert answer.status == 202, answer
    await client.idle(session_id)
    return await calls(client, session_id)


async def decide(client: AsgiClient, session_id: str, decision: str) -> list[dict[str, Any]]:
    """Answer the one request that waits, and wait again; the last message's calls."""
    [waiting] = (await client.status(session_id))["waiting"]
    path = f"/api/sessions/{session_id}/approvals/{waiting['approval_id']}"
    answer = await client.post(path, {"decision": decision})
    assert answer.status == 200, answer
    await client.idle(session_id)
    return await calls(client, session_id)


async def calls(client: AsgiClient, session_id: str) -> list[dict[str, Any]]:
    last = (await client.messages(session_id))[-1]
    return [part for part in last["parts"] if part["type"].startswith("tool-")]


async def noted(notes: Path, line: str) -> None:
    """Wait until the server has noted this."""

    def look() -> bool:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if notes.exists() and line in notes.read_text().splitlines():
                return True
            time.sleep(0.01)
        return False

    assert await asyncio.to_thread(look), line


def told(part: dict[str, Any]) -> str:
    """What came of a call, as text."""
    if part["state"] == "output-error":
        return f"error: {part['errorText']}"
    return str(part["output"]["text"]) if part["state"] == "output-available" else str(part["state"])
