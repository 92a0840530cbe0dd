"""Patterns over resolved absolute paths.

``*``, ``?`` and ``[..]`` stay inside one name, ``**`` as a whole name stands for any number of folders, none
included. A relative pattern begins at the workspace. ``x/**`` is the folder ``x`` and all below it. A name written
with a bracket in the pattern is also compared as it stands, so ``a[1].txt`` finds the file of that name. Names are
compared in composed form (NFC), so it does not matter how a file system spells an accent, and case counts. ``!(x)``
as a whole name is every name but ``x``.

Whether a path is free of links is the caller's to see to: here paths are text.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal

from clew.permissions.globs import escape, is_everything

__all__ = [
    "exact_path",
    "is_apart",
    "is_relative",
    "is_resolved",
    "meets",
    "names_of",
    "normal",
    "path_literals",
    "path_matches",
    "pattern_names",
    "without_parents",
]

_SPECIAL = "*?["
_NEGATED = re.compile(r"(?:(?<=/)|^)!\(")


def is_resolved(path: str) -> bool:
    """Whether ``path`` can be a resolved absolute path at all."""
    if not path.startswith("/") or path.startswith("//") or "\0" in path:
        return False
    return path == "/" or not any(name in ("", ".", "..") for name in path[1:].removesuffix("/").split("/"))


def is_relative(pattern: str) -> bool:
    return not pattern.startswith("/")


def exact_path(path: str) -> str:
    """The pattern that matches this path and no other."""
    # A file may be called `!(x)`; unescaped that would be every other one.
    return _NEGATED.sub(r"\\!(", escape(path, _SPECIAL))


def path_matches(pattern: str, path: str, workspace: str | None) -> bool:
    """Whether ``path`` is one that ``pattern`` names; a relative pattern names nothing without a workspace."""
    names = pattern_names(pattern, workspace)
    # Without a workspace there is nothing a relative pattern could begin at: it must not match by its text alone.
    if names is None:
        return False
    return any(len(names) == at for at in _walk(names, names_of(path)))


def is_apart(pattern: str, path: str) -> bool:
    """Whether an absolute pattern and a resolved path part within the names that the pattern writes out.

    Most do, and to see it takes no walk; False says nothing.
    """
    if not pattern.startswith("/") or ".." in pattern:
        return False
    plain = _plain(pattern_names(pattern, None) or ())
    return names_of(path)[: len(plain)] != plain


def without_parents(pattern: str, workspace: str | None) -> str:
    """A pattern with its ``..`` taken as text, for rules that deny or ask: theirs must not be without effect."""
    if ".." not in pattern.split("/"):
        return pattern
    return posixpath.normpath(posixpath.join(exact_path(workspace or "/"), pattern))


def path_literals(pattern: str, workspace: str | None) -> int:
    """How many characters the pattern spells out, the workspace included for a relative one."""
    if is_everything(pattern):
        return 0
    names = pattern_names(pattern, workspace)
    return 0 if names is None else sum(_literals(name) for name in names) + len(names)


@lru_cache(maxsize=4096)
def names_of(path: str) -> tuple[str, ...]:
    """The names a path is made of, in the form in which they are compared."""
    composed = path if path.isascii() else unicodedata.normalize("NFC", path)
    return tuple(name for name in composed.split("/") if name)


@lru_cache(maxsize=4096)
def pattern_names(pattern: str, workspace: str | None) -> tuple[str, ...] | None:
    """The names a pattern is made of; None for a relative one without a workspace."""
    if is_relative(pattern):
        if workspace is None or not workspace.startswith("/"):
            return None
        # The workspace's own name may hold what would be special in a pattern.
        pattern = f"{exact_path(workspace.rstrip('/'))}/{pattern}"
    # A pattern is not a path to walk: `..` in it is a name that no resolved path has.
    return tuple(name for name in names_of(pattern) if name != ".")


@lru_cache(maxsize=4096)
def _plain(pattern: tuple[str, ...]) -> tuple[str, ...]:
    """The names a pattern begins with that stand for themselves alone."""
    special = (at for at, name in enumerate(pattern) if any(one in name for one in "*?[\\") or name.startswith("!("))
    return pattern[: next(special, len(pattern))]


def meets(
    pattern: tuple[str, ...], folder: tuple[str, ...], names: Iterable[str], *, globs: bool = False
) -> Literal["in", "above", "out"]:
    """Where the paths ``names`` of a folder lie, seen from what ``pattern`` names; an empty name is the folder itself.

    In it when one of them is; else above it, when one is on the way there; else apart. With ``globs`` the names may
    hold what a shell puts file names in place of; the answer is then what may be.
    """
    plain = _plain(pattern)
    if not globs and folder[: len(plain)] != plain[: len(folder)]:
        return "out"
    here = _walk(pattern, folder, globs=globs)
    if not here:
        return "out"
    if globs and any("**" in name for name in folder):
        return "in"
    # Behind a `**` every folder there is would be on the way.
    first = next((at for at, name in enumerate(pattern) if name == "**"), len(pattern))
    above = False
    for name in names:
        reached = _walk(pattern, (name,), here, globs=globs) if name else here
        if len(pattern) in reached:
            return "in"
        above = above or any(at < first for at in reached)
    return "above" if above else "out"


def _walk(pattern: Sequence[str], path: Sequence[str], start: Iterable[int] = (0,), *, globs: bool = False) -> set[int]:
    """Match name by name. The result is how many names of the pattern may have been used up at the end."""
    reached = _skip_folders(pattern, set(start))
    for name in path:
        if globs and "**" in name:
            return {len(pattern)} if reached else set()
        following: set[int] = set()
        for at in reached:
            if at == len(pattern):
                continue
            if pattern[at] == "**":
                following.add(at)
            elif _name_matches(pattern[at], name) or (globs and _names_meet(pattern[at], name)):
                following.add(at + 1)
        reached = _skip_folders(pattern, following)
        if not reached:
            break
    return reached


def _skip_folders(pattern: Sequence[str], reached: set[int]) -> set[int]:
    """``**`` may stand for no folder at all."""
    result = set(reached)
    for at in reached:
        while at < len(pattern) and pattern[at] == "**":
            at += 1
            result.add(at)
    return result


def _names_meet(pattern: str, glob: str) -> bool:
    """Whether the glob of a shell may stand for a name that the pattern has. Of two patterns it is not worked out."""
    if not any(character in _SPECIAL for character in glob):
        return False
    if pattern.startswith("!(") or any(character in _SPECIAL for character in pattern):
        return True
    return _name_matches(glob, pattern)


def _name_matches(pattern: str, name: str) -> bool:
    if pattern == name and "\\" not in pattern:
        return True
    if pattern.startswith("!(") and pattern.endswith(")"):
        return name != pattern[2:-1]
    # The places in the pattern that the characters seen so far may have led to.
    reached = _after_stars(pattern, {0})
    for character in name:
        following = set()
        for at in reached:
            if at >= len(pattern):
                continue
            if pattern[at] == "*":
                following.add(at)
            else:
                found, end = _one(pattern, at, character)
                if found:
                    following.add(end)
        reached = _after_stars(pattern, following)
        if not reached:
            return False
    return len(pattern) in reached


def _after_stars(pattern: str, reached: set[int]) -> set[int]:
    result = set(reached)
    for at in reached:
        while at < len(pattern) and pattern[at] == "*":
            at += 1
            result.add(at)
    return result


def _one(pattern: str, at: int, character: str) -> tuple[bool, int]:
    """Whether one character fits at ``at``, and where the pattern goes on."""
    special = pattern[at]
    if special == "?":
        return True, at + 1
    if special == "\\" and at + 1 < len(pattern):
        return pattern[at + 1] == character, at + 2
    if special == "[":
        end = _class_end(pattern, at)
        if end is not None:
            return _in_class(pattern[at + 1 : end], character), end + 1
    return special == character, at + 1


def _class_end(pattern: str, at: int) -> int | None:
    """The closing bracket; a bracket that is never closed is an ordinary character."""
    begin = at + 1
    if begin < len(pattern) and pattern[begin] in "!^":
        begin += 1
    end = pattern.find("]", begin + 1)
    return None if end < 0 else end


def _in_class(text: str, character: str) -> bool:
    negated = text[:1] in ("!", "^")
    if negated:
        text = text[1:]
    found = False
    at = 0
    while at < len(text):
        if at + 2 < len(text) and text[at + 1] == "-":
            found = found or text[at] <= character <= text[at + 2]
            at += 3
        else:
            found = found or text[at] == character
            at += 1
    return found != negated


def _literals(name: str) -> int:
    if name == "**":
        return 0
    count = at = 0
    while at < len(name):
        if name[at] in "*?":
            at += 1
        elif name[at] == "[" and (end := _class_end(name, at)) is not None:
            at = end + 1
        else:
            at += 2 if name[at] == "\\" else 1
            count += 1
    return count


def normal(path: str) -> str:
    """A path without ``.``, ``..`` and double slashes, as text; only for rules that deny or ask."""
    return posixpath.normpath("/" + path.lstrip("/"))
