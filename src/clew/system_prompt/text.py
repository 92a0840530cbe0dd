"""Makes external text safe for a prompt: one line, without invisible characters, and of bounded length."""

from __future__ import annotations

import re

__all__ = ["cut_bytes", "mark_unseen", "one_line"]

# Control characters except tab and line feed; marks that change text direction or have no width; tag characters.
# Text that a person cannot see in a file must not instruct a model.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def mark_unseen(text: str) -> str:
    """Replace characters a reader would not see by U+FFFD, and strip surrounding blank lines."""
    return _UNSEEN.sub("\ufffd", text).strip("\n")


def one_line(text: str, limit: int) -> str:
    """Return the text as one line of at most ``limit`` characters, so that it cannot imitate a heading or a list."""
    line = " ".join(text.split())
    if not line.isprintable():
        line = " ".join("".join(one if one.isprintable() else " " for one in line).split())
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"


def cut_bytes(text: str, limit: int) -> str:
    """Return the start of a text, at most ``limit`` bytes of UTF-8, up to the end of a line if there is one."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text
    start = data[: max(limit, 0)].decode("utf-8", "ignore")
    whole, newline, _ = start.rpartition("\n")
    return whole if newline else start
