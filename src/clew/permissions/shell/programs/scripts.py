"""Detects sed and awk scripts on a command line that are certain to only print; these are called plain.

Both languages can run programs and write files, and neither is parsed in full. A script that is not certain is not
plain.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["is_plain_script"]

_ADDRESS: Final = re.compile(r"[0-9]+(?:~[0-9]+)?|\$")
_RANGE: Final = re.compile(r",\+?")
_FLAGS: Final = re.compile(r"[0-9gpiI]*")
_END: Final = re.compile(r"[ \t]*(?:[;\n][;\s]*|$)")
# Words that may run a program, call a function by a computed name, or read input that is not on the command line.
_AWK_WORDS: Final = re.compile(r"system|getline|ARGV|@|\bclose\b")
_AWK_OUTPUT: Final = re.compile(r"(?<![|])\|(?![|])|>(?!=)")


def is_plain_script(language: str, text: str) -> bool:
    """Return whether an awk or sed script is certain to only print."""
    return _is_plain_awk(text) if language == "awk" else _is_plain_sed(text)


def _is_plain_awk(text: str) -> bool:
    """Return whether the script redirects no output: ``|`` and ``>`` can do so only after a ``print``."""
    if _AWK_WORDS.search(text):
        return False
    printing = text.find("print")
    return printing < 0 or _AWK_OUTPUT.search(text, printing) is None


def _is_plain_sed(text: str) -> bool:
    """Return whether every command, after optional addresses, is a letter that only edits, prints or quits, or ``s``
    with common flags."""
    at = len(text) - len(text.lstrip(" \t\n;"))
    while at < len(text):
        end = _sed_address(text, at)
        if end is None:
            return False
        at = end
        separator = _RANGE.match(text, at)
        if separator is not None and at > 0:
            end = _sed_address(text, separator.end())
            if end is None or end == separator.end():
                return False
            at = end
        while at < len(text) and text[at] in " !":
            at += 1
        command = text[at : at + 1]
        if command == "s":
            end = _sed_substitution(text, at + 1)
            if end is None:
                return False
            at = end
        elif command and command in "pPdDqQ=gGhHxnNlz":
            at += 1
        else:
            return False
        finished = _END.match(text, at)
        if finished is None:
            return False
        at = finished.end()
    return True


def _sed_address(text: str, at: int) -> int | None:
    """Return the end of the address at ``at``; ``at`` itself if there is none, None if its end is uncertain."""
    number = _ADDRESS.match(text, at)
    if number is not None:
        return number.end()
    if not text.startswith("/", at):
        return at
    end = _delimited(text, at + 1, "/", brackets=True)
    return None if end is None else end


def _sed_substitution(text: str, at: int) -> int | None:
    mark = text[at : at + 1]
    if not mark or mark.isalnum() or mark in "\\\n;[ ":
        return None
    middle = _delimited(text, at + 1, mark, brackets=True)
    end = None if middle is None else _delimited(text, middle, mark, brackets=False)
    if end is None:
        return None
    flags = _FLAGS.match(text, end)
    return flags.end() if flags else end


def _delimited(text: str, at: int, mark: str, *, brackets: bool) -> int | None:
    """Return the position after the next ``mark`` on the line. None if there is none, or if it is in brackets, where
    implementations differ."""
    inside = False
    opened = 0
    while at < len(text):
        character = text[at]
        if character == "\n":
            return None
        if character == "\\":
            if inside:
                return None
            at += 2
            continue
        if character == mark:
            return None if inside else at + 1
        if brackets and character == "[" and not inside:
            inside, opened = True, at
            if text.startswith("^", at + 1):
                at, opened = at + 1, at + 1
        elif inside and character == "]" and at > opened + 1:
            inside = False
        at += 1
    return None
