"""A program to kill while it restores the files of a workspace."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import clew
from clew.failpoints import arm
from clew.session.api import Engine
from clew.testing.scripted import FakeProviders, ScriptedModel, call, say
from clew.transcript.rule import Rule

__all__ = ["BEFORE", "NAMES", "open_at"]

NAMES = ("a.txt", "b.txt", "c.txt")
BEFORE = dict.fromkeys(NAMES, "old")


@asynccontextmanager
async def open_at(folder: Path) -> AsyncIterator[Engine]:
    """Open the store of the folder, with a model that changes every file of the workspace."""
    script: list[Any] = [[call("write", {"path": name, "content": "new"}) for name in NAMES], say("done")]
    model = ScriptedModel(script)
    async with clew.open(
        f"sqlite:///{folder / 'store.db'}",
        providers=FakeProviders(model),
        rules=[Rule("*", "*", "allow")],
        snapshots="on",
    ) as engine:
        yield engine


async def _run(folder: Path, deed: str, failpoints: str) -> None:
    if deed == "open":
        arm(failpoints)
    async with open_at(folder) as engine:
        if deed == "talk":
            workspace = folder / "workspace"
            workspace.mkdir()
            for name, text in BEFORE.items():
                (workspace / name).write_text(text)
            session = await engine.create_session(workspace_root=str(workspace))
            await (await engine.submit(session.id, "go")).wait()
            return
        [session] = (await engine.list_sessions()).sessions
        [message, *_] = await engine.messages(session.id)
        arm(failpoints)
        if deed == "rewind":
            await engine.rewind(session.id, message.id, mode="edit", files="restore")
        elif deed == "only":
            await engine.rewind(session.id, message.id, files="only")


def main() -> int:
    asyncio.run(_run(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
