"""Permission rules and what they are matched against, as values. How rules are weighed is not known here."""

from __future__ import annotations

from typing import Final, Literal, get_args

import msgspec

from clew.errors import InvalidInput

__all__ = ["MODES", "Mode", "Rule", "Target", "TargetKind", "check_mode", "read_mode"]

Mode = Literal["ask", "accept_edits", "read_only"]
"""How freely a session works where no rule of a person's says otherwise."""
MODES: Final[tuple[Mode, ...]] = get_args(Mode)


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rule; ``source`` names the scope it came from, ``pinned`` marks manifest rules nobody may override.

    Those of a mode are clew's own and stored nowhere.
    """

    permission: str
    pattern: str
    action: Literal["allow", "deny", "ask"]
    source: Literal["manifest", "session", "project", "mode"] = "session"
    added_at: int | None = None
    pinned: bool = False


def check_mode(value: object) -> None:
    """Raises ``InvalidInput`` for what is no mode, where somebody can still mend it."""
    if value not in MODES:
        raise InvalidInput(f"mode must be {', '.join(MODES[:-1])} or {MODES[-1]}, not {value!r}")


def read_mode(value: object) -> Mode:
    """The mode as stored. One that nobody here knows may be stricter than asking, so nothing but reading is left."""
    if value is None:
        return "ask"
    return next((mode for mode in MODES if mode == value), "read_only")


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
