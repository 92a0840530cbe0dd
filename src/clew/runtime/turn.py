"""The life of a turn as units: opened by a user message, settled when its run ends.

These are plans: they read nothing and write nothing. A turn hangs under the head it was opened at; the unit that
settles it moves the head onto it, so the pointer moves only when the turn is over.
"""

from __future__ import annotations

from typing import Any

from clew.store.unit import (
    EpochIs,
    HeadIs,
    InsertMessage,
    LinkMessage,
    MoveHead,
    NoOpenTurn,
    OpenTurn,
    PatchSession,
    SetEpoch,
    SetTurn,
    Unit,
    Write,
)
from clew.transcript.message import MessageRow
from clew.transcript.session import Model, SessionState
from clew.transcript.turn import Turn
from clew.transcript.turn_state import TurnStatus

__all__ = ["plan_open", "settling"]


def plan_open(state: SessionState, turn_id: str, message: MessageRow, model: Model | None = None) -> Unit:
    """Take the session for a new run and store the user message that starts it, synced.

    Refused when the session was taken, or its head moved, since ``state`` was read: read it again then.
    """
    now = message.created_at
    writes: tuple[Write, ...] = (
        SetEpoch(state.epoch + 1),
        OpenTurn(Turn(id=turn_id, session_id=message.session_id, parent_turn_id=state.head_turn_id, created_at=now)),
        InsertMessage(message),
        LinkMessage(turn_id, message.id),
        PatchSession(updated_at=now, model=model),
    )
    guards = (EpochIs(state.epoch), HeadIs(state.head_turn_id), NoOpenTurn())
    return Unit(message.session_id, writes, guards, sync="power")


def settling(turn_id: str, status: TurnStatus, now: int, data: dict[str, Any] | None = None) -> tuple[Write, ...]:
    """The writes that end a turn. One that was refused before any model call leaves the head where it was."""
    settled = SetTurn(turn_id, status, settled_at=now, data=data or {})
    return (settled,) if status == "refused" else (settled, MoveHead(turn_id, now, "turn"))
