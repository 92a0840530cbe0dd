"""Export as one HTML file, for people. It is inert: no script, no external resource, everything escaped.

markdown-it parses texts, with raw HTML switched off; the rules that render its tokens are here. Characters that are
invisible or change the direction of text are shown by their number.
"""

from __future__ import annotations

import base64
import functools
import html
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from clew.interop.export_sections import MARKS, Passage, about, left_out, passages_of, piece_of, shown_time
from clew.transcript.part import blob_of, file_name_of, kind_of, media_type_of
from clew.transcript.portable import Blob, PortableSession

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

__all__ = ["INVISIBLE", "POLICY", "escape_text", "format_html", "render_markdown"]

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_MAX_PICTURE: Final = 4 * 1024 * 1024
_UNPRINTED: Final = re.compile("[^\\w .,:;!?'()+/-]")
INVISIBLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Control characters, marks of direction, tags and fillers. Joiners are allowed: scripts and emoji need them."""
_LINK_TARGET: Final = re.compile(r"(?:https?://[^\s/?#\\]|mailto:[^\s])[^\s\\]*", re.IGNORECASE)
_BARE_LINK: Final = re.compile(
    r"\bhttps?://[^\s<>\"'`()\[\]{}*]{1,2000}[^\s<>\"'`()\[\]{}*.,;:!?]", re.IGNORECASE | re.ASCII
)
_MAX_CHARS: Final = 200_000
_MAX_MARKS: Final = 20_000
"""A longer text, or a paragraph with more possible markup, is shown without rendering."""
_MARKS: Final = re.compile(r"[*_`\[\]<&!\\~]")
_DIRECTIONS: Final = dict.fromkeys(("paragraph_open", "heading_open", "list_item_open", "td_open", "th_open"), "auto")


@functools.cache
def _style() -> str:
    return resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")


def format_html(portable: PortableSession, *, hidden: bool = False) -> str:
    """Return the page; with ``hidden`` also messages that were rewound, summarised, refused or cancelled."""
    session = portable.session
    title = session.title or "Untitled session"
    facts = about(portable)
    facts.insert(3, session.id)
    passages = passages_of(portable, hidden=hidden)
    missing = left_out(portable, passages)
    blobs = {blob.sha256: blob for blob in portable.blobs}
    return "".join(
        (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="referrer" content="no-referrer">\n',
            f"<title>{_UNPRINTED.sub(' ', title)}</title>\n<style>\n{_style()}</style>\n</head>\n<body>\n",
            f'<header>\n<h1 dir="auto">{escape_text(title)}</h1>\n',
            f'<p class="about">{escape_text(" · ".join(facts))}</p>\n',
            f'<p class="about">{escape_text(missing)}</p>\n' if missing else "",
            "</header>\n<main>\n",
            *_turns(passages, blobs),
            f"</main>\n<footer>Exported by {escape_text(portable.exporter)}, ",
            f"{escape_text(shown_time(portable.exported_at))}</footer>\n</body>\n</html>\n",
        )
    )


def _turns(passages: tuple[Passage, ...], blobs: Mapping[str, Blob]) -> Iterator[str]:
    turn = 0
    for passage in passages:
        if passage.turn != turn:
            turn = passage.turn
            yield f"<h2>Turn {turn}</h2>\n"
        row = passage.row
        classes = [row.role, *(["summary"] if passage.who == "Summary" else []), *(["off"] if passage.mark else [])]
        mark = f' <span class="mark">{MARKS[passage.mark]}</span>' if passage.mark is not None else ""
        yield f'<article class="{" ".join(classes)}">\n<h3>{passage.who} · {shown_time(row.created_at)}{mark}</h3>\n'
        if passage.damage:
            yield f'<p class="mark">Damaged: {escape_text(passage.damage)}</p>\n'
        for part in row.parts:
            yield _part(part.data, blobs)
        yield "</article>\n"


def _part(data: dict[str, Any], blobs: Mapping[str, Blob]) -> str:
    if kind_of(data) == "file":
        return _file(data, blobs)
    piece = piece_of(data)
    if piece is None:
        return ""
    match piece.kind:
        case "text":
            return render_markdown(piece.text) + "\n"
        case "reasoning":
            return _folded("Reasoning", render_markdown(piece.text))
        case "summary":
            return f'<p class="about">Replaces the messages before it.</p>\n{render_markdown(piece.text)}\n'
        case _:
            titles = (f"<h3>{block.title}</h3>" if block.title else "" for block in piece.blocks)
            bodies = (f'<pre dir="auto">{escape_text(block.text)}</pre>' for block in piece.blocks)
            return _folded(piece.title, "".join(map("".join, zip(titles, bodies, strict=True))))


def _file(data: dict[str, Any], blobs: Mapping[str, Blob]) -> str:
    name = file_name_of(data) or media_type_of(data) or "file"
    blob = blobs.get(blob_of(data) or "")
    if blob is None or blob.media_type.lower() not in _PICTURES or len(blob.data) > _MAX_PICTURE:
        return f'<p class="about">Attached: {escape_text(name)}</p>\n'
    body = base64.b64encode(blob.data).decode()
    alt = _UNPRINTED.sub(" ", name)
    return f'<p><img src="data:{blob.media_type.lower()};base64,{body}" alt="{alt}"></p>\n'


def _folded(summary: str, body: str) -> str:
    return f"<details>\n<summary>{escape_text(summary[:300])}</summary>\n{body}\n</details>\n"


# Markdown


def escape_text(text: str) -> str:
    """Return the text escaped for HTML, with invisible characters made visible."""
    escaped = html.escape(text.replace("\r\n", "\n"), quote=True)
    return INVISIBLE.sub(lambda found: f'<span class="unseen">U+{ord(found[0]):04X}</span>', escaped)


def safe_link(target: str) -> str | None:
    """Return the target if a link to it is safe, else None."""
    return target if _LINK_TARGET.fullmatch(target) and not INVISIBLE.search(target) else None


def render_markdown(text: str) -> str:
    """Render Markdown as HTML. It has no raw HTML, no pictures and links to the web only."""
    hard = any(len(_MARKS.findall(block)) > _MAX_MARKS for block in text.split("\n\n"))
    if len(text) > _MAX_CHARS or hard:
        return f'<pre dir="auto">{escape_text(text)}</pre>'
    return str(_reader().render(text)).rstrip("\n")


@functools.cache
def _reader() -> MarkdownIt:
    # Imported here to keep `import clew` quick.
    from markdown_it import MarkdownIt

    reader = MarkdownIt("commonmark", {"html": False, "breaks": True, "xhtmlOut": False}).enable("table")
    # Accept every link: `_link` decides on it, and the parser would drop the text of an invalid one.
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
    """Render text, with its addresses as links unless it is inside a link."""
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
    """Render a block with automatic direction. Headings start below the page's own three levels."""
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
    """Render the end of a link. An unsafe target is written as text."""
    target = env["links"].pop()
    return "</a>" if safe_link(target) is not None else f"]({escape_text(target)})"


def _image(self: Any, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    """Render a picture as a link or as text, since nothing may be loaded."""
    target, words = str(tokens[at].attrGet("src") or ""), escape_text(tokens[at].content)
    if safe_link(target) is None:
        return f"![{words}]({escape_text(target)})"
    return f"{_anchor(target)}{words}</a>"


def _anchor(target: str) -> str:
    return f'<a href="{html.escape(target, quote=True)}" rel="noopener noreferrer nofollow">'
