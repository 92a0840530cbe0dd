"""Export as Markdown, for people. Contents of a session cannot break out of their section.

Texts are Markdown themselves and stay so, with raw HTML escaped and open fences closed; a text with ambiguous fences is
shown unchanged inside a fence. Everything else is inside a fence longer than any in it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any, Final

from clew.interop.export_sections import MARKS, Passage, about, left_out, passages_of, piece_of
from clew.interop.html import INVISIBLE
from clew.transcript.part import file_name_of, kind_of, media_type_of, url_of
from clew.transcript.portable import PortableSession

__all__ = ["contained", "fenced", "format_markdown"]

_FENCE: Final = re.compile(r"(`{3,}|~{3,})(.*)")
_ODD_FENCE: Final = re.compile(r"[\s>*+\-\d.)]+(?:`{3}|~{3})")
_TAG: Final = re.compile(r"<(?=[A-Za-z/!?])")
_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>#~|!&])")


def format_markdown(portable: PortableSession, *, hidden: bool = False) -> str:
    """Return the conversation; with ``hidden`` also messages that were rewound, summarised, refused or cancelled."""
    title = portable.session.title or "Untitled session"
    blocks = [f"# {_plain(title)}", _plain(" · ".join(about(portable)))]
    passages = passages_of(portable, hidden=hidden)
    if missing := left_out(portable, passages):
        blocks.append(f"*{missing}*")
    turn = 0
    for passage in passages:
        if passage.turn != turn:
            turn = passage.turn
            blocks.append(f"## Turn {turn}")
        blocks += _message(passage)
    # Control characters must not reach a terminal.
    return INVISIBLE.sub(lambda found: f"U+{ord(found[0]):04X}", "\n\n".join(blocks)) + "\n"


def _message(passage: Passage) -> Iterator[str]:
    mark = f" ({MARKS[passage.mark]})" if passage.mark is not None else ""
    yield f"### {passage.who}{mark}"
    if passage.damage:
        yield f"**Damaged: {_plain(passage.damage)}**"
    for part in passage.row.parts:
        block = _part(part.data)
        if block:
            yield block


def _part(data: dict[str, Any]) -> str:
    if kind_of(data) == "file":
        return f"Attached: {_plain(file_name_of(data) or url_of(data))} ({_plain(media_type_of(data))})"
    piece = piece_of(data)
    if piece is None:
        return ""
    match piece.kind:
        case "text":
            return contained(piece.text)
        case "reasoning":
            return _folded("Reasoning", fenced(piece.text))
        case "summary":
            return f"*Replaces the messages before it.*\n\n{contained(piece.text)}"
        case _:
            title = f"Tool: {piece.title}" if piece.kind == "call" else piece.title
            titles = (f"{block.title}:\n\n" if block.title else "" for block in piece.blocks)
            bodies = (fenced(block.text, block.language) for block in piece.blocks)
            return _folded(title, "\n\n".join(map("".join, zip(titles, bodies, strict=True))))


def _folded(summary: str, body: str) -> str:
    title = html.escape(" ".join(summary.split()))[:300]
    return f"<details>\n<summary>{title}</summary>\n\n{body}\n\n</details>"


def fenced(text: str, language: str = "text") -> str:
    """Return the text unchanged, in a fence that nothing in it can close."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def contained(text: str) -> str:
    """Return Markdown that cannot affect the text around it: no raw HTML outside of code, no open fence."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if any(_ODD_FENCE.match(line) for line in lines):
        # Inside a list or a quote a fence ends where the list does, which is not parsed here.
        return fenced(text)
    shown: list[str] = []
    loose: list[str] = []
    fence: str | None = None
    for line in lines:
        found = _FENCE.match(line)
        if fence is not None:
            shown.append(line)
            if found and found[1].startswith(fence) and not found[2].strip():
                fence = None
        elif found and not (found[1][0] == "`" and "`" in found[2]):
            shown += _escaped(loose)
            loose, fence = [], found[1]
            shown.append(line)
        else:
            loose.append(line)
    shown += _escaped(loose)
    if fence is not None:
        shown.append(fence)
    return "\n".join(shown).strip("\n")


def _escaped(lines: list[str]) -> list[str]:
    """Escape raw HTML in lines outside of fences. Code in backticks is unchanged if its ends are unambiguous."""
    spans = [_spans(line) for line in lines]
    sure = [found for found in spans if found is not None]
    if len(sure) < len(lines):
        return [_TAG.sub("&lt;", line) for line in lines]
    return ["".join(_pieces(line, found)) for line, found in zip(lines, sure, strict=True)]


def _pieces(line: str, spans: list[tuple[int, int]]) -> Iterator[str]:
    at = 0
    for start, end in spans:
        yield _TAG.sub("&lt;", line[at:start])
        yield line[start:end]
        at = end
    yield _TAG.sub("&lt;", line[at:])


def _spans(line: str) -> list[tuple[int, int]] | None:
    """Return the ranges of code in a line; None if its backticks are not paired or are escaped."""
    if "\\`" in line:
        return None
    runs = [found.span() for found in re.finditer("`+", line)]
    spans: list[tuple[int, int]] = []
    at = 0
    while at < len(runs):
        start, end = runs[at]
        partner = next((n for n in range(at + 1, len(runs)) if runs[n][1] - runs[n][0] == end - start), None)
        if partner is None:
            return None
        spans.append((start, runs[partner][1]))
        at = partner + 1
    return spans


def _plain(value: object) -> str:
    """Return a short text as one line, with all Markdown characters escaped."""
    return _SPECIAL.sub(r"\\\1", " ".join(str(value).split()))[:1000]
