"""A tiny Markdown renderer for pages that must be inert: what it does not know it shows as it is written.

Knows paragraphs, headings, lists, quotes, rules, fenced code, code, bold, italics and links. Everything is escaped
before anything else is done with it, links go to the web or to mail alone, and characters that steer the direction of
text, or nothing one could see, are shown by their number.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Final

__all__ = ["UNSEEN", "escape_text", "render_markdown", "safe_link"]

UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Controls, marks of direction, tags and fillers. Joiners stay: scripts and emoji need them."""
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})([^`]*)$")
_HEADING: Final = re.compile(r" {0,3}(#{1,6})[ \t]+(.*)$")
_ITEM: Final = re.compile(r"[ \t]{0,12}(?:([-*+])|\d{1,9}[.)])[ \t]+(.*)$")
_RULE: Final = re.compile(r" {0,3}(?:-{3,}|\*{3,}|_{3,})[ \t]*$")
_QUOTE: Final = re.compile(r" {0,3}> ?(.*)$")
_LINK_TARGET: Final = re.compile(r"(?:https?://[^\s/?#\\]|mailto:[^\s])[^\s\\]*", re.IGNORECASE)
_INLINE: Final = re.compile(
    r"(?<!`)(?P<ticks>`{1,8})(?!`)(?P<code>[^\n]{1,2000}?)(?<!`)(?P=ticks)(?!`)"
    r"|!?\[(?P<label>[^\[\]\n]{1,400})\]\((?P<target>[^\s()<>]{1,2000})\)"
    r"|(?P<bare>\bhttps?://[^\s<>\"'`()\[\]{}*]{1,2000}[^\s<>\"'`()\[\]{}*.,;:!?])"
    r"|\*\*(?=\S)(?P<bold>[^\n]{1,400}?)(?<=\S)\*\*"
    r"|(?<![\w*])(?P<mark>[*_])(?=[^\s*_])(?P<italic>[^\n*_]{1,400})(?<=\S)(?P=mark)(?![\w*])",
    re.IGNORECASE,
)
_MAX_INLINE: Final = 20_000
"""A longer paragraph is shown without looking for markup in it."""
_MAX_DEPTH: Final = 6


def escape_text(text: str) -> str:
    """The text as HTML that shows it and does nothing else."""
    return UNSEEN.sub(_number, html.escape(text.replace("\r\n", "\n"), quote=True))


def _number(found: re.Match[str]) -> str:
    return f'<span class="unseen">U+{ord(found[0]):04X}</span>'


def safe_link(target: str) -> str | None:
    """The target when a link may go there; None when it is only to be shown."""
    return target if _LINK_TARGET.fullmatch(target) and not UNSEEN.search(target) else None


def render_markdown(text: str, depth: int = 0) -> str:
    """Markdown as HTML."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    blocks: list[str] = []
    at = 0
    while at < len(lines):
        if not lines[at].strip():
            at += 1
            continue
        for block in _BLOCKS:
            taken = block(lines, at, depth)
            if taken is not None:
                built, at = taken
                blocks.append(built)
                break
    return "\n".join(blocks)


_Taken = tuple[str, int] | None
"""What a block came to, and the line after it; None when there is no such block at that line."""


def _fence(lines: list[str], at: int, depth: int) -> _Taken:
    opened = _FENCE.match(lines[at])
    if opened is None:
        return None
    end = at + 1
    while end < len(lines):
        closing = lines[end].strip(" ")
        if len(closing) >= len(opened[1]) and not closing.strip(opened[1][0]):
            break
        end += 1
    body = escape_text("\n".join(lines[at + 1 : end]))
    return f'<pre dir="ltr"><code>{body}</code></pre>', end + 1


def _heading(lines: list[str], at: int, depth: int) -> _Taken:
    found = _HEADING.match(lines[at])
    if found is None:
        return None
    level, words = min(len(found[1]) + 3, 6), found[2].rstrip(" \t#")
    return f'<h{level} dir="auto">{_inline(words)}</h{level}>', at + 1


def _rule(lines: list[str], at: int, depth: int) -> _Taken:
    return ("<hr>", at + 1) if _RULE.match(lines[at]) else None


def _quote(lines: list[str], at: int, depth: int) -> _Taken:
    inner: list[str] = []
    while at < len(lines) and depth < _MAX_DEPTH and (found := _QUOTE.match(lines[at])):
        inner.append(found[1])
        at += 1
    return (f"<blockquote>{render_markdown(chr(10).join(inner), depth + 1)}</blockquote>", at) if inner else None


def _table(lines: list[str], at: int, depth: int) -> _Taken:
    end = at
    while end < len(lines) and lines[end].startswith("|"):
        end += 1
    return (f'<pre dir="auto">{escape_text(chr(10).join(lines[at:end]))}</pre>', end) if end > at else None


def _list(lines: list[str], at: int, depth: int) -> _Taken:
    first = _ITEM.match(lines[at])
    if first is None:
        return None
    items: list[list[str]] = []
    while at < len(lines):
        found = _ITEM.match(lines[at])
        if found is not None and (found[1] is None) == (first[1] is None):
            items.append([found[2]])
        elif found is not None:
            break
        elif lines[at].startswith((" ", "\t")) and lines[at].strip() and not _FENCE.match(lines[at].lstrip()):
            items[-1].append(lines[at].strip())
        else:
            break
        at += 1
    name = "ul" if first[1] else "ol"
    built = "".join(f'<li dir="auto">{_inline(chr(10).join(item))}</li>' for item in items)
    return f"<{name}>{built}</{name}>", at


def _paragraph(lines: list[str], at: int, depth: int) -> _Taken:
    end = at + 1
    while end < len(lines) and lines[end].strip() and not any(p.match(lines[end]) for p in (_FENCE, _HEADING, _ITEM)):
        end += 1
    return f'<p dir="auto">{_inline(chr(10).join(lines[at:end]))}</p>', end


_BLOCKS: Final[tuple[Callable[[list[str], int, int], _Taken], ...]] = (
    _fence,
    _heading,
    _rule,
    _quote,
    _table,
    _list,
    _paragraph,
)
"""In the order they are tried; a paragraph is what nothing else is."""


def _inline(text: str, depth: int = 0) -> str:
    if len(text) > _MAX_INLINE or depth > _MAX_DEPTH:
        return escape_text(text).replace("\n", "<br>\n")
    built: list[str] = []
    at = 0
    for found in _INLINE.finditer(text):
        built.append(escape_text(text[at : found.start()]).replace("\n", "<br>\n"))
        built.append(_piece(found, depth))
        at = found.end()
    built.append(escape_text(text[at:]).replace("\n", "<br>\n"))
    return "".join(built)


def _piece(found: re.Match[str], depth: int) -> str:
    if found["code"] is not None:
        return f'<code dir="ltr">{escape_text(found["code"])}</code>'
    if found["bold"] is not None:
        return f"<strong>{_inline(found['bold'], depth + 1)}</strong>"
    if found["italic"] is not None:
        return f"<em>{_inline(found['italic'], depth + 1)}</em>"
    label, target = (found["label"], found["target"]) if found["bare"] is None else (found["bare"], found["bare"])
    link = safe_link(target)
    if link is None:
        return escape_text(found[0])
    return f'<a href="{html.escape(link, quote=True)}" rel="noopener noreferrer nofollow">{escape_text(label)}</a>'
