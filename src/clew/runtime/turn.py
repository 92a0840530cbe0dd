"""The life of a turn as units: opened by a user message, settled when its run ends.

These are plans: they read nothing and write nothing. A turn hangs under the head it was opened at; the unit that
settles it moves the head onto it, so the pointer moves only when the turn is over.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    SealMessage,
    SetEpoch,
    SetHidden,
    SetTurn,
    Unit,
    Write,
)
from clew.transcript.chunk import FinishReason
from clew.transcript.message import MessageRow
from clew.transcript.project import Hidden
from clew.transcript.seal import seal_of
from clew.transcript.session import Model, SessionState
from clew.transcript.turn import Turn
from clew.transcript.turn_state import TurnStatus

__all__ = ["finish_of", "plan_open", "refusing", "settling"]


def plan_open(state: SessionState, turn_id: str, message: MessageRow, model: Model | None = None, *more: Write) -> Unit:
    """Take the session for a new run and store the user message that starts it, synced.

    Refused when the session was taken, or its head moved, since ``state`` was read: read it again then.
    """
    now = message.created_at
    writes: tuple[Write, ...] = (
        SetEpoch(state.epoch + 1),
        OpenTurn(Turn(id=turn_id, session_id=message.session_id, parent_turn_id=state.head_turn_id, created_at=now)),
        InsertMessage(message),
        SealMessage(message.id, seal_of(part.data for part in message.parts)),
        LinkMessage(turn_id, message.id),
        PatchSession(updated_at=now, model=model),
        *more,
    )
    guards = (EpochIs(state.epoch), HeadIs(state.head_turn_id), NoOpenTurn())
    return Unit(message.session_id, writes, guards, sync="power")


def settling(turn_id: str, status: TurnStatus, now: int, data: dict[str, Any] | None = None) -> tuple[Write, ...]:
    """The writes that end a turn that was answered, in whatever way: it becomes the head."""
    return SetTurn(turn_id, status, settled_at=now, data=data or {}), MoveHead(turn_id, now, "turn")


def finish_of(stopped: str | None) -> FinishReason:
    """How the stream of a turn that completed says that it ended."""
    said: dict[str | None, FinishReason] = {
        None: "stop",
        "length": "length",
        "content_filter": "content-filter",
        "error": "error",
    }
    return said.get(stopped, "other")


def refusing(turn_id: str, message_ids: Sequence[str], now: int, data: dict[str, Any]) -> tuple[Write, ...]:
    """The writes that end a turn refused before any model call: the head stays, its messages are hidden."""
    hidden: dict[str, Hidden | None] = {message_id: Hidden(now, "refused") for message_id in message_ids}
    return SetTurn(turn_id, "refused", settled_at=now, data=data), SetHidden(hidden)
