"""What a connection and its transport know of one another."""

from __future__ import annotations

import asyncio
import time
from typing import Final

__all__ = ["MAX_MESSAGE", "Budget", "Flood", "Wire"]

MAX_MESSAGE: Final = 8 * 1024 * 1024
_BYTES: Final = 32 * 1024 * 1024
_BYTES_A_SECOND: Final = 8 * 1024 * 1024
_MESSAGES: Final = 2_000
_MESSAGES_A_SECOND: Final = 500


class Flood(Exception):
    """It says more than is taken."""


class Wire:
    """What goes over one connection. ``closed`` is set when nothing more comes, ``why`` says why."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.why: str | None = None

    def close(self, why: str) -> None:
        self.why = self.why or why
        self.closed.set()


class Budget:
    """How much may still come: a good deal at once, and then so much a second."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._bytes: float = _BYTES
        self._messages: float = _MESSAGES

    def take(self, size: int = 0, messages: float = 0) -> None:
        now = time.monotonic()
        passed, self._at = now - self._at, now
        self._bytes = min(self._bytes + passed * _BYTES_A_SECOND, _BYTES) - size
        self._messages = min(self._messages + passed * _MESSAGES_A_SECOND, _MESSAGES) - messages
        if self._bytes < 0 or self._messages < 0:
            raise Flood("it sends more than is taken of a server")
