"""The state that tools keep for a session between calls, such as the to-do list, and when it is dropped."""

from __future__ import annotations

from typing import Any, Final

from clew.clock import Clock, Timer

__all__ = ["IDLE_MS", "ToolStorage"]

IDLE_MS: Final = 30 * 60 * 1000


class ToolStorage:
    """Tool state by session, in RAM only. Kept while runs come, and for half an hour after the last one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._states: dict[str, dict[str, Any]] = {}
        self._timers: dict[str, Timer] = {}

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._states

    def take(self, session_id: str) -> dict[str, Any]:
        """Return the state for a run that starts, and stop its expiry."""
        self._stop_timer(session_id)
        return self._states.setdefault(session_id, {})

    def release_later(self, session_id: str) -> None:
        """Start the expiry of a session that has become idle."""
        self._stop_timer(session_id)
        self._timers[session_id] = self._clock.call_later(IDLE_MS, lambda: self.drop(session_id))

    def drop(self, session_id: str) -> None:
        self._stop_timer(session_id)
        self._states.pop(session_id, None)

    def close(self) -> None:
        for session_id in tuple(self._timers):
            self._stop_timer(session_id)

    def _stop_timer(self, session_id: str) -> None:
        timer = self._timers.pop(session_id, None)
        if timer is not None:
            timer.cancel()
