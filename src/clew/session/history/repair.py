"""Repair: derived data is rebuilt. Anything else is left as it is, for the user to decide.

Opening a store for writing has already folded and settled what a dead process left. This rebuilds the projections of
every session, which follow from its tree, and accepts turns whose row is partly unreadable without that part. Text is
never changed; only the user can accept a damaged message, and that is recorded with it.
"""

from __future__ import annotations

import contextlib

from clew.errors import ClewError, Conflict, MessageNotFound
from clew.session.history.check import Problem, wrong_projections
from clew.session.history.lookup import get_named
from clew.store.base import Store
from clew.store.unit import PatchMessage, PutParts, SealMessage, SetHidden, SetTurn, Unit, Write
from clew.transcript.damage import DAMAGE_ACCEPTED, DAMAGED, DAMAGED_PART
from clew.transcript.message import MessageRow

__all__ = ["plan_accept", "repair"]


async def repair(store: Store) -> list[Problem]:
    """Repair what can be repaired; return what that was, one entry per message."""
    repaired: list[Problem] = []
    for session_id in await store.session_ids():
        # A session that cannot be read at all stays as it is; the check reports why.
        with contextlib.suppress(ClewError):
            whole = await store.find_full_session(session_id)
            if whole is None or whole.damaged:
                continue
            changes = wrong_projections(whole.tree, {row.id: row for row in whole.messages})
            if changes:
                await store.commit(Unit(session_id, (SetHidden(changes),), sync="power"))
            what = "hidden_at and hidden_by were rebuilt"
            repaired += [Problem(what, session_id, message_id) for message_id in changes]
            for turn in whole.tree.turns.values():
                if turn.damage is not None:
                    # Its messages have the content. Other data of the row is lost, which is recorded.
                    accepted = {DAMAGED: None, DAMAGE_ACCEPTED: {"damage": turn.damage}}
                    await store.commit(Unit(session_id, (SetTurn(turn.id, None, data=accepted),), sync="power"))
                    repaired.append(
                        Problem(f"its row was accepted without the unreadable part: {turn.damage}", session_id, turn.id)
                    )
    return repaired


async def plan_accept(store: Store, session_id: str, message_id: str, now: int) -> tuple[MessageRow, Unit]:
    """Return the damaged message, and the unit that seals it as it is now. Unreadable parts stay marked as such."""
    try:
        rows = await get_named(store, session_id, message_id)
    except MessageNotFound as error:
        raise MessageNotFound(
            f"there is no message {message_id} in this session; a missing message cannot be accepted, only restored",
            session_id=session_id,
            message_id=message_id,
        ) from error
    row = next((row for row in rows if row.damage is not None), rows[0])
    if row.damage is None:
        raise Conflict("this message is not damaged: there is nothing to accept", message_id=row.id)
    writes: list[Write] = []
    unread = tuple(part for part in row.parts if part.type == DAMAGED_PART)
    if unread:
        writes.append(PutParts(row.id, unread))
    writes.append(SealMessage(row.id, row.seal))
    writes.append(PatchMessage(row.id, now, {DAMAGE_ACCEPTED: {"at": now, "damage": row.damage}}, (DAMAGED,)))
    return row, Unit(session_id, tuple(writes), sync="power")
