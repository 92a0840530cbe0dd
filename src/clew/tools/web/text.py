"""Text of a server's answer: decoding by character set, and HTML to readable text.

The converter is small on purpose: headings, paragraphs, lists, links, tables as lines, preformatted text unchanged;
scripts, styles and hidden content are left out. The standard parser scans an unfinished tag again for each piece, which
hostile HTML can turn into hours; so the length of an unfinished tag is limited, and the time is checked at every step.
"""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser
from typing import Final
from urllib.parse import urljoin

__all__ = ["decode", "html_to_text"]

MAX_HTML_CHARS: Final = 2_000_000
SECONDS: Final = 5.0
_PIECE: Final = 32 * 1024
_MAX_PENDING: Final = 64 * 1024

# Only character sets used by pages: Python also has codecs that are slow, or are not character sets.
_CHARSET: Final = re.compile(
    r"utf-?8|utf-?16(-?[lb]e)?|(us-)?ascii|latin-?1|(iso-?)?8859-?([1-9]|1[0-6])|(windows|cp)-?(125[0-8]|874|866)"
    r"|koi8-?[ru]|gb2312|gbk|gb18030|big5(-hkscs)?|shift[_-]?jis|sjis|euc-?(jp|kr)|iso-?2022-?(jp|kr)|macintosh",
    re.ASCII,
)
# As in browsers: Latin-1 and ASCII are decoded as windows-1252, which contains both.
_ALIASES: Final = dict.fromkeys(("iso-8859-1", "iso8859-1", "latin1", "latin-1", "ascii", "us-ascii"), "cp1252")
_META: Final = re.compile(rb"<meta[^>]{0,500}?charset\s{0,20}=\s{0,20}[\"']?([A-Za-z0-9_:.-]{1,40})", re.IGNORECASE)
_BOMS: Final = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))

_HIDDEN: Final = frozenset({"script", "style", "noscript", "template", "svg", "math", "iframe"})
_BLOCKS: Final = frozenset(
    [
        "address",
        "article",
        "aside",
        "blockquote",
        "body",
        "dd",
        "details",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
        "figure",
        "footer",
        "form",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "header",
        "hr",
        "li",
        "main",
        "nav",
        "ol",
        "p",
        "pre",
        "section",
        "summary",
        "table",
        "tbody",
        "thead",
        "tr",
        "ul",
    ]
)
_HEADINGS: Final = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_BLANK: Final = re.compile(r"[ \t\r\n\f\u00a0]+")


def decode(body: bytes, content_type: str) -> tuple[str, str]:
    """Return the text, and a remark if it is not in the declared character set."""
    for bom, charset in _BOMS:
        if body.startswith(bom):
            return body.decode(charset, "replace"), ""
    declared = re.search(r"charset\s*=\s*[\"']?([^\s\"';,]{1,60})", content_type, re.IGNORECASE)
    in_page = None if declared else _META.search(body[:4096])
    name = declared[1] if declared else in_page[1].decode("ascii") if in_page else "utf-8"
    if _CHARSET.fullmatch(name.lower()):
        try:
            return body.decode(_ALIASES.get(name.lower(), name), "replace"), ""
        except LookupError:
            pass  # A name the table allows and this Python does not have.
    return body.decode("utf-8", "replace"), f"the character set {name!r} is not known; read as UTF-8"


def html_to_text(html: str, base: str, *, seconds: float = SECONDS) -> tuple[str, str, bool]:
    """Return the title, the text, and whether something was left out because of length or time."""
    reader = _Reader(base, time.monotonic() + seconds)
    cut = len(html) > MAX_HTML_CHARS
    try:
        for at in range(0, min(len(html), MAX_HTML_CHARS), _PIECE):
            reader.feed(html[at : min(at + _PIECE, MAX_HTML_CHARS)])
            reader.check_pending()
        reader.close()
    except (_TooSlow, AssertionError, ValueError, IndexError):
        cut = True  # The standard parser gives up on some declarations; what came before them stands.
    return reader.title, reader.text(), cut


class _TooSlow(Exception):
    """The time for one page is over."""


