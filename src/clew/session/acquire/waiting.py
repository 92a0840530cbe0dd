"""Sessions that wait for a human: their open requests, and the status that shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

from msgspec.structs import replace

from clew.errors import RowUndecodable
from clew.live.base import Live, Status, Waiting
from clew.store.base import Moment
from clew.transcript.damage import DAMAGED_PART, MISSING, NOT_ALL_READABLE
from clew.transcript.message import MessageRow
from clew.transcript.metadata import PausedBy
from clew.transcript.session import Session
from clew.transcript.turn import Turn
from clew.transcript.wait import Wait, waits_of

if TYPE_CHECKING:
    from clew.session.acquire.live_sessions import LiveSessions
    from clew.session.cluster.lease import Lease
    from clew.session.host import Host

__all__ = [
    "LEFT_OPEN",
    "find_damage",
    "idle_status",
    "load_open_turn",
    "load_waiting",
    "open_waits",
    "present_status",
    "status_in",
    "with_pause",
]


LEFT_OPEN: Final = "the run ended before it could store its end; the turn is settled when the session is next used"


def open_waits(waits: Sequence[Wait]) -> tuple[Waiting, ...]:
    """Return the unanswered requests, as a status shows them."""
    return tuple(
        Waiting(wait.approval_id, wait.tool_call_id, wait.tool, wait.since) for wait in waits if wait.answer is None
    )


async def load_open_turn(store: Moment, session_id: str) -> Turn | None:
    state = await store.load_state(session_id)
    if state.open_turn_id is None:
        return None
    line = await store.load_line(session_id, through=state.open_turn_id, turns=1, keep_damaged=True)
    return line.turns[-1].turn if line.turns else None


async def idle_status(store: Moment, session_id: str, *, ended_well: bool = False) -> Status:
    """Return the status of a session without a run, from the end of its newest turn.

    Idle, with pending requests; ``error`` if that turn failed, was refused or has no end, or if it cannot be read.
    ``ended_well``: the caller knows that the turn has not failed, if it has ended.
    """
    try:
        state = await store.load_state(session_id)
        end = state.open_turn_id or state.head_turn_id
        if state.open_turn_id is None and ended_well:
            return Status("idle")
        line = await store.load_line(session_id, through=end, turns=1, keep_damaged=True) if end is not None else None
        turn = line.turns[-1].turn if line is not None and line.turns else None
        if state.open_turn_id is None:
            return _ended_status(await _newest_ended(store, session_id, turn))
    except RowUndecodable as error:
        message = f"this session is damaged: {error}; run `clew check`, then restore a backup or delete it"
        return Status("error", message=message, problem={"code": error.code, "message": message})
    if turn is None:
        return Status("idle")
    if turn.damage is None and turn.status != "waiting":
        return Status("error", message=LEFT_OPEN, problem={"code": "interrupted", "message": LEFT_OPEN})
    message = (
        f"its newest turn is damaged: {turn.damage}; answer, abort or send a prompt to continue, and run `clew check`"
    )
    return Status(
        "idle",
        message=message if turn.damage is not None else None,
        waiting=open_waits(waits_of(turn)) if turn.status == "waiting" else (),
    )


async def _newest_ended(store: Moment, session_id: str, head: Turn | None) -> Turn | None:
    """Return the turn that was refused after the head, else the head."""
    since = (head.settled_at or 0) if head is not None else 0
    late = await store.load_refused(session_id, since)
    refused = [one.turn for one in late if one.turn.parent_turn_id == (head.id if head is not None else None)]
    return refused[-1] if refused else head


def _ended_status(turn: Turn | None) -> Status:
    # A turn that a restart interrupted has not failed: it can be resumed.
    if turn is None or turn.status not in ("failed", "refused") or turn.error.get("code") == "interrupted":
        return Status("idle")
    problem = dict(turn.error) or None
    return Status("error", message=str((problem or {}).get("message", "the run failed")), problem=problem)


async def present_status(store: Moment, live: Live, lease: Lease, session_id: str, *, is_live: bool) -> Status:
    """Return the session's current status. In a shared store, the store decides whether it is running: what this
    process knows may be outdated. ``is_live``: it has an active operation in this process."""
    known = live.status(session_id)
    if not lease.shared or is_live:
        if known is not None and (known.state != "error" or is_live):
            return known
        stored = await _stored_status(store, session_id, known)
        if stored.message != LEFT_OPEN or not lease.has_other_owner():
            return stored
        turn = await load_open_turn(store, session_id)
        return Status("busy", started_at=turn.created_at if turn is not None else None)
    if await lease.runs_elsewhere(store, await store.load_state(session_id)):
        if known is not None and known.state in ("busy", "retrying"):
            return known
        turn = await load_open_turn(store, session_id)
        if turn is None:
            return Status("busy", message="being summarised in another replica")
        return Status("busy", started_at=turn.created_at)
    return await _stored_status(store, session_id, known)


async def status_in(host: Host, sessions: LiveSessions, session_id: str) -> Status:
    """Return the session's current status in an engine that runs sessions."""
    is_live = sessions.is_live(session_id)
    return await present_status(host.store, host.live, host.lease, session_id, is_live=is_live)


async def with_pause(store: Moment, session: Session, status: Status) -> Status:
    """Return a status that shows whether the queue is paused, and why."""
    why: PausedBy | Literal["waiting"] | None = session.paused_by
    if status.waiting and await store.load_queue(session.id):
        why = "waiting"
    return replace(status, paused=why is not None, paused_by=why)


async def _stored_status(store: Moment, session_id: str, known: Status | None) -> Status:
    """Return the stored status; for a failure that was published here, that published status."""
    stored = await idle_status(store, session_id)
    return known if known is not None and known.state == stored.state == "error" else stored


async def load_waiting(store: Moment, session_id: str, turn: Turn) -> tuple[MessageRow | None, MessageRow | None]:
    """Return the user message of a waiting turn and the message with its requests; either may be damaged or missing."""
    rows = (await store.load_line(session_id, through=turn.id, turns=1, keep_damaged=True)).turns[-1].messages
    users = (row for row in rows if row.role == "user")
    return next(users, None), next((row for row in reversed(rows) if row.role == "assistant"), None)


def find_damage(row: MessageRow | None) -> str | None:
    """Return why a message cannot be acted on: it is missing, damaged, or not fully readable."""
    if row is None:
        return MISSING
    unread = row.is_unreadable or any(part.type == DAMAGED_PART for part in row.parts)
    return row.damage or (NOT_ALL_READABLE if unread else None)
