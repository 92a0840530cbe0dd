"""Submissions: the caller's handle of an accepted prompt, and the outcome of its turn."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import msgspec

from clew.live.base import LiveStream
from clew.transcript.turn import Turn
from clew.transcript.turn_state import TurnStatus

__all__ = ["OnBusy", "Outcomes", "Submission", "TurnOutcome", "stored_outcome"]

OnBusy = Literal["queue", "reject", "interrupt"]


class TurnOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of a turn's run. ``error`` has a ``code`` and a ``message`` if it failed."""

    turn_id: str
    message_id: str
    status: TurnStatus
    stopped: str | None = None
    error: dict[str, Any] | None = None


def stored_outcome(turn: Turn, message_id: str) -> TurnOutcome:
    """Return the outcome of a settled turn, from the store; ``message_id`` is its last message."""
    return TurnOutcome(turn.id, message_id, turn.status, turn.stopped, dict(turn.error) or None)


class Submission:
    """An accepted prompt: its message, whether it is queued, its stream, and the outcome of its turn.

    ``stream`` is set if this call started the run, and starts at the run's first chunk.
    """

    def __init__(
        self,
        message_id: str,
        outcome: asyncio.Future[TurnOutcome],
        *,
        queued: bool = False,
        turn_id: str | None = None,
        stream: LiveStream | None = None,
    ) -> None:
        self.message_id = message_id
        self.queued = queued
        self.turn_id = turn_id
        self.stream = stream
        self._outcome = outcome

    async def wait(self) -> TurnOutcome:
        """Wait for the outcome of the turn, also while the prompt is queued. Never returns if it is cancelled."""
        return await asyncio.shield(self._outcome)


class Outcomes:
    """The outcomes that callers wait for, by the user message that started the turn."""

    def __init__(self) -> None:
        self._awaited: dict[str, asyncio.Future[TurnOutcome]] = {}
        self._sessions: dict[str, str] = {}

    def expect(self, session_id: str, message_id: str) -> asyncio.Future[TurnOutcome]:
        if message_id not in self._awaited:
            self._awaited[message_id] = asyncio.get_running_loop().create_future()
            self._sessions[message_id] = session_id
        return self._awaited[message_id]

    def resolve(self, message_id: str, outcome: TurnOutcome) -> None:
        future = self._pop(message_id)
        if future is not None and not future.done():
            future.set_result(outcome)

    def cancel(self, message_id: str) -> None:
        """Cancel the outcome of a message whose turn will never start."""
        future = self._pop(message_id)
        if future is not None:
            future.cancel()

    def cancel_session(self, session_id: str) -> None:
        """Cancel the outcomes of a deleted session: neither queued messages nor waiting turns will end."""
        for message_id in [id_ for id_, holder in self._sessions.items() if holder == session_id]:
            self.cancel(message_id)

    def awaited(self) -> dict[str, str]:
        """Return the messages whose outcome is awaited, each with its session."""
        return dict(self._sessions)

    def _pop(self, message_id: str) -> asyncio.Future[TurnOutcome] | None:
        self._sessions.pop(message_id, None)
        return self._awaited.pop(message_id, None)
