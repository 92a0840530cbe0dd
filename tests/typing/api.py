"""How clew is used, for the type checker alone. This file is never run."""

from __future__ import annotations

import clew


async def quickstart() -> None:
    async with clew.open("sqlite:///clew.db") as engine:
        session = await engine.create_session(model="demo/echo")
        async for chunk in engine.run(session.id, "hello"):
            print(chunk["type"])


async def submit_and_wait(engine: clew.Engine, session_id: str) -> str:
    submission = await engine.submit(session_id, "hello", on_busy="queue")
    queued: bool = submission.queued
    await submission.wait()
    return submission.message_id if queued else ""
