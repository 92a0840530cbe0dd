"""A session as one HTML file, for people. Inert: no script, nothing loaded from anywhere, everything escaped."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from clew.interop.markup import escape_text, render_markdown
from clew.interop.passages import (
    MARKS,
    Passage,
    ToolUse,
    damage_of,
    left_out,
    passages_of,
    shown_json,
    shown_time,
    tool_use,
)
from clew.transcript.part import (
    COMPACTION_PART,
    STEP_START,
    blob_of,
    data_of,
    file_name_of,
    kind_of,
    media_type_of,
    text_of,
)
from clew.transcript.portable import Blob, PortableSession

__all__ = ["POLICY", "format_html"]

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_MAX_PICTURE: Final = 4 * 1024 * 1024
_UNPRINTED: Final = re.compile("[^\\w .,:;!?'()+/-]")
_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2129; --soft: #5b6472; --page: #fbfaf8; --card: #fff; --line: #e3e0da;
  --user: #eef3fb; --code: #f3f1ec; --link: #1a56b0; --mark: #9a5b00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e6e3; --soft: #a0a7b3; --page: #16181c; --card: #1d2025;
  --line: #33373f; --user: #1e2836; --code: #14161a; --link: #8ab4f8; --mark: #e0a44c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); overflow-wrap: anywhere;
  font: 16px/1.6 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
header, main, footer { max-width: 48rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .5rem 0; }
h2 { font-size: .8rem; font-weight: 600; letter-spacing: .04em; color: var(--soft); margin: 2rem 0 .5rem; }
h3 { font-size: .8rem; margin: 0 0 .25rem; color: var(--soft); }
h4, h5, h6 { font-size: 1rem; margin: 1rem 0 .25rem; }
.about, footer { color: var(--soft); font-size: .85rem; }
article { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .75rem 1rem;
  margin: .6rem 0; }
article.user { background: var(--user); }
article.summary { border-style: dashed; }
article.off { opacity: .72; }
.mark { color: var(--mark); font-weight: 600; }
p, ul, ol, blockquote { margin: .5rem 0; }
blockquote { border-inline-start: 3px solid var(--line); padding-inline-start: .75rem; color: var(--soft); }
pre { background: var(--code); border-radius: .4rem; padding: .6rem .75rem; overflow-x: auto; margin: .5rem 0;
  white-space: pre-wrap; font: .85rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: .9em; }
:not(pre) > code { background: var(--code); border-radius: .25rem; padding: .1em .3em; }
table { border-collapse: collapse; margin: .5rem 0; display: block; overflow-x: auto; }
th, td { border: 1px solid var(--line); padding: .25rem .6rem; text-align: start; }
details { border: 1px solid var(--line); border-radius: .4rem; padding: .4rem .75rem; margin: .5rem 0; }
summary { cursor: pointer; color: var(--soft); font-size: .9rem; }
a { color: var(--link); }
img { max-width: 100%; height: auto; border-radius: .4rem; }
.unseen { background: var(--mark); color: var(--page); border-radius: .2rem; padding: 0 .2em; font-size: .75em; }
p, li, h1, h4, h5, h6, pre, code, a { unicode-bidi: isolate; }
@media print { details { border: 0; } article { break-inside: avoid; } }
"""


def format_html(portable: PortableSession, *, hidden: bool = False) -> str:
    """The page; with ``hidden`` also what was rewound, summarised, refused or cancelled."""
    session = portable.session
    title = session.title or "Untitled session"
    about = [str(session.model), session.agent, shown_time(session.created_at), session.id]
    if portable.redacted:
        about.append(f"{portable.redacted} redacted")
    passages = passages_of(portable, hidden=hidden)
    missing = left_out(portable, passages)
    blobs = {blob.sha256: blob for blob in portable.blobs}
    return "".join(
        (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="referrer" content="no-referrer">\n',
            f"<title>{_UNPRINTED.sub(' ', title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n",
            f'<header>\n<h1 dir="auto">{escape_text(title)}</h1>\n',
            f'<p class="about">{escape_text(" · ".join(about))}</p>\n',
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
        who = "Summary" if passage.is_summary else row.role.capitalize()
        classes = [row.role, *(["summary"] if passage.is_summary else []), *(["off"] if passage.mark else [])]
        mark = f' <span class="mark">{MARKS[passage.mark]}</span>' if passage.mark is not None else ""
        yield f'<article class="{" ".join(classes)}">\n<h3>{who} · {shown_time(row.created_at)}{mark}</h3>\n'
        if damage := damage_of(row):
            yield f'<p class="mark">Damaged: {escape_text(damage)}</p>\n'
        for part in row.parts:
            yield _part(part.data, blobs)
        yield "</article>\n"


def _part(data: dict[str, Any], blobs: Mapping[str, Blob]) -> str:
    kind, text = kind_of(data), text_of(data, "text", "reasoning")
    called = tool_use(data)
    if called is not None:
        return _tool(called)
    if kind == "text" and text is not None:
        return render_markdown(text) + "\n"
    if kind == "reasoning" and text is not None:
        return _folded("Reasoning", render_markdown(text)) if text else ""
    if kind == STEP_START:
        return ""
    if kind == "file":
        return _file(data, blobs)
    summary = (data_of(data, COMPACTION_PART) or {}).get("summary")
    if isinstance(summary, str):
        return f'<p class="about">Stands for what came before it.</p>\n{render_markdown(summary)}\n'
    return _folded(str(kind), _verbatim(shown_json(data)))


def _tool(called: ToolUse) -> str:
    body = f"<h3>Input</h3>{_verbatim(called.input)}"
    if called.output is not None:
        body += f"<h3>Output</h3>{_verbatim(called.output)}"
    if called.error is not None:
        body += f"<h3>Error</h3>{_verbatim(called.error)}"
    return _folded(f"{called.name} · {called.state}", body)


def _file(data: dict[str, Any], blobs: Mapping[str, Blob]) -> str:
    name = str(file_name_of(data) or media_type_of(data) or "file")
    blob = blobs.get(blob_of(data) or "")
    if blob is None or blob.media_type.lower() not in _PICTURES or len(blob.data) > _MAX_PICTURE:
        return f'<p class="about">Attached: {escape_text(name)}</p>\n'
    body = base64.b64encode(blob.data).decode()
    alt = _UNPRINTED.sub(" ", name)
    return f'<p><img src="data:{blob.media_type.lower()};base64,{body}" alt="{alt}"></p>\n'


def _folded(summary: str, body: str) -> str:
    return f"<details>\n<summary>{escape_text(summary[:300])}</summary>\n{body}\n</details>\n"


def _verbatim(text: str) -> str:
    return f'<pre dir="auto">{escape_text(text)}</pre>'
