"""Recovery: fold and settle what a dead process left behind, before the first read.

Streams in the journal are folded into their parts; turns that wait for no human, and calls without a result, are
settled with what is known; queues are paused. A second recovery finds nothing to do. Each stream and each session is
its own unit, so a crash in between leaves the others for the next recovery.
"""

from __future__ import annotations

import logging

from clew.errors import RowUndecodable
from clew.failpoints import failpoint
from clew.ids import Mint
from clew.session.acquire.acquire import settle_session
from clew.session.acquire.journal_fold import fold_streams
from clew.session.acquire.loaded_session import load_session_state
from clew.session.model_calls import Cost, end_interrupted
from clew.store.base import Store
from clew.store.unit import PatchSession, Unit
from clew.transcript.metadata import PAUSED_KEY

__all__ = ["recover"]

log = logging.getLogger("clew.recovery")


async def recover(store: Store, mint: Mint, now: int, cost: Cost | None = None) -> tuple[str, ...]:
    """Fold every pending stream, close interrupted model calls, and settle every open turn without a run.

    Return the sessions whose turn can be resumed.
    """
    resumable: list[str] = []
    await fold_streams(store, mint, now)
    await end_interrupted(store, cost, now)
    for session_id in await store.unsettled_sessions():
        failpoint("recovery.before_settle")
        try:
            loaded = await load_session_state(store, session_id)
            await settle_session(store, loaded, now)
            if loaded.is_resumable:
                resumable.append(session_id)
            session = await store.find_session(session_id)
            if session is not None and session.paused_by is None and await store.load_queue(session_id):
                # The process that would start the queue is gone; the user decides whether it is still wanted.
                paused = PatchSession(metadata={PAUSED_KEY: "restart"})
                await store.commit(Unit(session_id, (paused,), sync="power"))
        except RowUndecodable as error:
            # It stays as it was left, and reports the damage when read; the others are opened.
            log.error("session %s could not be settled: %s", session_id, error)
    return tuple(resumable)
