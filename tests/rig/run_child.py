"""A program that runs one prompt on a store and prints each chunk it receives, to be killed at any time.

``python -m tests.rig.run_child STORE_URL WORKSPACE MODEL PROMPT [SESSION]``
"""

from __future__ import annotations

import asyncio
import os
import sys

import orjson

from clew.compose import open as open_engine
from clew.config import Config
from clew.transcript.metadata import local_place

__all__ = ["main"]


async def _run(url: str, workspace: str, model: str, prompt: str, session_id: str | None) -> None:
    async with open_engine(url, config=Config()) as engine:
        if session_id is None:
            session_id = (
                await engine.create_session(
                    model=model, workspace_root=workspace, title="child", metadata=local_place(None)
                )
            ).id
        _print({"session": session_id})
        async for chunk in engine.run(session_id, prompt):
            _print(chunk)


def _print(value: object) -> None:
    # One unbuffered write per line: what was printed survives a kill.
    os.write(1, orjson.dumps(value) + b"\n")


def main() -> None:
    url, workspace, model, prompt, *rest = sys.argv[1:]
    asyncio.run(_run(url, workspace, model, prompt, rest[0] if rest else None))


if __name__ == "__main__":
    main()
