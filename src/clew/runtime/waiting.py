"""Sessions that wait for a human: what is open in them, and how a request that nobody answers is ended."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from clew.live.base import Status, Waiting
from clew.store.base import Store
from clew.transcript import chunk as c
from clew.transcript.fold import Fold
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.part import state_of
from clew.transcript.turn import Turn
from clew.transcript.wait import Wait, waits_of

__all__ = ["changed_parts", "close_request", "idle_status", "load_open_turn", "open_waits"]


def open_waits(waits: Sequence[Wait]) -> tuple[Waiting, ...]:
    """The waits that still have no answer, as a status shows them."""
    return tuple(
        Waiting(wait.approval_id, wait.tool_call_id, wait.tool, wait.since) for wait in waits if wait.answer is None
    )


async def load_open_turn(store: Store, session_id: str) -> Turn | None:
    state = await store.load_state(session_id)
    if state.open_turn_id is None:
        return None
    line = await store.load_line(session_id, through=state.open_turn_id, turns=1, keep_damaged=True)
    return line.turns[-1].turn if line.turns else None


async def idle_status(store: Store, session_id: str) -> Status:
    """The status of a session that nothing runs on: idle, with what waits for a human."""
    turn = await load_open_turn(store, session_id)
    return Status("idle", waiting=open_waits(waits_of(turn)) if turn is not None and turn.status == "waiting" else ())


def close_request(fold: Fold, tool_call_id: str, reason: str) -> None:
    """Deny a request, or end a call, that nobody will answer any more."""
    index = fold.find_tool(tool_call_id)
    state = state_of(fold.part(index)) if index is not None else None
    if state == "approval-requested":
        fold.answer(tool_call_id, approved=False, reason=reason)
        state = "approval-responded"
    if state == "approval-responded":
        fold.apply(c.ToolOutputDenied(tool_call_id=tool_call_id))
    elif state == "input-available":
        fold.apply(c.ToolOutputError(tool_call_id=tool_call_id, error_text=reason))


def changed_parts(message: MessageRow, fold: Fold, now: int) -> tuple[PartRow, ...]:
    """The parts of a message that a fold over it has changed."""
    return tuple(
        msgspec.structs.replace(part, data=fold.part(part.index), updated_at=now)
        for part in message.parts
        if fold.part(part.index) != part.data
    )
