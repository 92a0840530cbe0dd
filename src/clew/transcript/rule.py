"""Permission rules and what they are matched against, as values. How rules are weighed is not known here."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, Literal, get_args

import msgspec

from clew.errors import InvalidInput

__all__ = [
    "MODES",
    "Mode",
    "Rule",
    "Target",
    "TargetKind",
    "check_mode",
    "is_known",
    "mark_unknown",
    "read_mode",
    "unknown_permission",
]

Mode = Literal["ask", "accept_edits", "read_only"]
"""How freely a session works where no rule of a person's says otherwise."""
MODES: Final[tuple[Mode, ...]] = get_args(Mode)

_SERVED: Final = "mcp__"
"""Names of what MCP servers have begin so, and no other tool's."""


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rule; ``source`` names the scope it came from, ``pinned`` marks manifest rules nobody may override.

    Those of a mode are clew's own and stored nowhere. ``unknown``: the permission names no tool that is known where
    the rule was read; if it denies or asks, it applies to every tool. That is never stored.
    """

    permission: str
    pattern: str
    action: Literal["allow", "deny", "ask"]
    source: Literal["manifest", "session", "project", "mode"] = "session"
    added_at: int | None = None
    pinned: bool = False
    unknown: bool = False

    @property
    def is_general(self) -> bool:
        """Whether it applies to every tool because its permission is unknown."""
        return self.unknown and self.action != "allow"


def is_known(permission: str, names: Collection[str], servers: Collection[str] | None = None) -> bool:
    """Return whether a rule's permission names a tool, or with a star at its end the beginning of one, or what an MCP
    server provides: one of ``servers``, any server where that is None."""
    stem, is_wide = permission.removesuffix("*"), permission.endswith("*")
    if permission in names or (is_wide and any(name.startswith(stem) for name in (*names, _SERVED))):
        return True
    if not stem.startswith(_SERVED) or servers is None:
        return stem.startswith(_SERVED)
    server = stem.removeprefix(_SERVED).partition("__")[0]
    return server in servers or (is_wide and any(f"{_SERVED}{name}".startswith(stem) for name in servers))


def unknown_permission(permission: str, names: Collection[str], servers: Collection[str] | None = None) -> str:
    """Return the error for a permission that :func:`is_known` does not accept, with the list of what may be named."""
    known = ", ".join(["*", *sorted(names), *(f"{_SERVED}{name}" for name in sorted(servers or ()))])
    any_server = f", or what an MCP server provides: {_SERVED}SERVER__TOOL" if servers is None else ""
    return f"there is no permission {permission!r}; a rule names one of {known}{any_server}"


def mark_unknown(rules: Iterable[Rule], names: Collection[str]) -> tuple[Rule, ...]:
    """Return the rules, each with whether its permission is unknown."""
    return tuple(msgspec.structs.replace(rule, unknown=not is_known(rule.permission, names)) for rule in rules)


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
