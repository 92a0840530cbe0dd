"""Sessions that wait for a human: what is open in them, and how their status shows it."""

from __future__ import annotations

from collections.abc import Sequence

from clew.errors import RowUndecodable
from clew.live.base import Status, Waiting
from clew.runtime.host import Host
from clew.runtime.live_sessions import LiveSessions
from clew.store.base import Conversations
from clew.transcript.damage import DAMAGED_PART, MISSING, NOT_ALL_READABLE
from clew.transcript.message import MessageRow
from clew.transcript.turn import Turn
from clew.transcript.wait import Wait, waits_of

__all__ = ["find_damage", "idle_status", "load_open_turn", "load_waiting", "open_waits", "present_status"]


def open_waits(waits: Sequence[Wait]) -> tuple[Waiting, ...]:
    """The waits that still have no answer, as a status shows them."""
    return tuple(
        Waiting(wait.approval_id, wait.tool_call_id, wait.tool, wait.since) for wait in waits if wait.answer is None
    )


async def load_open_turn(store: Conversations, session_id: str) -> Turn | None:
    state = await store.load_state(session_id)
    if state.open_turn_id is None:
        return None
    line = await store.load_line(session_id, through=state.open_turn_id, turns=1, keep_damaged=True)
    return line.turns[-1].turn if line.turns else None


async def idle_status(store: Conversations, session_id: str) -> Status:
    """The status of a session that nothing runs on: idle, with what waits for a human, or why nobody can tell."""
    try:
        turn = await load_open_turn(store, session_id)
    except RowUndecodable as error:
        told = f"this session is damaged: {error}; look with `clew check`, then restore a backup or delete it"
        return Status("error", message=told, problem={"code": error.code, "message": told})
    if turn is None:
        return Status("idle")
    told = (
        f"its newest turn is damaged: {turn.damage}; answer, abort or go on with a prompt, and look with `clew check`"
    )
    return Status(
        "idle",
        message=told if turn.damage is not None else None,
        waiting=open_waits(waits_of(turn)) if turn.status == "waiting" else (),
    )


async def present_status(host: Host, sessions: LiveSessions, session_id: str) -> Status:
    """What the session is doing now. Among replicas whether it is run is for the store to say: what this process heard
    of it may be old."""
    store, known = host.store, host.live.status(session_id)
    if not host.lease.shared or sessions.is_live(session_id):
        return known if known is not None else await idle_status(store, session_id)
    if await host.lease.runs_elsewhere(store, await store.load_state(session_id)):
        if known is not None and known.state in ("busy", "retrying"):
            return known
        turn = await load_open_turn(store, session_id)
        if turn is None:
            return Status("busy", message="being summarised in another replica")
        return Status("busy", started_at=turn.created_at)
    return known if known is not None and known.state == "error" else await idle_status(store, session_id)


async def load_waiting(
    store: Conversations, session_id: str, turn: Turn
) -> tuple[MessageRow | None, MessageRow | None]:
    """The user message of a waiting turn, and the message whose calls wait; either may be damaged, or gone."""
    rows = (await store.load_line(session_id, through=turn.id, turns=1, keep_damaged=True)).turns[-1].messages
    users = (row for row in rows if row.role == "user")
    return next(users, None), next((row for row in reversed(rows) if row.role == "assistant"), None)


def find_damage(row: MessageRow | None) -> str | None:
    """Why a message cannot be acted on: it is gone, damaged, or not all of it could be read."""
    if row is None:
        return MISSING
    unread = row.is_unreadable or any(part.type == DAMAGED_PART for part in row.parts)
    return row.damage or (NOT_ALL_READABLE if unread else None)
