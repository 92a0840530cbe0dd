"""Model calls: one row for each call of a model, for whatever purpose. All spend is the sum over them.

A row is written when the call starts, updated with the provider's usage reports, and closed once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from clew.transcript.message import MessageRow
from clew.transcript.metadata import BROKEN_OFF_USD, broken_off_usd, is_estimated, usage_of
from clew.transcript.session import Model, Session
from clew.transcript.turn import Step
from clew.transcript.usage import Usage

__all__ = [
    "CallEnd",
    "ModelCall",
    "Purpose",
    "book_message",
    "book_session",
    "book_usage",
    "brought_up_to_date",
    "sum_usage",
    "with_usage",
    "without_session",
]

Purpose = Literal["answer", "title", "summary"]
CallEnd = Literal["asked", "completed", "failed", "cut", "aborted", "interrupted"]
"""The end of a call; ``asked`` while it is open."""


class ModelCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One call of a model: its purpose, usage, times and end.

    ``step`` is the index of its step in the turn, recorded or not. ``tools_ms`` is the duration of the tools it called.
    ``estimated`` means that the provider did not report all of the usage.
    """

    id: str
    purpose: Purpose
    model: Model
    asked_at: int
    session_id: str | None = None
    turn_id: str | None = None
    step: int | None = None
    message_id: str | None = None
    usage: Usage = Usage()
    cost_usd: float = 0.0
    first_chunk_at: int | None = None
    ended_at: int | None = None
    tools_ms: int = 0
    ended: CallEnd = "asked"
    estimated: bool = False
    workspace: str | None = None
    owner: str | None = None

    @property
    def is_open(self) -> bool:
        return self.ended == "asked"

    @property
    def day(self) -> str:
        """The day it was made, in UTC."""
        return datetime.fromtimestamp(self.asked_at / 1000, UTC).date().isoformat()


def brought_up_to_date(stored: ModelCall | None, new: ModelCall) -> ModelCall:
    """Return the row to store: a closed one changes only in tool time, one without a session stays so."""
    if stored is None:
        return new
    if not stored.is_open:
        return msgspec.structs.replace(stored, tools_ms=new.tools_ms)
    return without_session(new) if stored.session_id is None else new


def without_session(call: ModelCall) -> ModelCall:
    """Return the row as it is stored after its session is deleted."""
    return msgspec.structs.replace(call, session_id=None, turn_id=None, message_id=None)


def sum_usage(messages: Iterable[MessageRow]) -> Usage:
    """Return the session's usage, summed over its assistant messages."""
    total = Usage()
    for message in messages:
        if message.role == "assistant":
            total = total + message.usage
    return total


def book_usage(
    metadata: Mapping[str, Any], usage: Usage, *, estimated: bool = False, broken_off: float = 0.0
) -> dict[str, Any]:
    """Return the message's metadata with this usage added. A sum that includes an estimate is marked as one.

    The cost of interrupted calls, which belong to no step, is stored too: a copy of the message must cost the same.
    """
    sums = msgspec.to_builtins(usage_of(metadata) + usage)
    if estimated or is_estimated(metadata):
        sums["estimated"] = True
    cost = broken_off_usd(metadata) + broken_off
    if cost:
        sums[BROKEN_OFF_USD] = cost
    return {**metadata, "usage": sums}


def book_message(metadata: Mapping[str, Any], step: Step) -> dict[str, Any]:
    """Return the message's metadata with a step's usage added, and with its model and prompt."""
    updated = {
        **book_usage(metadata, step.usage, estimated=step.is_estimated),
        "model": msgspec.to_builtins(step.model),
    }
    if step.prompt_digest is not None:
        updated["system_prompt_digest"] = step.prompt_digest
    return updated


def book_session(session: Session, usage: Usage, cost_usd: float, at: int = 0) -> Session:
    """Return the session row with this usage and cost added; ``at`` advances its ``updated_at``."""
    return msgspec.structs.replace(
        with_usage(session, session.usage + usage),
        cost_usd=session.cost_usd + cost_usd,
        updated_at=max(session.updated_at, at),
    )


def with_usage(session: Session, used: Usage) -> Session:
    """Return the session row with these sums."""
    return msgspec.structs.replace(
        session,
        prompt_tokens=used.input,
        completion_tokens=used.output,
        reasoning_tokens=used.reasoning,
        cache_read=used.cache_read,
        cache_write=used.cache_write,
        total_tokens=used.total,
    )
