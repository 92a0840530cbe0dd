"""Permission rules and their targets as values. Evaluating them is up to :mod:`clew.permissions`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, Literal, get_args

import msgspec

from clew.errors import InvalidInput

__all__ = [
    "CAPABILITIES",
    "MODES",
    "Capability",
    "KeptRule",
    "Mode",
    "Rule",
    "RuleScope",
    "Target",
    "TargetKind",
    "check_mode",
    "is_known",
    "mark_unknown",
    "read_mode",
    "unknown_permission",
]

Mode = Literal["ask", "accept_edits", "read_only"]
"""The permission mode of a session: applies where none of the user's rules decides."""
MODES: Final[tuple[Mode, ...]] = get_args(Mode)

Capability = Literal["fs.read", "fs.write", "shell.run", "net.fetch", "mcp.call", "agent.spawn", "memory.write"]
"""What tools use. A rule may name one in the place of a tool; it then applies to every tool that uses it."""
CAPABILITIES: Final[tuple[Capability, ...]] = get_args(Capability)

_MCP_PREFIX: Final = "mcp__"
"""The prefix of the names of tools from MCP servers; no other tool has it."""


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rule. ``source`` is the scope it came from; ``pinned`` marks manifest rules that cannot be overridden.

    Rules of a mode are built in and never stored. ``unknown`` means that the permission names no tool known where the
    rule was read; if such a rule denies or asks, it applies to every tool. This flag is never stored.
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
        """True if the rule applies to every tool because its permission is unknown."""
        return self.unknown and self.action != "allow"


RuleScope = Literal["session", "project", "agent"]
"""The scopes of rules that are changed one by one."""


class KeptRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule with its id and its owner ``of``: a session's id, a project's folder, or an agent's name. ``unknown``: it
    names no known tool, and applies to every tool if it denies or asks."""

    id: str
    scope: RuleScope
    of: str
    permission: str
    pattern: str
    action: Literal["allow", "deny", "ask"]
    added_at: int | None
    pinned: bool
    unknown: bool = False


def is_known(permission: str, names: Collection[str], servers: Collection[str] | None = None) -> bool:
    """Return whether a permission names a known tool or a capability.

    It may also be a prefix ending in a star, or a tool of an MCP server: one of ``servers``, or any server if None.
    """
    stem, is_wide = permission.removesuffix("*"), permission.endswith("*")
    if permission in (*names, *CAPABILITIES) or (
        is_wide and any(name.startswith(stem) for name in (*names, _MCP_PREFIX))
    ):
        return True
    if not stem.startswith(_MCP_PREFIX) or servers is None:
        return stem.startswith(_MCP_PREFIX)
    server = stem.removeprefix(_MCP_PREFIX).partition("__")[0]
    return server in servers or (is_wide and any(f"{_MCP_PREFIX}{name}".startswith(stem) for name in servers))


def unknown_permission(permission: str, names: Collection[str], servers: Collection[str] | None = None) -> str:
    """Return the error message for a permission that :func:`is_known` rejects, listing the valid ones."""
    known = ", ".join(["*", *sorted(names), *(f"{_MCP_PREFIX}{name}" for name in sorted(servers or ()))])
    any_server = f", or a tool of an MCP server: {_MCP_PREFIX}SERVER__TOOL" if servers is None else ""
    capabilities = f"{', '.join(CAPABILITIES[:-1])} or {CAPABILITIES[-1]}"
    return f"unknown permission {permission!r}; use one of {known}{any_server}, or a capability: {capabilities}"


def mark_unknown(rules: Iterable[Rule], names: Collection[str]) -> tuple[Rule, ...]:
    """Return the rules with ``unknown`` set on those whose permission is unknown."""
    return tuple(msgspec.structs.replace(rule, unknown=not is_known(rule.permission, names)) for rule in rules)


def check_mode(value: object) -> None:
    """Raise ``InvalidInput`` for a value that is not a mode."""
    if value not in MODES:
        raise InvalidInput(f"mode must be {', '.join(MODES[:-1])} or {MODES[-1]}, not {value!r}")


def read_mode(value: object) -> Mode:
    """Return a stored mode. An unknown mode may be stricter than asking, so it reads as ``read_only``."""
    if value is None:
        return "ask"
    return next((mode for mode in MODES if mode == value), "read_only")


TargetKind = Literal["path", "command", "host", "plain"]


class Target(msgspec.Struct, frozen=True):
    """One thing a call would touch.

    ``permission`` is the tool's name, that of the tool that would do the same (``write`` for a redirect of a shell), or
    a capability. ``value`` is matched by kind: a resolved absolute path, a whole shell line (parsed by the permission
    checks), a host name, or plain text. ``inside`` means that a path is in the workspace. ``capabilities`` are those
    that need this very target; left out, the declaration of its tool says so.
    """

    permission: str
    kind: TargetKind
    value: str
    inside: bool = False
    capabilities: tuple[Capability, ...] | msgspec.UnsetType = msgspec.UNSET
