"""A coding agent for one folder: ``python coder.py FOLDER "task"``. It reads by itself, and asks before it changes any.

The session of a folder continues with the next task, and with what was left open when the program ended.
``python coder.py FOLDER --undo`` takes the newest task back, so that it can be given in other words.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Literal

import clew

Decision = Literal["once", "session", "deny"]
Decide = Callable[[str, dict[str, Any]], Decision]
"""Decides a tool call, by the tool's name and its arguments."""

AGENT = clew.Agent(
    name="coder",
    description="Changes code in a folder.",
    prompt="You are a careful programmer. Read before you edit, keep changes small, and run the tests afterwards.",
)
# What no rule decides is asked. `./` is the folder; a later rule outranks an earlier one.
RULES = [
    *(clew.Rule(tool, "./**", "allow") for tool in ("read", "ls", "glob", "grep")),
    clew.Rule("read", "./**/*.env", "deny"),
    clew.Rule("bash", "git status*", "allow"),
    clew.Rule("bash", "git diff*", "allow"),
]
TOOLS = ["read", "ls", "glob", "grep", "write", "edit", "bash", "todo"]


def open_coder(url: str, **given: Any) -> AbstractAsyncContextManager[clew.Engine]:
    return clew.open(url, **{"agents": [AGENT], "rules": RULES, "builtin_tools": TOOLS, **given})


async def find_session(engine: clew.Engine, folder: Path) -> str:
    """Return the name of the folder's session, which is created for the first task."""
    folder = await asyncio.to_thread(folder.resolve, strict=True)
    name = f"folder-{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"
    with contextlib.suppress(clew.AliasTaken):
        await engine.create_session(alias=name, workspace_root=folder, title=folder.name)
    return name


async def answer_pending(engine: clew.Engine, session: str, decide: Decide) -> bool:
    """Decide the calls that wait for an approval; return whether there were any."""
    waiting = {one.tool_call_id: one for one in (await engine.get_status(session)).waiting}
    parts = [part for message in await engine.messages(session) for part in message.parts]
    for part in parts:
        pending = waiting.get(part.get("toolCallId", ""))
        if pending is not None and pending.approval_id is not None:
            decision = await asyncio.to_thread(decide, pending.tool, part["input"])
            await engine.answer(session, pending.approval_id, decision)
    return bool(waiting)


async def work(engine: clew.Engine, session: str, task: str | None, decide: Decide) -> AsyncIterator[str]:
    """Yield what the agent says until the task is done. Without a task, finish the one that was left open."""
    cursor: str | None = None
    if task is not None:
        await engine.submit(session, task, on_busy="reject")
    elif not await answer_pending(engine, session, decide):
        await engine.continue_turn(session)
    while True:
        async for chunk in engine.attach(session, after=cursor):
            cursor = chunk.cursor
            if chunk["type"] == "text-delta":
                yield chunk["delta"]
        if not await answer_pending(engine, session, decide):
            return


async def undo(engine: clew.Engine, session: str) -> str:
    """Take the newest task back and return its text. Files stay as they are: use git for those."""
    tasks = [message for message in await engine.messages(session) if message.role == "user"]
    return (await engine.rewind(session, tasks[-1].id, mode="edit")).draft or ""


def ask_at_terminal(tool: str, arguments: dict[str, Any]) -> Decision:
    print(f"\n{tool} {json.dumps(arguments, indent=2, ensure_ascii=False)}")
    answers: dict[str, Decision] = {"y": "once", "a": "session"}
    return answers.get(input("Allow it? [y]es, [a]lways in this session, [N]o: ").strip().lower(), "deny")


async def main(folder: Path, task: str | None, decide: Decide = ask_at_terminal, **given: Any) -> None:
    home = Path.home() / ".local" / "share" / "coding-agent"  # outside the folder: the agent cannot reach its own store
    home.mkdir(parents=True, exist_ok=True)
    async with open_coder(f"sqlite:///{home}/coder.db", **given) as engine:
        session = await find_session(engine, folder)
        if task == "--undo":
            print(await undo(engine, session))
            return
        async for text in work(engine, session, task, decide):
            print(text, end="", flush=True)
        print()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None))
