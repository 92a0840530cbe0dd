"""Shell commands of the person: run in the session's folder, and attached to the next message."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

from clew.platform import WINDOWS
from clew.platform.processes import signal_group

__all__ = ["UserShell"]

_MAX_CHARS: Final = 16_000


class UserShell:
    """Runs one command at a time, and collects the output for the model."""

    def __init__(self, say: Callable[[str], None], note: Callable[[str], None]) -> None:
        self._say = say
        self._note = note
        self._unsent: list[str] = []
        self._running: asyncio.subprocess.Process | None = None

    def take(self) -> str:
        """Return and clear the output that was not sent to the model yet."""
        output, self._unsent = "".join(self._unsent), []
        return output

    def stop(self) -> bool:
        """Stop the running command; return whether there was one."""
        if self._running is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            signal_group(self._running.pid, signal.SIGTERM)
        return True

    async def run(self, command: str, folder: Path) -> None:
        """Run a command without stdin, and print its output as it arrives."""
        if WINDOWS:
            self._note("shell commands of the chat need a POSIX shell: they are off on Windows")
            return
        self._note(f"! {command}")
        process = await asyncio.create_subprocess_exec(
            *(os.environ.get("SHELL") or "/bin/sh", "-c", command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=folder,
            start_new_session=True,
            limit=_MAX_CHARS * 4,
        )
        assert process.stdout is not None
        self._running, tail = process, ""
        try:
            while data := await process.stdout.read(_MAX_CHARS):
                text = data.decode(errors="replace")
                tail = (tail + text)[-_MAX_CHARS:]
                self._say(text.rstrip("\n"))
            code = await process.wait()
        finally:
            self.stop()
            self._running = None
        ended = f"exit code {code}" if code >= 0 else f"ended by signal {-code}"
        self._note(f"{ended}; sent to the model with your next message")
        self._unsent.append(f"$ {command}\n{tail.rstrip()}\n[{ended}]\n")
