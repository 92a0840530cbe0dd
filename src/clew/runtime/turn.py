"""The end of a turn as writes. A turn hangs under the head it was opened at; the unit that settles it moves the head
onto it, so the pointer moves only when the turn is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clew.store.unit import MoveHead, SetHidden, SetTurn, Write
from clew.transcript.chunk import FinishReason
from clew.transcript.project import Hidden
from clew.transcript.turn_state import TurnStatus

__all__ = ["finish_of", "refusing", "settling"]


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
