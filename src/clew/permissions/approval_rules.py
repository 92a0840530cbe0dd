"""The rules that a person's approval may store (PM-3, PM-7), from the exact call to similar calls.

The first offer covers the same call only: the exact path, the exact host, the exact text of each command of a line. A
person may pick a wider one; each has a description. If a line contains text that only the running shell knows, or is
unreadable, no rule covers the same call again; then there is no offer, and the approval counts once.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from clew.escape import escape_invisible
from clew.permissions import globs, hosts, paths
from clew.permissions.rules import MAX_PATTERN_CHARS
from clew.permissions.shell.commands import LITERAL, Command, Parts, is_interpreter, take_apart
from clew.permissions.shell.programs.catalog import find_program
from clew.permissions.shell.tokens import UNKNOWN, Unreadable
from clew.transcript.rule import Rule, Target

__all__ = ["Offer", "offers_for", "rules_for"]

_WORD: Final = re.compile(r"[a-z][a-z0-9:_-]*")
"""Matches subcommands (`git status`, `npm run`), not files or options."""
_MAX_OFFERS: Final = 4
_MAX_WORDS: Final = 400


class Offer(msgspec.Struct, frozen=True):
    """A set of rules an approval may store. ``pattern`` identifies it among the offers of its request; ``words``
    describe it."""

    pattern: str
    words: str
    rules: tuple[Rule, ...]


class _RuleOption(msgspec.Struct, frozen=True):
    """One rule that allows one subject, with its description."""

    permission: str
    pattern: str
    words: str


def offers_for(targets: Sequence[Target], workspace: str | None, scope: Literal["session", "project"]) -> list[Offer]:
    """Return the offers for a call, the narrowest first; none if no rule would cover the call again."""
    options_by_subject: list[list[_RuleOption]] = []
    for target in targets:
        found = _options_for(target, workspace)
        if not found:
            return []
        options_by_subject += found
    offers: dict[str, Offer] = {}
    for level in range(max((len(options) for options in options_by_subject), default=0)):
        picked = list(dict.fromkeys(options[min(level, len(options) - 1)] for options in options_by_subject))
        pattern = ", ".join(dict.fromkeys(f"{offer.permission} {offer.pattern}" for offer in picked))
        words = escape_invisible("; ".join(dict.fromkeys(offer.words for offer in picked)))
        rules = tuple(Rule(offer.permission, offer.pattern, "allow", scope) for offer in picked)
        # All or none: a line needs all its rules, and one that is too long cannot be stored.
        if any(len(rule.pattern) > MAX_PATTERN_CHARS for rule in rules):
            break
        shown = words if len(words) <= _MAX_WORDS else f"{words[: _MAX_WORDS - 1]}…"
        # A wider offer is made only if its description is complete; the call itself is visible.
        if level and shown != words:
            break
        offers.setdefault(pattern, Offer(pattern, shown, rules))
    return list(offers.values())[:_MAX_OFFERS]


def rules_for(target: Target, scope: Literal["session", "project"]) -> tuple[Rule, ...]:
    """Return the rules that allow exactly ``target``; none if none can."""
    offers = offers_for((target,), None, scope)
    return offers[0].rules if offers else ()


def _options_for(target: Target, workspace: str | None) -> list[list[_RuleOption]]:
    """Return for each subject of a target the rules that allow it, the narrowest first."""
    name, value = target.permission, target.value
    match target.kind:
        case "path" if paths.is_resolved(value):
            return [_path_widths(name, value, workspace if target.inside else None)]
        case "host" if hosts.normal_host(value) is not None:
            return [[_RuleOption(name, value, f"{name} from {value}")]]
        case "plain" if value:
            every = _RuleOption(name, "*", f"every call of {name}")
            return [[_RuleOption(name, globs.escape(value), f"{name} with exactly this: {value}"), every]]
        case "command" if (parts := _written_out(value)) is not None:
            redirects = [
                # As it is written: relative to the workspace, unless it is absolute.
                (redirect.permission, redirect.path if redirect.path.startswith("/") else f"./{redirect.path}")
                for redirect in parts.redirects
            ]
            return [
                *(_command_widths(name, command) for command in parts.commands),
                *([_RuleOption(can, paths.exact_path(path), f"{can} {path}")] for can, path in redirects),
            ]
    return []


def _path_widths(name: str, path: str, workspace: str | None) -> list[_RuleOption]:
    inside = workspace is not None and path.startswith(f"{workspace}/")
    # The description is relative to the workspace; the rule has the whole path.
    shown = posixpath.relpath(path, workspace) if inside else path
    widths = [_RuleOption(name, paths.exact_path(path), f"{name} {shown}, and nothing else")]
    if not inside:
        return widths
    folder = posixpath.dirname(shown)
    if folder:
        widths.append(_RuleOption(name, f"./{paths.exact_path(folder)}/**", f"{name} anything in {folder}/"))
    widths.append(_RuleOption(name, "./**", f"{name} anything in this workspace"))
    return widths


def _command_widths(name: str, command: Command) -> list[_RuleOption]:
    exact = _RuleOption(name, globs.escape(command.text), f"exactly `{command.text}`")
    words = command.text.split(" ")
    # If the arguments decide what a command does, only the exact one is offered; for more a person writes a rule.
    if command.cover != "any" or words[0] in LITERAL or any(mark in words[0] for mark in "'\"="):
        return [exact]
    second = words[1] if len(words) > 1 else ""
    if is_interpreter(words[0]):
        # It runs any script, so the wider offer is for this script.
        is_script = second and second[0] not in "-'"
        return [exact, _starred(name, f"{words[0]} {second}")] if is_script else [exact]
    known = find_program(words[0])
    subcommand = [_starred(name, f"{words[0]} {second}")] if _WORD.fullmatch(second) else []
    if subcommand and known is not None and known[1].commands is not None:
        return [exact, *subcommand]
    # The word may be a subcommand or not, so both are offered.
    return [exact, *subcommand, _starred(name, words[0])]


def _starred(name: str, head: str) -> _RuleOption:
    return _RuleOption(name, f"{globs.escape(head)} *", f"every `{head} …`, whatever follows")


def _written_out(line: str) -> Parts | None:
    """Return the parts of a line, if every one of them is fully known."""
    try:
        parts = take_apart(line)
    except Unreadable:
        return None
    if any(command.cover == "none" or UNKNOWN in command.text for command in parts.commands):
        return None
    if any(
        not redirect.known or not redirect.steady or (parts.moves and not redirect.path.startswith("/"))
        for redirect in parts.redirects
    ):
        return None
    return parts
