"""The memory of tools: what they keep for a session between calls (the to-do list), and when it is let go of."""

from __future__ import annotations

from typing import Any, Final

from clew.clock import Clock, Timer

__all__ = ["IDLE_MS", "ToolMemory"]

IDLE_MS: Final = 30 * 60 * 1000


class ToolMemory:
    """By session, in memory only. Held while runs come, and for half an hour after the last one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[str, dict[str, Any]] = {}
        self._timers: dict[str, Timer] = {}

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._held

    def take(self, session_id: str) -> dict[str, Any]:
        """For a run that begins: they stay from now on."""
        self._stop_timer(session_id)
        return self._held.setdefault(session_id, {})

    def release_later(self, session_id: str) -> None:
        """Nothing runs on the session any more."""
        self._stop_timer(session_id)
        self._timers[session_id] = self._clock.call_later(IDLE_MS, lambda: self.drop(session_id))

    def drop(self, session_id: str) -> None:
        self._stop_timer(session_id)
        self._held.pop(session_id, None)

    def close(self) -> None:
        for session_id in tuple(self._timers):
            self._stop_timer(session_id)

    def _stop_timer(self, session_id: str) -> None:
        timer = self._timers.pop(session_id, None)
        if timer is not None:
            timer.cancel()
