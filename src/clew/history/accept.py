"""Accepting damage: a human says that a damaged message may stand as it is now, and that is written down with it."""

from __future__ import annotations

from clew.errors import Conflict, MessageNotFound
from clew.store.base import Store
from clew.store.unit import PatchMessage, PutParts, SealMessage, Unit, Write
from clew.transcript.message import MessageRow
from clew.transcript.metadata import DAMAGED
from clew.transcript.seal import seal_of

__all__ = ["ACCEPTED", "plan_accept"]

ACCEPTED = "damage_accepted"
"""The metadata key that says when a damaged message was accepted, and what was the matter with it."""


async def plan_accept(store: Store, session_id: str, message_id: str, now: int) -> tuple[MessageRow, Unit]:
    """The damaged message, and the unit that seals it as it is now. What does not read stays a part that says so."""
    row = await store.find_message(session_id, message_id)
    if row is None:
        raise MessageNotFound(
            f"there is no message {message_id} in this session; one that is gone cannot be accepted, only restored",
            session_id=session_id,
            message_id=message_id,
        )
    if row.damage is None:
        raise Conflict("this message is not damaged: there is nothing to accept", message_id=row.id)
    writes: list[Write] = []
    unread = tuple(part for part in row.parts if part.type == "data-damaged")
    if unread:
        writes.append(PutParts(row.id, unread))
    writes.append(SealMessage(row.id, seal_of(part.data for part in row.parts)))
    writes.append(PatchMessage(row.id, now, {ACCEPTED: {"at": now, "damage": row.damage}}, (DAMAGED,)))
    return row, Unit(session_id, tuple(writes), sync="power")
