"""Sessions that clew writes for other programs to read: tools, errors, files, a summary, a rewind, a branch, a kill.

``python -m tests.programs.written URL`` is killed while an answer and a call are in flight, and prints the ids before.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

import clew
from clew.config import CompactionConfig
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, call, hang, say, then, think
from clew.transcript.usage import Usage
from tests.acceptance.compacting import summary

PICTURE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5Erk"
    "Jggg=="
)
STRANGE = 'löffel 🥄 \u2028 "quoted" \\ back\ttab 日本語 e\u0301'


@clew.tool
async def weigh(path: str) -> str:
    """Weigh a file."""
    if path == "missing":
        raise clew.ToolFailed("there is no such file: 🫥")
    return f"weight of {path}:\n42 g"


def script() -> list[Any]:
    """The answers to the prompts of :func:`write`, in order."""
    return [
        say(f"Hello, {STRANGE}."),
        [
            think("two calls"),
            say("I will weigh them."),
            call("weigh", {"path": "a/ü.txt"}),
            call("weigh", {"path": "missing"}),
        ],
        then(say("One weighs 42 g."), usage=Usage(input=30, output=7, reasoning=2, cache_read=4, cache_write=1)),
        say("a dot"),
        say("the wrong way"),
        say("the right way"),
        then(say(summary("weigh spoons 🥄")), usage=Usage(input=5, output=3)),
        say("at the end"),
    ]


async def write(url: str) -> dict[str, str]:
    """Write the sessions into a store and return their ids by name."""
    model = ScriptedModel(script())
    config = clew.Config(compaction=CompactionConfig(tail_turns=1, keep_recent_tokens=1))
    workspace = {"workerId": "w", "workspaceId": "ws"} if url.startswith("json:") else {}
    async with clew.open(url, providers=FakeProviders(model), tools=[weigh], config=config) as engine:
        session = await engine.create_session(title=f"Spoons {STRANGE}", metadata=workspace, workspace_root="/")
        await engine.set_permissions(session.id, [{"permission": "weigh", "pattern": "*", "action": "allow"}])

        async def ask(prompt: Any) -> str:
            submission = await engine.submit(session.id, prompt)
            await submission.wait()
            return submission.message_id

        await ask(f"I have {STRANGE}. " + "Many words. " * 200)
        await ask("Weigh them")
        picture = {"type": "file", "mediaType": "image/png", "url": PICTURE, "filename": "dot ü.png"}
        third = await ask([{"type": "text", "text": "And this?"}, picture])
        branch = await engine.branch(session.id, third)
        wrong = await ask("Which way?")
        await engine.rewind(session.id, wrong, mode="edit")
        await ask("Which way, then?")
        await engine.compact(session.id)
        await ask("And now?")
        empty = await engine.create_session(title="empty", metadata=workspace)
    return {"talk": session.id, "branch": branch.id, "empty": empty.id}


async def write_and_die(url: str) -> None:
    """Start a turn that has answered, called, and hangs in the middle of its next step; then kill this process."""
    reached = Gate()
    model = ScriptedModel([[say("Looking."), call("weigh", {"path": "x"})], [say("It weighs "), hang(reached)]])
    workspace = {"workerId": "w", "workspaceId": "ws"} if url.startswith("json:") else {}
    async with clew.open(url, providers=FakeProviders(model), tools=[weigh], config=clew.Config()) as engine:
        session = await engine.create_session(title="killed", metadata=workspace)
        await engine.set_permissions(session.id, [{"permission": "weigh", "pattern": "*", "action": "allow"}])
        await engine.submit(session.id, "Weigh x")
        await reached.reached.wait()
        print(json.dumps({"killed": session.id}), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(write_and_die(sys.argv[1]))
