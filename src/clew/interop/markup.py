"""Markdown as HTML for pages that must be inert: no markup of the text's own, no picture, links to the web alone.

markdown-it reads it, with raw HTML switched off; how each token is written is ours. Everything is escaped, and
characters that steer the direction of text, or nothing one could see, are shown by their number.
"""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

__all__ = ["UNSEEN", "escape_text", "render_markdown", "safe_link"]

UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Controls, marks of direction, tags and fillers. Joiners stay: scripts and emoji need them."""
_LINK_TARGET: Final = re.compile(r"(?:https?://[^\s/?#\\]|mailto:[^\s])[^\s\\]*", re.IGNORECASE)
_BARE_LINK: Final = re.compile(
    r"\bhttps?://[^\s<>\"'`()\[\]{}*]{1,2000}[^\s<>\"'`()\[\]{}*.,;:!?]", re.IGNORECASE | re.ASCII
)
_MAX_CHARS: Final = 200_000
_MAX_MARKS: Final = 20_000
"""A longer text, or one with more signs that could be markup in a paragraph, is shown as it is written."""
_MARKS: Final = re.compile(r"[*_`\[\]<&!\\~]")
_DIRECTIONS: Final = dict.fromkeys(("paragraph_open", "heading_open", "list_item_open", "td_open", "th_open"), "auto")


def escape_text(text: str) -> str:
    """The text as HTML that shows it and does nothing else."""
    escaped = html.escape(text.replace("\r\n", "\n"), quote=True)
    return UNSEEN.sub(lambda found: f'<span class="unseen">U+{ord(found[0]):04X}</span>', escaped)


def safe_link(target: str) -> str | None:
    """The target when a link may go there; None when it is only to be shown."""
    return target if _LINK_TARGET.fullmatch(target) and not UNSEEN.search(target) else None


def render_markdown(text: str) -> str:
    """Markdown as HTML."""
    hard = any(len(_MARKS.findall(block)) > _MAX_MARKS for block in text.split("\n\n"))
    if len(text) > _MAX_CHARS or hard:
        return f'<pre dir="auto">{escape_text(text)}</pre>'
    return str(_reader().render(text)).rstrip("\n")


@functools.cache
def _reader() -> MarkdownIt:
    # Loaded when something is exported: importing clew stays quick.
    from markdown_it import MarkdownIt

    reader = MarkdownIt("commonmark", {"html": False, "breaks": True, "xhtmlOut": False}).enable("table")
    # Every link is read as one, and `_link` decides what becomes of it; the words must not be lost on the way.
    reader.validateLink = lambda url: True  # type: ignore[method-assign]
    reader.normalizeLink = lambda url: url  # type: ignore[method-assign]
    for name, rule in (
        ("text", _text),
        ("code_inline", _code),
        ("code_block", _block),
        ("fence", _block),
        ("link_open", _link),
        ("link_close", _link_end),
        ("image", _image),
        *((name, _directed) for name in (*_DIRECTIONS, "heading_close")),
    ):
        reader.add_render_rule(name, rule)
    return reader


def _text(self: Any, tokens: Sequence[Token], at: int, options: Any, env: dict[str, Any]) -> str:
    """Words, with the addresses in them as links unless they stand in one already."""
    words = tokens[at].content
    built, end = [], 0
    for found in () if env.get("links") else _BARE_LINK.finditer(words):
        if (target := safe_link(found[0])) is not None:
            built += [escape_text(words[end : found.start()]), _anchor(target), escape_text(found[0]), "</a>"]
            end = found.end()
    return "".join([*built, escape_text(words[end:])])


def _code(self: Any, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    return f'<code dir="ltr">{escape_text(tokens[at].content)}</code>'


def _block(self: Any, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    return f'<pre dir="ltr"><code>{escape_text(tokens[at].content.rstrip(chr(10)))}</code></pre>\n'


def _directed(self: Any, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    """A block that finds its own direction. The page has three levels of headings of its own."""
    token = tokens[at]
    if token.type.startswith("heading"):
        token.tag = f"h{min(int(token.tag[1]) + 3, 6)}"
    if token.nesting == 1:
        token.attrSet("dir", _DIRECTIONS[token.type])
    return str(self.renderToken(tokens, at, options, env))


def _link(self: Any, tokens: Sequence[Token], at: int, options: Any, env: dict[str, Any]) -> str:
    target = str(tokens[at].attrGet("href") or "")
    env.setdefault("links", []).append(target)
    return "[" if safe_link(target) is None else _anchor(target)


def _link_end(self: Any, tokens: Sequence[Token], at: int, options: Any, env: dict[str, Any]) -> str:
    """The end of a link; where it may not lead is written behind its words, as it was."""
    target = env["links"].pop()
    return "</a>" if safe_link(target) is not None else f"]({escape_text(target)})"


def _image(self: Any, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    """A picture is never loaded: it is a link, or its words."""
    target, words = str(tokens[at].attrGet("src") or ""), escape_text(tokens[at].content)
    if safe_link(target) is None:
        return f"![{words}]({escape_text(target)})"
    return f"{_anchor(target)}{words}</a>"


def _anchor(target: str) -> str:
    return f'<a href="{html.escape(target, quote=True)}" rel="noopener noreferrer nofollow">'
