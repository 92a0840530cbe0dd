"""The rules that a person's answer stores (PM-3): as narrow as what was asked about.

"For this session" and "always" mean the same thing again, not things like it: the exact path, the exact host, the
exact text of each command of a line. Where a line holds something that only the running shell knows, or could not
be read, no rule says the same thing again; there is none to store, and the answer counts once.
"""

from __future__ import annotations

from typing import Literal

from clew.permissions import globs, hosts, paths
from clew.permissions.commands import Parts, take_apart
from clew.permissions.rules import MAX_PATTERN_CHARS
from clew.permissions.tokens import UNKNOWN, Unreadable
from clew.transcript.rule import Rule, Target

__all__ = ["rules_for"]


def rules_for(target: Target, scope: Literal["session", "project"], *, added_at: int | None = None) -> tuple[Rule, ...]:
    """The rules that allow ``target`` from now on, one for each command and redirect of a line; none if none can."""

    def rule(pattern: str, permission: str = target.permission) -> Rule:
        return Rule(permission, pattern, "allow", scope, added_at)

    rules: list[Rule] = []
    match target.kind:
        case "path":
            rules = [rule(paths.exact_path(target.value))] if paths.is_resolved(target.value) else []
        case "host":
            rules = [rule(target.value)] if hosts.normal_host(target.value) is not None else []
        case "plain":
            rules = [rule(globs.escape(target.value))] if target.value else []
        case "command" if (parts := _written_out(target.value)) is not None:
            rules = [rule(globs.escape(command.text)) for command in parts.commands]
            for redirect in parts.redirects:
                # As it is written: relative to the workspace, unless it is absolute.
                path = redirect.path if redirect.path.startswith("/") else f"./{redirect.path}"
                rules.append(rule(paths.exact_path(path), redirect.permission))
    # All or none: a line is allowed by all its rules together, and one too long to be stored would leave a gap.
    return () if any(len(one.pattern) > MAX_PATTERN_CHARS for one in rules) else tuple(dict.fromkeys(rules))


def _written_out(line: str) -> Parts | None:
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
