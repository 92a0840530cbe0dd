"""Runs a measurement in its own process, so that memory and CPU are counted for it alone."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from typing import Any

import orjson

__all__ = ["run_child"]


async def run_child(module: str, *arguments: object) -> dict[str, Any]:
    """Run the module and return the line of JSON that it prints."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", module, *map(str, arguments), stdout=PIPE)
    printed, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{module} {' '.join(map(str, arguments))} ended with {process.returncode}")
    return dict(orjson.loads(printed))
