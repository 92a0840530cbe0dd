"""A session that nothing runs on, under its lock: what every change of its history is made on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from clew.runtime.host import Host
from clew.runtime.live_sessions import LiveSessions
from clew.runtime.ready import settle_idle
from clew.transcript.session import Session
from clew.transcript.turn import Tree

__all__ = ["idle_session"]


@asynccontextmanager
async def idle_session(host: Host, sessions: LiveSessions, session_id: str) -> AsyncIterator[tuple[Session, Tree]]:
    """The session and its tree, under its lock. A turn that waits for a human may still be open."""
    async with sessions.lock(session_id):
        session = await sessions.get_open(session_id)
        await settle_idle(host, sessions, session_id)
        yield session, await host.store.load_tree(session_id)
