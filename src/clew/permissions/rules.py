"""Rules as values from outside, and the rules every agent starts with."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from clew.errors import InvalidInput
from clew.permissions.globs import escape
from clew.permissions.paths import exact_path
from clew.transcript.gate import check_text
from clew.transcript.rule import Rule

__all__ = ["MAX_PATTERN_CHARS", "MAX_RULES", "default_rules", "parse_rules"]

MAX_RULES: Final = 1_000
MAX_PATTERN_CHARS: Final = 8_192

_PERMISSION: Final = re.compile(r"\*|[A-Za-z0-9_.:-]{1,128}\*?", re.ASCII)
_ACTIONS: Final = ("allow", "deny", "ask")

_READING: Final = ("read", "ls", "glob", "grep")
_SPEAKING: Final = ("todo", "skill", "question", "recall")


def parse_rules(
    values: Sequence[Mapping[str, Any]], source: Literal["session", "project"], *, added_at: int | None = None
) -> list[Rule]:
    """Rules as a client sends them, in its order, for the scope ``source``. Raises ``InvalidInput``.

    ``source`` in a value is not believed, ``pinned`` is refused: only a manifest pins. A value's own ``added_at`` is
    kept, because a client that changes one rule sends all of them back; ``added_at`` is for those without.
    """
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Sequence):
        raise InvalidInput("rules are a list of objects with permission, pattern and action")
    if len(values) > MAX_RULES:
        raise InvalidInput(f"{len(values)} rules are more than the {MAX_RULES} that are kept")
    return [_parse(value, f"rules[{index}]", source, added_at) for index, value in enumerate(values)]


def _parse(value: Any, where: str, source: Literal["session", "project"], added_at: int | None) -> Rule:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{where} is not an object with permission, pattern and action")
    if value.get("pinned"):
        raise InvalidInput(f"{where} is pinned, which only the rules of an agent's manifest can be")
    permission, pattern, action = (value.get(key) for key in ("permission", "pattern", "action"))
    if not isinstance(permission, str) or not _PERMISSION.fullmatch(permission):
        raise InvalidInput(f"{where}.permission is the name of a tool or a capability, or `*`")
    if not isinstance(pattern, str) or not pattern.strip():
        raise InvalidInput(f'{where}.pattern is missing; "*" matches everything')
    if len(pattern) > MAX_PATTERN_CHARS:
        raise InvalidInput(f"{where}.pattern is longer than {MAX_PATTERN_CHARS} characters")
    check_text(pattern, f"{where}.pattern")
    if action not in _ACTIONS:
        raise InvalidInput(f"{where}.action is allow, deny or ask")
    stamp = value.get("added_at", added_at)
    if stamp is not None and (isinstance(stamp, bool) or not isinstance(stamp, int) or not 0 <= stamp < 2**53):
        raise InvalidInput(f"{where}.added_at is a time in epoch milliseconds")
    return msgspec.convert(
        {"permission": permission, "pattern": pattern, "action": action, "source": source, "added_at": stamp}, Rule
    )


def default_rules(
    *,
    own: Iterable[str | os.PathLike[str]] = (),
    secret: Iterable[str | os.PathLike[str]] = (),
    readable: Iterable[str | os.PathLike[str]] = (),
) -> tuple[Rule, ...]:
    """The manifest rules of every agent, from resolved absolute paths.

    Reading is allowed inside the workspace (``./**``), and in ``readable`` (the folder of outputs put aside). What
    lies in ``own``, clew's data, can be changed by no tool, and ``secret``, its settings and token, be touched by
    none, nor be named in a shell command. All that is not mentioned is asked about, because no rule matches.
    """
    rules = [Rule(permission, "./**", "allow", "manifest") for permission in _READING]
    rules += [Rule(permission, "*", "allow", "manifest") for permission in _SPEAKING]
    for folder in _texts(readable):
        rules += [Rule(permission, _below(folder), "allow", "manifest") for permission in _READING]
    for folder in _texts(own):
        rules += [_pinned(permission, _below(folder)) for permission in ("write", "edit")]
        rules += _unnamed(folder)
    for folder in _texts(secret):
        rules.append(_pinned("*", _below(folder)))
        rules += _unnamed(folder)
    return tuple(rules)


def _texts(folders: Iterable[str | os.PathLike[str]]) -> list[str]:
    return [os.fspath(folder).rstrip("/") for folder in folders]


def _below(folder: str) -> str:
    return f"{exact_path(folder)}/**"


def _pinned(permission: str, pattern: str) -> Rule:
    return Rule(permission, pattern, "deny", "manifest", pinned=True)


def _unnamed(folder: str) -> list[Rule]:
    """No simple command may name the folder. A command can reach it in other ways; the sandbox is for those."""
    name = escape(folder)
    return [_pinned("bash", f"*{name}{end}") for end in ("/*", " *")]
