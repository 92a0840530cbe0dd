"""Guards: the one place that decides whether a unit may be written. Used by every store, inside its transaction."""

from __future__ import annotations

from collections.abc import Callable

from clew.store.unit import (
    STORE_WIDE,
    EpochIs,
    EventIsNew,
    HeadIs,
    InsertSession,
    NoOpenTurn,
    OpenTurnIs,
    Refused,
    StillQueued,
    Unit,
)
from clew.transcript.session import SessionState

__all__ = ["refusal"]


def refusal(
    unit: Unit, state: SessionState | None, is_queued: Callable[[str], bool], has_event: Callable[[EventIsNew], bool]
) -> Refused | None:
    """Why this unit must not be written, or None. ``state`` is None when the session is not there."""
    if any(isinstance(guard, EventIsNew) and has_event(guard) for guard in unit.guards):
        return Refused("event_exists")
    if unit.session_id == STORE_WIDE:
        return None
    creates = bool(unit.writes) and isinstance(unit.writes[0], InsertSession)
    if state is None:
        return None if creates else Refused("session_not_found")
    if creates:
        return Refused("session_exists")
    for guard in unit.guards:
        match guard:
            case EpochIs(epoch) if state.epoch != epoch:
                return Refused("stale_epoch")
            case HeadIs(turn_id) if state.head_turn_id != turn_id:
                return Refused("head_moved")
            case NoOpenTurn() if state.open_turn_id is not None:
                return Refused("turn_open")
            case OpenTurnIs(turn_id) if state.open_turn_id != turn_id:
                return Refused("turn_not_open")
            case StillQueued(message_id) if not is_queued(message_id):
                return Refused("not_queued")
    return None
