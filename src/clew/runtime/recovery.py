"""Recovery: what a process that died left behind, folded and settled before the first read.

Streams in the journal are folded into the parts they belong to; turns that wait for nobody, and calls without a
result, are given a truthful end; queues are paused. A second recovery finds nothing to do. Each stream and each session
is a unit of its own, so a kill in between leaves the others for the next time.
"""

from __future__ import annotations

import logging

from clew.errors import RowUndecodable
from clew.failpoints import failpoint
from clew.ids import Mint
from clew.runtime.journal_fold import fold_streams
from clew.runtime.model_calls import Cost, end_interrupted
from clew.runtime.standing import load_standing
from clew.runtime.take import settle_session
from clew.store.base import Store
from clew.store.unit import PatchSession, Unit
from clew.transcript.metadata import PAUSED_KEY

__all__ = ["recover"]

log = logging.getLogger("clew.recovery")


async def recover(store: Store, mint: Mint, now: int, cost: Cost | None = None) -> tuple[str, ...]:
    """Fold every stream that was left behind, book what broke off, then settle what no run will.

    The sessions whose turn can be resumed.
    """
    resumable: list[str] = []
    await fold_streams(store, mint, now)
    await end_interrupted(store, cost, now)
    for session_id in await store.unsettled_sessions():
        failpoint("recovery.before_settle")
        try:
            standing = await load_standing(store, session_id)
            await settle_session(store, standing, now)
            if standing.is_resumable:
                resumable.append(session_id)
            session = await store.find_session(session_id)
            if session is not None and session.paused_by is None and await store.load_queue(session_id):
                # Nobody is left who would fire what waits; whether it is still wanted a person says.
                paused = PatchSession(metadata={PAUSED_KEY: "restart"})
                await store.commit(Unit(session_id, (paused,), sync="power"))
        except RowUndecodable as error:
            # It stays as it was left, and says so when it is read; the others are opened.
            log.error("session %s could not be settled: %s", session_id, error)
    return tuple(resumable)
