"""Escapes for invisible characters: those that control a terminal, break a line or change the writing direction.

Apply it to untrusted text before showing it to a person or writing it to a log.
"""

from __future__ import annotations

__all__ = ["escape_invisible"]


def escape_invisible(text: str, keep: str = "") -> str:
    """Escape every invisible character of a text, except those in ``keep``."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else one.encode("unicode_escape").decode() for one in text)
