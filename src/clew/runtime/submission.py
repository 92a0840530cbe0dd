"""Submissions: what a caller holds of a prompt that was taken, and how its turn ended once it has."""

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
    """How a turn's run ended. ``error`` is a problem with ``code`` and ``message`` when it failed."""

    turn_id: str
    message_id: str
    status: TurnStatus
    stopped: str | None = None
    error: dict[str, Any] | None = None


def stored_outcome(turn: Turn, message_id: str) -> TurnOutcome:
    """Return how a settled turn ended, from the store; ``message_id`` is its last message."""
    return TurnOutcome(turn.id, message_id, turn.status, turn.stopped, dict(turn.error) or None)


class Submission:
    """A prompt that was taken: its message, whether it waits in the queue, its stream, and how its turn ends.

    ``stream`` is there when this very call began the run, and from the run's first chunk on.
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
        """How the turn ended; for a queued prompt, once it was fired. One that was cancelled never ends."""
        return await asyncio.shield(self._outcome)


class Outcomes:
    """The ends that callers wait for, by the user message that began the turn."""

    def __init__(self) -> None:
        self._awaited: dict[str, asyncio.Future[TurnOutcome]] = {}
        self._sessions: dict[str, str] = {}

    def expect(self, session_id: str, message_id: str) -> asyncio.Future[TurnOutcome]:
        if message_id not in self._awaited:
            self._awaited[message_id] = asyncio.get_running_loop().create_future()
            self._sessions[message_id] = session_id
        return self._awaited[message_id]

    def resolve(self, message_id: str, outcome: TurnOutcome) -> None:
        future = self._take(message_id)
        if future is not None and not future.done():
            future.set_result(outcome)

    def cancel(self, message_id: str) -> None:
        """The message will never be fired."""
        future = self._take(message_id)
        if future is not None:
            future.cancel()

    def cancel_session(self, session_id: str) -> None:
        """The session is gone: neither what waits in its queue nor what waits for a human will ever end."""
        for message_id in [id_ for id_, holder in self._sessions.items() if holder == session_id]:
            self.cancel(message_id)

    def awaited(self) -> dict[str, str]:
        """The messages whose end somebody waits for, each with its session."""
        return dict(self._sessions)

    def _take(self, message_id: str) -> asyncio.Future[TurnOutcome] | None:
        self._sessions.pop(message_id, None)
        return self._awaited.pop(message_id, None)
