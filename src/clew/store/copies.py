"""Copying a line: what a :class:`CopyLine` comes to, worked out once for every store."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from clew.errors import InternalError
from clew.store.unit import CopyLine
from clew.transcript.turn import Turn, place_below
from clew.transcript.turn_state import OPEN, check_transition

__all__ = ["NOT_COPIED", "Copied", "Copying", "plan_copy"]

NOT_COPIED: Final = ("hidden_at", "hidden_by", "snapshot_id")
"""Metadata that a copied message does not take along: it says something about the source's tree or workspace."""


class Copied(NamedTuple):
    """A message to copy and its place in the copy. ``inserted``: the unit has inserted the copy by itself."""

    source_id: str
    id: str
    inserted: bool
    turn_id: str
    position: int
    origin_turn_id: str | None


class Copying(msgspec.Struct, frozen=True):
    """The turns as they are stored, root first, and the messages in the order of the line."""

    turns: tuple[Turn, ...]
    messages: tuple[Copied, ...]


def plan_copy(session_id: str, write: CopyLine) -> Copying:
    """Check the write and place its turns below one another."""
    turns: list[Turn] = []
    messages: list[Copied] = []
    parent: Turn | None = None
    for entry in write.turns:
        turn = entry.turn
        check_transition(None, turn.status)
        if turn.status in OPEN or turn.session_id != session_id:
            raise InternalError("a copied turn is open, or of another session", turn_id=turn.id)
        parent = place_below(turn, parent)
        turns.append(parent)
        for position, (source_id, id_, inserted) in enumerate(entry.messages):
            messages.append(Copied(source_id, id_, inserted, turn.id, position, turn.origin_turn_id))
    if len({copied.source_id for copied in messages}) < len(messages):
        raise InternalError("a message would be copied twice", session_id=write.source_session_id)
    return Copying(tuple(turns), tuple(messages))
