"""Waiting for a human: what is asked, kept in the turn, and the answers to it.

A wait is durable and is not a run. The turn's ``data.waiting`` names each call that waits, with the approval that was
asked for (or none, for a question) and a digest of what exactly was asked: tool, arguments, folder, session and call.
An answer is good once, for that call, and only while that digest still fits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal

import msgspec
import orjson

from clew.live.base import Status, Waiting
from clew.store.base import Store
from clew.transcript import chunk as c
from clew.transcript.fold import Fold
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.part import state_of
from clew.transcript.turn import Turn

__all__ = [
    "Wait",
    "changed_parts",
    "close_request",
    "digest_of",
    "idle_status",
    "is_answered",
    "load_open_turn",
    "open_waits",
    "waits_of",
    "with_waits",
]


class Wait(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call that waits, or waited: ``answer`` is set once it was answered."""

    tool_call_id: str
    tool: str
    kind: Literal["approval", "question"]
    since: int
    digest: str
    approval_id: str | None = None
    answer: dict[str, Any] | None = None


def digest_of(session_id: str, tool_call_id: str, tool: str, arguments: Any, folder: str | None) -> str:
    """What an answer is bound to."""
    value = [session_id, tool_call_id, tool, arguments, folder]
    return sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


def waits_of(turn: Turn | None) -> tuple[Wait, ...]:
    """The waits a turn holds, answered ones of the present step too."""
    if turn is None:
        return ()
    return tuple(msgspec.convert(value, Wait) for value in turn.waiting)


def with_waits(waits: tuple[Wait, ...]) -> Mapping[str, Any]:
    """The turn data that holds these waits."""
    return {"waiting": [msgspec.to_builtins(wait) for wait in waits]}


def is_answered(waits: tuple[Wait, ...]) -> bool:
    return all(wait.answer is not None for wait in waits)


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
