"""Repair: what can be worked out anew is written anew. What cannot is left as it is, for a person to decide.

Opening a store for writing has already folded and settled what a dead process left. Here the projections of every
session, which follow from its tree, are brought back to what the tree says. Text is never touched.
"""

from __future__ import annotations

from clew.errors import ClewError
from clew.history.check import Problem
from clew.store.base import Store
from clew.store.unit import SetHidden, Unit
from clew.transcript.metadata import projection_of
from clew.transcript.project import Hidden, project, tails_of

__all__ = ["repair"]


async def repair(store: Store) -> list[Problem]:
    """Mend what can be mended; what that was, one entry a message."""
    mended: list[Problem] = []
    for session_id in await store.session_ids():
        try:
            mended += await _repair_projections(store, session_id)
        except ClewError:
            # A session that does not even read stays as it is; the judge says why.
            continue
    return mended


async def _repair_projections(store: Store, session_id: str) -> list[Problem]:
    whole = await store.load_whole(session_id)
    if whole is None or whole.damaged:
        return []
    rows = {row.id: row for row in whole.messages}
    truth = project(whole.tree, tails_of(whole.tree, rows))
    changes: dict[str, Hidden | None] = {}
    for row in whole.messages:
        hidden = truth.get(row.id)
        if projection_of(row.metadata) != ((hidden.at, hidden.by) if hidden else (None, None)):
            changes[row.id] = hidden
    if changes:
        await store.commit(Unit(session_id, (SetHidden(changes),), sync="power"))
    return [Problem("hidden_at and hidden_by were written anew", session_id, message_id) for message_id in changes]
