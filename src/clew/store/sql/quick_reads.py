"""Reads that the event loop may do itself the next time: a thread has done the same lately, and it took a moment.

What was read once is in the system's memory, and how long it takes is known: about as long as to wake a thread, or
longer than others may be kept waiting. Nothing that was read is kept, so nothing here can be out of date.
"""

from __future__ import annotations

import time
from typing import Final

__all__ = ["QuickReads"]

MAX_S: Final = 0.002
"""Of what a read may take of a processor; the loop does nothing else meanwhile."""
FOR_S: Final = 60.0
"""What was read longer ago may have to come from the disk."""
MOST: Final = 1_000


class QuickReads:
    """Reads by name, of a session each. May be told in any thread."""

    def __init__(self) -> None:
        self._at: dict[tuple[str | None, str], float] = {}

    def knows(self, session_id: str | None, name: str) -> bool:
        at = self._at.get((session_id, name))
        return at is not None and time.monotonic() - at < FOR_S

    def note(self, session_id: str | None, name: str, took_s: float) -> None:
        """It was read just now, in that time."""
        if took_s > MAX_S:
            self._at.pop((session_id, name), None)
            return
        if len(self._at) >= MOST:
            self._at = {}
        self._at[session_id, name] = time.monotonic()
