"""Text that shows what is in it: what would steer a terminal, break a line or turn the direction of writing is spelled.

Whoever puts somebody else's text before a person or into a log asks here.
"""

from __future__ import annotations

__all__ = ["escape_unseen"]


def escape_unseen(text: str, keep: str = "") -> str:
    """The text with every character that cannot be seen written as an escape, but for those in ``keep``."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else one.encode("unicode_escape").decode() for one in text)
