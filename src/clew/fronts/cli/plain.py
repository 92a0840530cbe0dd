"""Text for a terminal: what a model or a tool wrote must not be able to steer it."""

from __future__ import annotations

__all__ = ["plain"]


def plain(text: str) -> str:
    """The text with everything but newlines, tabs and printable characters shown as escapes."""
    if text.isprintable():
        return text
    return "".join(ch if ch in "\n\t" or ch.isprintable() else ch.encode("unicode_escape").decode() for ch in text)
