"""The rules that a person's answer stores (PM-3): as narrow as what was asked about.

"For this session" and "always" mean the same thing again, not things like it: the exact path, the exact host, the
exact text of each command of a line. Where a line holds something that only the running shell knows, or could not
be read, no rule says the same thing again; there is none to store, and the answer counts once.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from clew.permissions import globs, hosts, paths
from clew.permissions.commands import Parts, take_apart
from clew.permissions.rules import MAX_PATTERN_CHARS
from clew.permissions.tokens import UNKNOWN, Unreadable
from clew.transcript.rule import Rule, Target

__all__ = ["rules_for"]


def rules_for(target: Target, scope: Literal["session", "project"], *, added_at: int | None = None) -> tuple[Rule, ...]:
    """The rules that allow ``target`` from now on, one for each command and redirect of a line; none if none can."""
    rules = _allowing(target, scope)
    if any(len(rule.pattern) > MAX_PATTERN_CHARS for rule in rules):
        return ()
    return tuple(msgspec.structs.replace(rule, added_at=added_at) for rule in dict.fromkeys(rules))


def _allowing(target: Target, scope: Literal["session", "project"]) -> list[Rule]:
    def rule(pattern: str, permission: str = target.permission) -> Rule:
        return Rule(permission, pattern, "allow", scope)

    match target.kind:
        case "path":
            return [rule(paths.exact_path(target.value))] if paths.is_resolved(target.value) else []
        case "host":
            return [rule(target.value)] if hosts.normal_host(target.value) is not None else []
        case "plain":
            return [rule(globs.escape(target.value))] if target.value else []
        case "command":
            parts = _take_apart(target.value)
            if parts is None:
                return []
            commands = [rule(globs.escape(command.text)) for command in parts.commands]
            opened = [rule(_redirected(redirect.path), redirect.permission) for redirect in parts.redirects]
            return commands + opened


def _take_apart(line: str) -> Parts | None:
    """The parts of a line, when every one of them is fully written out."""
    try:
        parts = take_apart(line)
    except Unreadable:
        return None
    if any(command.cover == "none" or UNKNOWN in command.text for command in parts.commands):
        return None
    if any(not redirect.known or (parts.moves and not redirect.path.startswith("/")) for redirect in parts.redirects):
        return None
    return parts


def _redirected(path: str) -> str:
    """A redirect as it is written: relative to the workspace, unless it is absolute."""
    return paths.exact_path(path if path.startswith("/") else f"./{path}")
