"""Patterns over plain text: ``*`` matches any characters, a backslash escapes it. Linear in the text.

Patterns are not compiled to regular expressions: rules are untrusted, and one with many stars must not make an
evaluation run forever.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

__all__ = ["escape", "find_pieces", "is_everything", "literal_count", "matches", "pieces_of"]


@lru_cache(maxsize=4_096)
def pieces_of(pattern: str) -> tuple[str, ...]:
    """Return the literal texts around the stars: ``a*b`` is ``("a", "b")``, a pattern without a star is one piece."""
    pieces: list[list[str]] = [[]]
    escaped = False
    for character in pattern:
        if escaped or character not in "*\\":
            pieces[-1].append(character)
            escaped = False
        elif character == "*":
            pieces.append([])
        else:
            escaped = True
    if escaped:
        pieces[-1].append("\\")
    return tuple("".join(piece) for piece in pieces)


def matches(pattern: str, text: str) -> bool:
    """Return whether ``pattern`` matches the whole of ``text``."""
    return find_pieces(pieces_of(pattern), text)


def find_pieces(pieces: Sequence[str], text: str) -> bool:
    first, last = pieces[0], pieces[-1]
    if len(pieces) == 1:
        return text == first
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for piece in pieces[1:-1]:
        # The leftmost match leaves the most text for the rest, so no other has to be tried.
        found = text.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def is_everything(pattern: str) -> bool:
    return pattern.strip() != "" and not pattern.strip().strip("*")


def literal_count(pattern: str) -> int:
    """Return the number of literal characters in a pattern: the measure of how specific it is."""
    return sum(map(len, pieces_of(pattern)))


def escape(text: str, special: str = "*") -> str:
    """Return a pattern that matches only ``text``."""

    return "".join(f"\\{character}" if character in special + "\\" else character for character in text)
