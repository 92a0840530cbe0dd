"""Pending requests: what a person is asked, as stored in the turn, and the answers.

A wait is durable and is not a run. The turn's ``data.waiting`` lists each waiting call with the requested approval (or
none, for a question) and a digest of the exact request: tool, arguments, folder, session and call. Each answer is used
once, for that call, and only while the digest matches.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Literal

import msgspec
import orjson

from clew.convert import convert
from clew.transcript import chunk as c
from clew.transcript.fold import Fold
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.part import state_of
from clew.transcript.turn import Turn

__all__ = ["Wait", "changed_parts", "close_request", "digest_call", "is_answered", "waits_of", "with_waits"]


class Wait(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call that waits or waited for a person; ``answer`` is set once it was answered."""

    tool_call_id: str
    tool: str
    kind: Literal["approval", "question"]
    since: int
    digest: str
    approval_id: str | None = None
    answer: dict[str, Any] | None = None


def digest_call(session_id: str, tool_call_id: str, tool: str, arguments: Any, folder: str | None) -> str:
    """Return the digest an answer is bound to."""
    value = [session_id, tool_call_id, tool, arguments, folder]
    return sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


def waits_of(turn: Turn | None) -> tuple[Wait, ...]:
    """Return the waits of a turn, including answered ones of the current step."""
    if turn is None:
        return ()
    return tuple(convert(value, Wait) for value in turn.waiting)


def with_waits(waits: tuple[Wait, ...]) -> Mapping[str, Any]:
    """Return the turn data for these waits."""
    return {"waiting": [msgspec.to_builtins(wait) for wait in waits]}


def is_answered(waits: tuple[Wait, ...]) -> bool:
    return all(wait.answer is not None for wait in waits)


def close_request(fold: Fold, tool_call_id: str, reason: str, note: Mapping[str, Any]) -> None:
    """Deny a request, or end a call, that will not be answered; ``note`` records who withdrew it."""
    index = fold.find_tool(tool_call_id)
    state = state_of(fold.part(index)) if index is not None else None
    if state == "approval-requested":
        fold.answer(tool_call_id, approved=False, reason=reason, note=note)
        state = "approval-responded"
    if state == "approval-responded":
        fold.apply(c.ToolOutputDenied(tool_call_id=tool_call_id))
    elif state == "input-available":
        fold.apply(c.ToolOutputError(tool_call_id=tool_call_id, error_text=reason))


def changed_parts(message: MessageRow, fold: Fold, now: int) -> tuple[PartRow, ...]:
    """Return the parts of a message that a fold over it has changed."""
    return tuple(
        msgspec.structs.replace(part, data=fold.part(part.index), updated_at=now)
        for part in message.parts
        if fold.part(part.index) != part.data
    )
