"""The rules that a person's answer may store (PM-3, PM-7), from the exact call to its family.

The first offer means the same thing again, not things like it: the exact path, the exact host, the exact text of each
command of a line. Wider ones are a person's to pick, each told in words. Where a line holds something that only the
running shell knows, or could not be read, no rule says the same thing again; there is none to store, and the answer
counts once.
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
from clew.permissions.shell.builtins import LITERAL
from clew.permissions.shell.commands import Command, Parts, is_interpreter, take_apart
from clew.permissions.shell.programs.catalog import find_program
from clew.permissions.shell.tokens import UNKNOWN, Unreadable
from clew.transcript.rule import Rule, Target

__all__ = ["Offer", "offers_for", "rules_for"]

_WORD: Final = re.compile(r"[a-z][a-z0-9:_-]*")
"""What names a subcommand (`git status`, `npm run`), and no file or option."""
_MAX_OFFERS: Final = 4
_MAX_WORDS: Final = 400


class Offer(msgspec.Struct, frozen=True):
    """What an answer may allow from now on. ``pattern`` names it among the offers of its request; ``words`` say it."""

    pattern: str
    words: str
    rules: tuple[Rule, ...]


class _Width(msgspec.Struct, frozen=True):
    """One way to allow one thing."""

    permission: str
    pattern: str
    words: str


def offers_for(targets: Sequence[Target], workspace: str | None, scope: Literal["session", "project"]) -> list[Offer]:
    """What can be allowed from now on, the narrowest first; nothing where no rule would cover the call again."""
    ladders: list[list[_Width]] = []
    for target in targets:
        rungs = _ladders(target, workspace)
        if not rungs:
            return []
        ladders += rungs
    offers: dict[str, Offer] = {}
    for height in range(max((len(ladder) for ladder in ladders), default=0)):
        picked = list(dict.fromkeys(ladder[min(height, len(ladder) - 1)] for ladder in ladders))
        pattern = ", ".join(dict.fromkeys(f"{one.permission} {one.pattern}" for one in picked))
        words = escape_invisible("; ".join(dict.fromkeys(one.words for one in picked)))
        rules = tuple(Rule(one.permission, one.pattern, "allow", scope) for one in picked)
        # All or none: a line is allowed by all its rules together, and one too long to be stored would leave a gap.
        if any(len(one.pattern) > MAX_PATTERN_CHARS for one in rules):
            break
        shown = words if len(words) <= _MAX_WORDS else f"{words[: _MAX_WORDS - 1]}…"
        # What goes beyond the call is offered only where the words name all of it; the call itself is in sight.
        if height and shown != words:
            break
        offers.setdefault(pattern, Offer(pattern, shown, rules))
    return list(offers.values())[:_MAX_OFFERS]


def rules_for(target: Target, scope: Literal["session", "project"]) -> tuple[Rule, ...]:
    """The rules that allow exactly ``target`` from now on; none if none can."""
    offers = offers_for((target,), None, scope)
    return offers[0].rules if offers else ()


def _ladders(target: Target, workspace: str | None) -> list[list[_Width]]:
    """For each thing that is judged by itself the ways to allow it, the narrowest first."""
    name, value = target.permission, target.value
    match target.kind:
        case "path" if paths.is_resolved(value):
            return [_path_widths(name, value, workspace if target.inside else None)]
        case "host" if hosts.normal_host(value) is not None:
            return [[_Width(name, value, f"{name} from {value}")]]
        case "plain" if value:
            every = _Width(name, "*", f"every call of {name}")
            return [[_Width(name, globs.escape(value), f"{name} with exactly this: {value}"), every]]
        case "command" if (parts := _written_out(value)) is not None:
            redirects = [
                # As it is written: relative to the workspace, unless it is absolute.
                (one.permission, one.path if one.path.startswith("/") else f"./{one.path}")
                for one in parts.redirects
            ]
            return [
                *(_command_widths(name, command) for command in parts.commands),
                *([_Width(can, paths.exact_path(path), f"{can} {path}")] for can, path in redirects),
            ]
    return []


def _path_widths(name: str, path: str, workspace: str | None) -> list[_Width]:
    inside = workspace is not None and path.startswith(f"{workspace}/")
    # The words name it as people do, from the workspace; the rule is of the whole path.
    shown = posixpath.relpath(path, workspace) if inside else path
    widths = [_Width(name, paths.exact_path(path), f"{name} {shown}, and nothing else")]
    if not inside:
        return widths
    folder = posixpath.dirname(shown)
    if folder:
        widths.append(_Width(name, f"./{paths.exact_path(folder)}/**", f"{name} anything in {folder}/"))
    widths.append(_Width(name, "./**", f"{name} anything in this workspace"))
    return widths


def _command_widths(name: str, command: Command) -> list[_Width]:
    exact = _Width(name, globs.escape(command.text), f"exactly `{command.text}`")
    words = command.text.split(" ")
    # Of a command whose arguments decide what it is, only the exact one is offered; who wants more writes a rule.
    if command.cover != "any" or words[0] in LITERAL or any(one in words[0] for one in "'\"="):
        return [exact]
    second = words[1] if len(words) > 1 else ""
    if is_interpreter(words[0]):
        # Whatever it is given, it runs: the family is that of its script.
        is_script = second and second[0] not in "-'"
        return [exact, _starred(name, f"{words[0]} {second}")] if is_script else [exact]
    known = find_program(words[0])
    of_word = [_starred(name, f"{words[0]} {second}")] if _WORD.fullmatch(second) else []
    if of_word and known is not None and known[1].commands is not None:
        return [exact, *of_word]
    # Where the word may be a subcommand or may not, both are told.
    return [exact, *of_word, _starred(name, words[0])]


def _starred(name: str, head: str) -> _Width:
    return _Width(name, f"{globs.escape(head)} *", f"every `{head} …`, whatever follows")


def _written_out(line: str) -> Parts | None:
    """The parts of a line, when every one of them is fully written out."""
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
