"""Preparation of a session for a run or a change of its history. The caller always holds the session's lock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from clew.errors import Conflict, SessionBusy, WaitingForHuman
from clew.session.acquire.acquire import LOST, plan_fence, settle_session
from clew.session.acquire.live_sessions import LiveSessions
from clew.session.acquire.loaded_session import LoadedSession, load_session_state
from clew.session.acquire.recovery import fold_streams
from clew.session.context.context import MeasuredLine, find_cheap_context
from clew.session.host import Host
from clew.session.model_calls import end_interrupted
from clew.session.prompt.turn_config import LastEnvironment, load_last_environment
from clew.store.base import Moment, get_session
from clew.store.unit import Refused
from clew.transcript.message import MessageRow
from clew.transcript.session import Session
from clew.transcript.wait import is_answered, waits_of

__all__ = [
    "PromptStart",
    "find_obstacle",
    "is_live_anywhere",
    "load_prompt_start",
    "locked_idle_session",
    "prepare_session",
    "settle_idle",
    "settle_startable",
]


class PromptStart(msgspec.Struct, frozen=True):
    """The state of a session before a run starts on it, read as of one moment.

    ``loaded`` is None while the session is active. ``sent`` are earlier messages with the client's id of the next
    one. ``counted`` is the line that a model would be sent, if it is cheap to read.
    """

    session: Session
    last_environment: LastEnvironment
    newest_at: int
    loaded: LoadedSession | None
    sent: tuple[MessageRow, ...] = ()
    counted: MeasuredLine | None = None


async def load_prompt_start(
    host: Host, sessions: LiveSessions, session_id: str, client_id: str | None = None
) -> PromptStart:
    """Load in one read what must be known of a session to send it a prompt."""
    live = sessions.is_live(session_id)

    async def ask(store: Moment) -> PromptStart:
        session = await get_session(store, session_id)
        counted = None if live else await find_cheap_context(store, session_id)
        turns, steps = (counted.line.turns, counted.steps) if counted is not None else ((), ())
        return PromptStart(
            session,
            await load_last_environment(store, session_id, turns, steps),
            await store.newest_message_at(session_id),
            None if live else await load_session_state(store, session_id),
            await store.load_client_messages(session_id, client_id) if client_id is not None else (),
            counted,
        )

    return await host.store.at_once(session_id, ask)


def find_obstacle(sessions: LiveSessions, session_id: str, loaded: LoadedSession | None) -> Conflict | None:
    """Return the reason why no run can start on the session now; None if one can."""
    try:
        sessions.check_free(session_id)
        if loaded is not None:
            sessions.lease.check_standing(loaded)
    except SessionBusy as busy:
        return busy
    turn = loaded.open.turn if loaded is not None and loaded.open is not None else None
    if turn is None or turn.status != "waiting" or is_answered(waits_of(turn)):
        return None
    how = f"answer it in the web UI, over HTTP or in `clew chat {session_id}`, or abort"
    return WaitingForHuman(f"this session is waiting for an answer; {how}", session_id=session_id)


async def is_live_anywhere(host: Host, sessions: LiveSessions, session_id: str) -> bool:
    """Return whether the session is active, here or in another replica."""
    if sessions.is_live(session_id) or not host.lease.shared:
        return sessions.is_live(session_id)
    return await host.lease.runs_elsewhere(host.store, await host.store.load_state(session_id))


async def prepare_session(host: Host, session_id: str, loaded: LoadedSession | None = None) -> LoadedSession:
    """Return the state needed to acquire the session, read now unless ``loaded`` is given. It must be inactive here;
    raise :class:`SessionBusy` if another replica runs it."""
    loaded = loaded or await load_session_state(host.store, session_id)
    lease, runner = host.lease, loaded.state.runner
    if runner is not None and runner != lease.replica_id:
        lease.check_standing(loaded)
        lease.check_open()
        outcome = await host.store.commit(plan_fence(session_id, loaded.state, lease.replica_id or ""))
        if isinstance(outcome, Refused):
            raise SessionBusy("the session was acquired by another run", session_id=session_id)
        loaded = await load_session_state(host.store, session_id)
    if loaded.pending or loaded.open_model_calls:
        # Chunks of a run that could not store its end must be in its parts before those are settled.
        now = host.clock.now_ms()
        await fold_streams(host.store, host.mint, now, session_id)
        await end_interrupted(host.store, host.providers.cost, now, session_id)
        loaded = await load_session_state(host.store, session_id)
    return loaded


async def settle_idle(
    host: Host, sessions: LiveSessions, session_id: str, loaded: LoadedSession | None = None
) -> LoadedSession:
    """Settle the session for a caller that starts no run; return its previous state. Raise :class:`SessionBusy` while
    it is active.

    A turn that waits for a human stays open.
    """
    sessions.check_free(session_id)
    loaded = await prepare_session(host, session_id, loaded)
    await settle_session(host.store, loaded, host.clock.now_ms(), LOST)
    return loaded


async def settle_startable(host: Host, sessions: LiveSessions, session_id: str) -> None:
    """Settle the session for an operation that is about to start; raise the obstacle if there is one."""
    sessions.check_free(session_id)
    loaded = await load_session_state(host.store, session_id)
    obstacle = find_obstacle(sessions, session_id, loaded)
    if obstacle is not None:
        raise obstacle
    await settle_idle(host, sessions, session_id, loaded)


@asynccontextmanager
async def locked_idle_session(host: Host, sessions: LiveSessions, session_id: str) -> AsyncIterator[Session]:
    """Yield the session under its lock, for changes of its history.

    It is inactive, but a turn that waits for a human may be open.
    """

    async def ask(store: Moment) -> tuple[Session, LoadedSession]:
        return await get_session(store, session_id), await load_session_state(store, session_id)

    async with sessions.lock(session_id):
        sessions.check_open(session_id)
        session, loaded = await host.store.at_once(session_id, ask)
        await settle_idle(host, sessions, session_id, loaded)
        yield session
