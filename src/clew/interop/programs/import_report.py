"""What became of a session of another program, and what its report says."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Arrival", "Fate", "Moved", "Program", "Remark"]

Program = Literal["claude-code", "codex", "pi", "opencode"]
Fate = Literal["kept", "changed", "lost"]
Moved = Literal["new", "same", "grown", "apart"]
"""It is new here, it was here as it is, it got what was new in it, or what is new in it does not fit any more."""


class Remark(msgspec.Struct, frozen=True):
    """Something a report says: what was found, how often, where first, and what became of it.

    ``kept``: it came along and is not part of the conversation. ``changed``: it came, but not as it was. ``lost``: it
    stands in the other program's file alone.
    """

    what: str
    fate: Fate
    count: int
    where: str | None


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a session of another program. ``turns`` counts the prompts that were added, as a listing counts
    them, ``subagents`` the sessions below it; ``why`` says what kept the rest out; ``remarks`` name what the file holds
    besides the conversation."""

    session_id: str
    title: str | None
    outcome: Moved
    turns: int
    subagents: int
    why: str | None
    remarks: tuple[Remark, ...]
