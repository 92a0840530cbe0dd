"""State shared by a connection and its transport."""

from __future__ import annotations

import asyncio
import time
from typing import Final

__all__ = ["MAX_MESSAGE", "LimitExceeded", "RateLimit", "Wire"]

MAX_MESSAGE: Final = 8 * 1024 * 1024
_BURST_BYTES: Final = 32 * 1024 * 1024
_BYTES_PER_S: Final = 8 * 1024 * 1024
_BURST_MESSAGES: Final = 2_000
_MESSAGES_PER_S: Final = 500


class LimitExceeded(Exception):
    """The server sends more than is accepted."""


class Wire:
    """The state of one transport. ``closed`` is set when it has ended, ``why`` is the reason."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.why: str | None = None

    def close(self, why: str) -> None:
        self.why = self.why or why
        self.closed.set()


class RateLimit:
    """A limit for bytes and messages of a server: a burst, and then a rate."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._bytes: float = _BURST_BYTES
        self._messages: float = _BURST_MESSAGES

    def spend(self, size: int = 0, messages: float = 0) -> None:
        now = time.monotonic()
        passed, self._at = now - self._at, now
        self._bytes = min(self._bytes + passed * _BYTES_PER_S, _BURST_BYTES) - size
        self._messages = min(self._messages + passed * _MESSAGES_PER_S, _BURST_MESSAGES) - messages
        if self._bytes < 0 or self._messages < 0:
            raise LimitExceeded("it sends more than a server may")
