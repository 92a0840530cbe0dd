"""Deleting sessions in portions, each a unit of its own, so that other writes need not wait for a long session.

The first unit makes the session disappear from every read. If the process is killed, recovery finishes the deletion; it
also deletes what a killed process has left of a copy.
"""

from __future__ import annotations

from clew.failpoints import failpoint
from clew.store.base import Store
from clew.store.unit import BeginDeletion, DeletePortion, Unit

__all__ = ["delete_rows", "delete_unfinished"]


async def delete_rows(store: Store, session_id: str) -> None:
    """Delete the rows of a session whose deletion has begun."""
    while session_id in await store.unfinished_sessions():
        failpoint("store.between_deletions")
        await store.commit(Unit(session_id, (DeletePortion(),)))


async def delete_unfinished(store: Store, session_id: str | None = None) -> None:
    """Delete this session, or all, that were left half copied or half deleted."""
    for id_ in await store.unfinished_sessions() if session_id is None else (session_id,):
        await store.commit(Unit(id_, (BeginDeletion(),), sync="power"))
        await delete_rows(store, id_)
