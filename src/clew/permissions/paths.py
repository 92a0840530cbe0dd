"""Patterns over resolved absolute paths.

``*``, ``?`` and ``[..]`` match within one name; ``**`` as a whole name matches any number of folders, or none. A
relative pattern starts at the workspace. ``x/**`` matches the folder ``x`` and everything below it. A name with a
bracket in the pattern is also compared literally, so ``a[1].txt`` matches the file of that name. Names are compared in
composed form (NFC), so the spelling of an accent does not matter, and case counts. ``!(x)`` as a whole name matches
every name but ``x``.

Paths are text here; the caller resolves links.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Literal

import msgspec

from clew.permissions.globs import escape, is_everything

__all__ = [
    "FileSystem",
    "exact_path",
    "is_disjoint",
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


class FileSystem(msgspec.Struct, frozen=True):
    """The known facts about the file system; all are optional.

    ``workspace`` is the resolved root. ``resolve`` turns a path into one without links. ``home`` is the value of a
    tilde in a shell. ``aliases`` returns the other names of a file, by which rules may know it: a second hard link, a
    folder that is mounted twice. ``finds`` returns the paths that a shell's glob finds behind links and under second
    names, with ``**`` for every depth, and only folders for a slash at the end; None if there are too many.
    """

    workspace: str | None = None
    resolve: Callable[[str], str] | None = None
    home: str | None = None
    aliases: Callable[[str], Sequence[str]] | None = None
    finds: Callable[[str], Sequence[str] | None] | None = None


_SPECIAL = "*?["
_NEGATED = re.compile(r"(?:(?<=/)|^)!\(")


def is_resolved(path: str) -> bool:
    """Return whether ``path`` can be a resolved absolute path."""
    if not path.startswith("/") or path.startswith("//") or "\0" in path:
        return False
    return path == "/" or not any(name in ("", ".", "..") for name in path[1:].removesuffix("/").split("/"))


def is_relative(pattern: str) -> bool:
    return not pattern.startswith("/")


def exact_path(path: str) -> str:
    """Return the pattern that matches only this path."""
    # A file may be named `!(x)`; unescaped that would match every other one.
    return _NEGATED.sub(r"\\!(", escape(path, _SPECIAL))


def path_matches(pattern: str, path: str, workspace: str | None) -> bool:
    """Return whether ``pattern`` matches ``path``; without a workspace a relative pattern matches nothing."""
    names = pattern_names(pattern, workspace)
    # Without a workspace a relative pattern has no start: it must not match by its text alone.
    if names is None:
        return False
    return any(len(names) == at for at in _walk(names, names_of(path)))


def is_disjoint(pattern: str, path: str) -> bool:
    """Return whether an absolute pattern and a resolved path differ in the literal names the pattern starts with.

    Most do, and this check is cheap; False means nothing.
    """
    if not pattern.startswith("/") or ".." in pattern:
        return False
    literal_names = _literal_names(pattern_names(pattern, None) or ())
    return names_of(path)[: len(literal_names)] != literal_names


def without_parents(pattern: str, workspace: str | None) -> str:
    """Return a pattern with ``..`` resolved as text, for rules that deny or ask, which must not be without effect."""
    if ".." not in pattern.split("/"):
        return pattern
    return posixpath.normpath(posixpath.join(exact_path(workspace or "/"), pattern))


def path_literals(pattern: str, workspace: str | None) -> int:
    """Return the number of literal characters in a pattern, including the workspace of a relative one."""
    if is_everything(pattern):
        return 0
    names = pattern_names(pattern, workspace)
    return 0 if names is None else sum(_literals(name) for name in names) + len(names)


@lru_cache(maxsize=4096)
def names_of(path: str) -> tuple[str, ...]:
    """Return the names of a path, in the form used for comparison."""
    composed = path if path.isascii() else unicodedata.normalize("NFC", path)
    return tuple(name for name in composed.split("/") if name)


@lru_cache(maxsize=4096)
def pattern_names(pattern: str, workspace: str | None) -> tuple[str, ...] | None:
    """Return the names of a pattern; None for a relative one without a workspace."""
    if is_relative(pattern):
        if workspace is None or not workspace.startswith("/"):
            return None
        # The workspace's own name may contain special characters.
        pattern = f"{exact_path(workspace.rstrip('/'))}/{pattern}"
    # `..` in a pattern is a name that no resolved path has.
    return tuple(name for name in names_of(pattern) if name != ".")


@lru_cache(maxsize=4096)
def _literal_names(pattern: tuple[str, ...]) -> tuple[str, ...]:
    """Return the literal names a pattern starts with."""
    special = (at for at, name in enumerate(pattern) if any(one in name for one in "*?[\\") or name.startswith("!("))
    return pattern[: next(special, len(pattern))]


def meets(
    pattern: tuple[str, ...], folder: tuple[str, ...], names: Iterable[str], *, globs: bool = False
) -> Literal["in", "above", "out"]:
    """Return where the paths ``names`` of a folder are relative to ``pattern``; an empty name is the folder itself.

    ``in`` if one of them matches, else ``is_above`` if one is on the way to a match, else ``out``. With ``globs`` the
    names may contain globs of a shell; the result is then the closest possible one.
    """
    literal_names = _literal_names(pattern)
    if not globs and folder[: len(literal_names)] != literal_names[: len(folder)]:
        return "out"
    start = _walk(pattern, folder, globs=globs)
    if not start:
        return "out"
    if globs and any("**" in name for name in folder):
        return "in"
    # After a `**` every folder would be on the way.
    first = next((at for at, name in enumerate(pattern) if name == "**"), len(pattern))
    is_above = False
    for name in names:
        positions = _walk(pattern, (name,), start, globs=globs) if name else start
        if len(pattern) in positions:
            return "in"
        is_above = is_above or any(at < first for at in positions)
    return "above" if is_above else "out"


def _walk(pattern: Sequence[str], path: Sequence[str], start: Iterable[int] = (0,), *, globs: bool = False) -> set[int]:
    """Match name by name. Return the numbers of names of the pattern that may be matched at the end."""
    positions = _skip_folders(pattern, set(start))
    for name in path:
        if globs and "**" in name:
            return {len(pattern)} if positions else set()
        following: set[int] = set()
        for at in positions:
            if at == len(pattern):
                continue
            if pattern[at] == "**":
                following.add(at)
            elif _name_matches(pattern[at], name) or (globs and _names_meet(pattern[at], name)):
                following.add(at + 1)
        positions = _skip_folders(pattern, following)
        if not positions:
            break
    return positions


def _skip_folders(pattern: Sequence[str], positions: set[int]) -> set[int]:
    """Add the positions after ``**``, which may match no folder at all."""
    result = set(positions)
    for at in positions:
        while at < len(pattern) and pattern[at] == "**":
            at += 1
            result.add(at)
    return result


def _names_meet(pattern: str, glob: str) -> bool:
    """Return whether a shell's glob may match a name of the pattern. For two patterns the result is True."""
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
    # The possible positions in the pattern after the characters so far.
    positions = _after_stars(pattern, {0})
    for character in name:
        following = set()
        for at in positions:
            if at >= len(pattern):
                continue
            if pattern[at] == "*":
                following.add(at)
            else:
                found, end = _match_character(pattern, at, character)
                if found:
                    following.add(end)
        positions = _after_stars(pattern, following)
        if not positions:
            return False
    return len(pattern) in positions


def _after_stars(pattern: str, positions: set[int]) -> set[int]:
    result = set(positions)
    for at in positions:
        while at < len(pattern) and pattern[at] == "*":
            at += 1
            result.add(at)
    return result


def _match_character(pattern: str, at: int, character: str) -> tuple[bool, int]:
    """Return whether one character matches at ``at``, and the next position in the pattern."""
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
    """Return the position of the closing bracket; an unclosed bracket is an ordinary character."""
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
    """Return a path without ``.``, ``..`` and double slashes, as text; only for rules that deny or ask."""
    return posixpath.normpath("/" + path.lstrip("/"))
