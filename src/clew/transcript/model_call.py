"""Model calls: one row for each time a model was asked, whatever for. All spend is the sum over them.

A row is written when the call is asked, brought up to date with what the provider says, and closed once.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

import msgspec

from clew.transcript.session import Model
from clew.transcript.usage import Usage

__all__ = ["CallEnd", "ModelCall", "Purpose", "brought_up_to_date", "without_session"]

Purpose = Literal["answer", "title", "summary"]
CallEnd = Literal["asked", "completed", "failed", "cut", "aborted", "interrupted"]
"""How a call ended; ``asked`` while it has not."""


class ModelCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One call of a model: for what, what it used, when, and how it ended.

    ``step`` is the place in its turn of the step it was asked for, whether that came to be booked or not. ``tools_ms``
    is how long the tools it asked for took. ``estimated``: the provider did not say all of the usage.
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
        """The day it was asked, in UTC."""
        return datetime.fromtimestamp(self.asked_at / 1000, UTC).date().isoformat()


def brought_up_to_date(held: ModelCall | None, new: ModelCall) -> ModelCall:
    """The row as it is kept: a closed one takes nothing but the time of its tools, one without session stays so."""
    if held is None:
        return new
    if not held.is_open:
        return msgspec.structs.replace(held, tools_ms=new.tools_ms)
    return without_session(new) if held.session_id is None else new


def without_session(call: ModelCall) -> ModelCall:
    """The row as it outlives its session."""
    return msgspec.structs.replace(call, session_id=None, turn_id=None, message_id=None)
