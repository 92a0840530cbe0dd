"""A measurement in a process of its own, so that its memory and its CPU are nobody else's."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from typing import Any

import orjson

__all__ = ["run_child"]


async def run_child(module: str, *words: object) -> dict[str, Any]:
    """What the module prints: one line of JSON."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", module, *map(str, words), stdout=PIPE)
    printed, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{module} {' '.join(map(str, words))} ended with {process.returncode}")
    return dict(orjson.loads(printed))
