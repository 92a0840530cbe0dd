"""Permission rules and what they are matched against, as values. How rules are weighed is not known here."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Rule", "Target", "TargetKind"]


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rule; ``source`` names the scope it came from, ``pinned`` marks manifest rules nobody may override."""

    permission: str
    pattern: str
    action: Literal["allow", "deny", "ask"]
    source: Literal["manifest", "session", "project"] = "session"
    added_at: int | None = None
    pinned: bool = False


TargetKind = Literal["path", "command", "host", "plain"]


class Target(msgspec.Struct, frozen=True):
    """One thing a call would touch.

    ``permission`` is the tool's name, or the capability (``read``, ``write``) a shell redirect needs. ``value`` is
    matched by kind: a resolved absolute path, a whole shell line (which permissions take apart), a host name, or
    plain text. ``inside`` says, for a path, that it lies in the workspace.
    """

    permission: str
    kind: TargetKind
    value: str
    inside: bool = False
