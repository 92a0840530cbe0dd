"""Model calls: one row for each call of a model, for whatever purpose. All spend is the sum over them.

A row is written when the call starts, updated with the provider's usage reports, and closed once.
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
