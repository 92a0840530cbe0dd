"""Making a session ready: for somebody who takes it for a run, or who changes its history. Always under its lock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from clew.errors import Conflict, SessionBusy, WaitingForHuman
from clew.runtime.host import Host
from clew.runtime.journal_fold import fold_streams
from clew.runtime.live_sessions import LiveSessions
from clew.runtime.model_calls import end_interrupted
from clew.runtime.settle import LOST
from clew.runtime.standing import Standing, load_standing
from clew.runtime.take import settle_session
from clew.runtime.waiting import load_open_turn
from clew.transcript.session import Session
from clew.transcript.turn import Tree
from clew.transcript.wait import is_answered, waits_of

__all__ = ["find_obstacle", "idle_session", "make_ready", "settle_idle", "settle_startable"]


async def find_obstacle(host: Host, sessions: LiveSessions, session_id: str) -> Conflict | None:
    """Why nothing can be begun on the session now; None when something can. Only reads."""
    try:
        sessions.check_free(session_id)
    except SessionBusy as busy:
        return busy
    turn = await load_open_turn(host.store, session_id)
    if turn is None or turn.status != "waiting" or is_answered(waits_of(turn)):
        return None
    ways = f"give it on the page, over HTTP or in `clew chat {session_id}`, or abort"
    return WaitingForHuman(f"this session waits for a human's answer: {ways}", session_id=session_id)


async def make_ready(host: Host, session_id: str) -> Standing:
    """What somebody who takes the session has to know of it. Nothing may have it."""
    # What a run that could not store its end left in the journal must be in its parts before they are settled.
    now = host.clock.now_ms()
    await fold_streams(host.store, host.mint, now, session_id)
    await end_interrupted(host.store, host.providers.cost, now, session_id)
    return await load_standing(host.store, session_id)


async def settle_idle(host: Host, sessions: LiveSessions, session_id: str) -> Standing:
    """Settle the session for somebody who begins no run; how it stood before. :class:`SessionBusy` while one goes on.

    A turn that waits for a human stays open.
    """
    sessions.check_free(session_id)
    now = host.clock.now_ms()
    await fold_streams(host.store, host.mint, now, session_id)
    await end_interrupted(host.store, host.providers.cost, now, session_id)
    return await settle_session(host.store, session_id, now, LOST)


async def settle_startable(host: Host, sessions: LiveSessions, session_id: str) -> None:
    """Settle the session for something that is about to begin on it; raises why nothing can."""
    obstacle = await find_obstacle(host, sessions, session_id)
    if obstacle is not None:
        raise obstacle
    await settle_idle(host, sessions, session_id)


@asynccontextmanager
async def idle_session(host: Host, sessions: LiveSessions, session_id: str) -> AsyncIterator[tuple[Session, Tree]]:
    """The session and its tree, under its lock: what every change of its history is made on.

    Nothing runs on it. A turn that waits for a human may still be open.
    """
    async with sessions.lock(session_id):
        session = await sessions.get_open(session_id)
        await settle_idle(host, sessions, session_id)
        yield session, await host.store.load_tree(session_id)
