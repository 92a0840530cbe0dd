"""Escaping for terminals: text of a model or a tool must not contain control sequences."""

from __future__ import annotations

from clew.escape import escape_invisible

__all__ = ["one_line", "plain", "plain_json"]


def plain(text: str) -> str:
    """Return the text with everything but newlines, tabs and printable characters escaped."""
    return escape_invisible(text, keep="\n\t")


def plain_json(text: str) -> str:
    """Return equivalent JSON with everything but newlines and printable characters escaped."""
    if text.isprintable():
        return text
    return "".join(ch if ch == "\n" or ch.isprintable() else _escaped(ch) for ch in text)


def _escaped(ch: str) -> str:
    data = ch.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at] << 8 | data[at + 1]:04x}" for at in range(0, len(data), 2))


def one_line(text: str, width: int) -> str:
    """Return a text on one line, cut to ``width`` characters."""
    words = " ".join(text.split())
    return words if len(words) <= width else words[: width - 1] + "…"