class _Reader(HTMLParser):
    """Writes lines while the parser walks through the page."""

    def __init__(self, base: str, until: float) -> None:
        super().__init__(convert_charrefs=True)
        self._base = base
        self._until = until
        self._hidden: list[str] = []
        self._in_title = False
        self._title: list[str] = []
        self._lines: list[str] = []
        self._current = ""
        self._prefix = ""
        self._pre = 0
        self._lists: list[int | None] = []
        self._link: str | None = None
        self._link_from = 0

    @property
    def title(self) -> str:
        return _BLANK.sub(" ", "".join(self._title)).strip()[:300]

    def text(self) -> str:
        self._break()
        return re.sub(r"\n{3,}", "\n\n", "\n".join(self._lines)).strip()

    def check_pending(self) -> None:
        """Stop at a tag that is too long. A script may be longer; it is scanned once for each piece of the page."""
        if len(self.rawdata) > _MAX_PENDING and self.cdata_elem is None:
            raise _TooSlow

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tick()
        if tag == "title" and not self._hidden:
            self._in_title = True
        if tag in _HIDDEN:
            self._hidden.append(tag)
        if self._hidden:
            return
        values = dict(attrs)
        if tag in _BLOCKS:
            self._break(blank=tag in _HEADINGS or tag in ("p", "pre", "blockquote", "table", "ul", "ol"))
        if tag == "br":
            self._break()
        elif tag in _HEADINGS:
            self._prefix = _HEADINGS[tag]
        elif tag in ("ul", "ol"):
            self._lists.append(0 if tag == "ol" else None)
        elif tag == "li":
            self._prefix = "  " * max(len(self._lists) - 1, 0) + "- "
            if self._lists and self._lists[-1] is not None:
                self._lists[-1] += 1
                self._prefix = f"{self._prefix[:-2]}{self._lists[-1]}. "
        elif tag == "pre":
            self._pre += 1
        elif tag in ("td", "th") and self._current:
            self._current += " | "
        elif tag == "img" and values.get("alt"):
            self._say(f"[image: {values['alt']}]")
        elif tag == "a" and values.get("href"):
            self._link, self._link_from = values["href"], len(self._current)

    def handle_endtag(self, tag: str) -> None:
        self._tick()
        if tag == "title":
            self._in_title = False
        if self._hidden:
            # Elements that are still open inside of it end with it.
            if tag in self._hidden:
                del self._hidden[self._hidden.index(tag) :]
            return
        if tag == "a":
            self._end_link()
        if tag in _BLOCKS:
            self._break(blank=tag in _HEADINGS or tag in ("p", "pre", "blockquote", "table"))
        if tag in ("ul", "ol") and self._lists:
            self._lists.pop()
        elif tag == "pre" and self._pre:
            self._pre -= 1

    def handle_data(self, data: str) -> None:
        self._tick()
        if self._in_title:
            self._title.append(data[:300])
        elif not self._hidden:
            self._say(data)

    def handle_comment(self, data: str) -> None:
        self._tick()

    def handle_decl(self, decl: str) -> None:
        self._tick()

    handle_pi = unknown_decl = handle_comment

    def _say(self, data: str) -> None:
        if self._pre:
            first, *more = data.replace("\r\n", "\n").split("\n")
            self._current += first
            for line in more:
                self._break(keep=True)
                self._current = line
            return
        text = _BLANK.sub(" ", data)
        if not self._current or self._current.endswith(" "):
            text = text.lstrip(" ")
        self._current += text

    def _break(self, *, blank: bool = False, keep: bool = False) -> None:
        """End the line; with ``blank`` an empty one follows. In preformatted text empty lines are kept."""
        if self._current[self._link_from :].strip():
            self._end_link()
        self._link_from = 0
        line = self._current.rstrip()
        if line or keep:
            self._lines.append(self._prefix + line)
            self._prefix = ""
        self._current = ""
        if blank and self._lines and self._lines[-1]:
            self._lines.append("")

    def _end_link(self) -> None:
        """End a link: add its address after its text, unless it leads to this page or equals the text."""
        href, self._link = self._link, None
        if not href or href.startswith(("#", "javascript:", "data:")):
            return
        words = self._current[self._link_from :].strip()
        try:
            address = urljoin(self._base, href)
        except ValueError:
            return
        if words and address != words and len(address) <= 500:
            self._current = f"{self._current.rstrip()} ({address})"

    def _tick(self) -> None:
        if time.monotonic() > self._until:
            raise _TooSlow
