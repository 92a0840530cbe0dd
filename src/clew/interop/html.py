"""A session as one HTML file, for people. Inert: no script, nothing loaded from anywhere, everything escaped."""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any, Final

from clew.interop.export_sections import MARKS, Passage, about, left_out, passages_of, piece_of, shown_time
from clew.interop.markup import escape_text, render_markdown
from clew.transcript.part import blob_of, file_name_of, kind_of, media_type_of
from clew.transcript.portable import Blob, PortableSession

__all__ = ["POLICY", "format_html"]

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_MAX_PICTURE: Final = 4 * 1024 * 1024
_UNPRINTED: Final = re.compile("[^\\w .,:;!?'()+/-]")


@functools.cache
def _style() -> str:
    return resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")


def format_html(portable: PortableSession, *, hidden: bool = False) -> str:
    """The page; with ``hidden`` also what was rewound, summarised, refused or cancelled."""
    session = portable.session
    title = session.title or "Untitled session"
    told = about(portable)
    told.insert(3, session.id)
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
            f'<p class="about">{escape_text(" · ".join(told))}</p>\n',
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
            return f'<p class="about">Stands for what came before it.</p>\n{render_markdown(piece.text)}\n'
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
