"""Runs a measurement in its own process, so that memory and CPU are counted for it alone.

A peer also gets an environment of its own.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

__all__ = ["peer_environment", "run_child"]


async def run_child(module: str, *arguments: object) -> dict[str, Any]:
    """Run the module and return the line of JSON that it prints."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", module, *map(str, arguments), stdout=PIPE)
    printed, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{module} {' '.join(map(str, arguments))} ended with {process.returncode}")
    return dict(orjson.loads(printed))


def peer_environment(home: Path, packages: Sequence[str]) -> Path | None:
    """Return the peer's own interpreter, created if missing; print the reason and return None if that fails."""
    python, ready = home / "bin" / "python", home / "installed.txt"
    if ready.exists() and ready.read_text().split() == [*packages]:
        return python
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True, capture_output=True)
        install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages]
        subprocess.run(install, check=True, capture_output=True, text=True, timeout=600)
    except (OSError, subprocess.SubprocessError) as error:
        message = str(getattr(error, "stderr", None) or error).strip().splitlines()
        reason = message[-1] if message else error
        print(f"{home.name} is skipped: {' '.join(packages)} cannot be installed here: {reason}")
        return None
    ready.write_text(" ".join(packages))
    return python
