"""Text for a terminal: what a model or a tool wrote must not be able to steer it."""

from __future__ import annotations

from clew.escape import escape_invisible

__all__ = ["one_line", "plain", "plain_json"]


def plain(text: str) -> str:
    """The text with everything but newlines, tabs and printable characters shown as escapes."""
    return escape_invisible(text, keep="\n\t")


def plain_json(text: str) -> str:
    """JSON that means the same, with everything but newlines and printable characters as escapes."""
    if text.isprintable():
        return text
    return "".join(ch if ch == "\n" or ch.isprintable() else _escaped(ch) for ch in text)


def _escaped(ch: str) -> str:
    data = ch.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at] << 8 | data[at + 1]:04x}" for at in range(0, len(data), 2))


def one_line(text: str, width: int) -> str:
    """The words of a text on one line, as many as there is room for."""
    words = " ".join(text.split())
    return words if len(words) <= width else words[: width - 1] + "…"
