"""The result of importing a session of another program, with its report."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Arrival", "Fate", "Moved", "Program", "Remark"]

Program = Literal["claude-code", "codex", "pi", "opencode"]
Fate = Literal["kept", "changed", "lost"]
Moved = Literal["new", "same", "grown", "apart"]
"""``new``: imported now. ``same``: imported before, unchanged. ``grown``: its new turns were added. ``apart``: it
changed here and there, so that its new turns cannot be added."""


class Remark(msgspec.Struct, frozen=True):
    """One line of an import report: what was found, how often, where first, and its fate.

    ``kept``: imported, but not part of the conversation. ``changed``: imported in another form. ``lost``: not imported.
    """

    what: str
    fate: Fate
    count: int
    where: str | None


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """The result of importing a session of another program. ``turns`` counts the prompts that were added, as a listing
    counts them, ``subagents`` the sessions below it; ``why`` is the reason why the rest was not imported; ``remarks``
    list the contents of the file besides the conversation."""

    session_id: str
    title: str | None
    outcome: Moved
    turns: int
    subagents: int
    why: str | None
    remarks: tuple[Remark, ...]
