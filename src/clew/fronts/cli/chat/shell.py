"""A command of the person's own: run in the folder of the session, shown, and told with the next message."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

__all__ = ["OwnShell"]

_KEPT_CHARS: Final = 16_000


class OwnShell:
    """Runs one command at a time. ``told`` is what the model is to be told of those that ran."""

    def __init__(self, say: Callable[[str], None], note: Callable[[str], None]) -> None:
        self._say = say
        self._note = note
        self._told: list[str] = []
        self._running: asyncio.subprocess.Process | None = None

    def take(self) -> str:
        """What the model was not told yet."""
        told, self._told = "".join(self._told), []
        return told

    def stop(self) -> bool:
        """End what runs; False when nothing does."""
        if self._running is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._running.pid, signal.SIGTERM)
        return True

    async def run(self, command: str, folder: Path) -> None:
        """Run it with nobody to answer it, and say what it says as it comes."""
        self._note(f"! {command}")
        process = await asyncio.create_subprocess_exec(
            *(os.environ.get("SHELL") or "/bin/sh", "-c", command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=folder,
            start_new_session=True,
            limit=_KEPT_CHARS * 4,
        )
        assert process.stdout is not None
        self._running, kept = process, ""
        try:
            while data := await process.stdout.read(_KEPT_CHARS):
                text = data.decode(errors="replace")
                kept = (kept + text)[-_KEPT_CHARS:]
                self._say(text.rstrip("\n"))
            code = await process.wait()
        finally:
            self.stop()
            self._running = None
        ended = f"exit code {code}" if code >= 0 else f"ended by signal {-code}"
        self._note(f"{ended}; the model is told of it with your next message")
        self._told.append(f"$ {command}\n{kept.rstrip()}\n[{ended}]\n")
