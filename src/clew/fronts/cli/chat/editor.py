"""The user's editor, opened for a text on the terminal of a running application."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import tempfile
from pathlib import Path
from typing import Final

from prompt_toolkit.application import in_terminal

__all__ = ["edit_text"]

_EDITORS: Final = ("editor", "nano", "pico", "vi", "emacs")
"""Tried in this order if the environment names none."""
_END_GRACE_S: Final = 1.0
"""Time for a terminated editor to restore the terminal; then it is killed."""


async def edit_text(text: str) -> str | None:
    """Return the text that the editor saved, or None if it failed. If cancelled, the editor is terminated."""
    with tempfile.TemporaryDirectory(prefix="clew-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "line.md"
        path.write_bytes(text.encode(errors="replace"))
        async with in_terminal():
            process = await _start_editor(path)
            if process is None:
                return None
            try:
                code = await process.wait()
            finally:
                if process.returncode is None:
                    await _end_editor(process)
        try:
            return path.read_bytes().decode().removesuffix("\n") if code == 0 else None
        except (OSError, UnicodeDecodeError):
            return None


async def _start_editor(path: Path) -> asyncio.subprocess.Process | None:
    """Start the first editor that exists."""
    for command in (os.environ.get("VISUAL"), os.environ.get("EDITOR"), *_EDITORS):
        with contextlib.suppress(OSError, ValueError):
            if words := shlex.split(command or ""):
                return await asyncio.create_subprocess_exec(*words, path)
    return None


async def _end_editor(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _END_GRACE_S)
        except TimeoutError:
            process.kill()
