"""Modes (PM-7): what a session may do where no rule of a person's says otherwise."""

from __future__ import annotations

from typing import Final

from clew.permissions.rules import READING, SPEAKING
from clew.transcript.rule import Mode, Rule

__all__ = ["is_reading", "mode_rules"]

_EDITING: Final = ("write", "edit")
# What lies there is run by others, or tells clew what to do: an edit of it is more than an edit. In any letter case:
# some file systems find it by all of them.
_NOT_TEXT: Final = (
    "./**/.[gG][iI][tT]/**",
    "./**/.[cC][lL][eE][wW]/**",
    "./**/.[cC][lL][aA][uU][dD][eE]/**",
    "./**/.[oO][pP][eE][nN][cC][oO][dD][eE]/**",
    "./**/[oO][pP][eE][nN][cC][oO][dD][eE].[jJ][sS][oO][nN]*",
)
_ACCEPT_EDITS: Final = tuple(
    rule
    for permission in _EDITING
    for rule in (
        Rule(permission, "./**", "allow", "mode"),
        *(Rule(permission, pattern, "ask", "mode") for pattern in _NOT_TEXT),
    )
)
# A subagent is held to what its parent may do, so to ask one changes nothing by itself.
_READING: Final = frozenset({*READING, *SPEAKING, "task"})


def mode_rules(mode: Mode) -> tuple[Rule, ...]:
    """The rules of a mode, which rank below a person's and above an agent's."""
    return _ACCEPT_EDITS if mode == "accept_edits" else ()


def is_reading(permission: str) -> bool:
    """Whether a session that only reads may be asked for it at all."""
    return permission in _READING
