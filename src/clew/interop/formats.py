"""Export formats by name. Secrets are redacted unless the caller turns that off."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from clew.interop import ExportFormat
from clew.interop.atif import format_atif
from clew.interop.canonical import format_canonical_json, format_canonical_jsonl, format_csv
from clew.interop.chat_messages import format_ai_sdk, format_openai
from clew.interop.html import format_html
from clew.interop.markdown import format_markdown
from clew.interop.programs.claude_code_file import format_claude_code
from clew.interop.programs.pi_file import format_pi
from clew.interop.redact import redact_session
from clew.interop.session_file import format_json, format_jsonl
from clew.transcript.portable import PortableSession

__all__ = ["FORMATS", "Format", "format_session"]


class Format(msgspec.Struct, frozen=True):
    """A format: its media type, file suffix and writer. The writer's flag says whether hidden messages are shown."""

    media_type: str
    suffix: str
    write: Callable[[PortableSession, bool], bytes]


FORMATS: Final[Mapping[ExportFormat, Format]] = {
    "json": Format("application/json", ".json", lambda portable, _: format_json(portable)),
    "jsonl": Format("application/x-ndjson", ".jsonl", lambda portable, _: format_jsonl(portable)),
    "md": Format(
        "text/markdown; charset=utf-8",
        ".md",
        lambda portable, hidden: format_markdown(portable, hidden=hidden).encode(),
    ),
    "html": Format(
        "text/html; charset=utf-8", ".html", lambda portable, hidden: format_html(portable, hidden=hidden).encode()
    ),
    "ai-sdk": Format(
        "application/json", ".ai-sdk.json", lambda portable, hidden: format_ai_sdk(portable, hidden=hidden)
    ),
    "openai": Format(
        "application/json", ".openai.json", lambda portable, hidden: format_openai(portable, hidden=hidden)
    ),
    "claude-code": Format(
        "application/x-ndjson", ".claude-code.jsonl", lambda portable, _: format_claude_code(portable)
    ),
    "pi": Format("application/x-ndjson", ".pi.jsonl", lambda portable, _: format_pi(portable)),
    "canonical-json": Format(
        "application/json", ".canonical.json", lambda portable, _: format_canonical_json(portable)
    ),
    "canonical-jsonl": Format(
        "application/x-ndjson", ".canonical.jsonl", lambda portable, _: format_canonical_jsonl(portable)
    ),
    "csv": Format("text/csv; charset=utf-8", ".csv", lambda portable, _: format_csv(portable)),
    "atif": Format("application/json", ".atif.json", lambda portable, hidden: format_atif(portable, hidden=hidden)),
}
"""JSON and JSON Lines contain the complete session and can be imported, as can the canonical forms, which have its rows
in the three shared tables; Markdown and HTML are for people, the rest for other programs."""


def format_session(
    portable: PortableSession,
    format: ExportFormat,
    *,
    redact: bool = True,
    secrets: Sequence[str] = (),
    hidden: bool = False,
    signers: Sequence[str] = ("anthropic",),
) -> bytes:
    """Return the session in that format. ``secrets`` are values to redact besides those known by their pattern;
    ``signers`` are the providers whose signed thoughts Anthropic's API accepts."""
    if redact:
        portable = redact_session(portable, secrets)
    if format == "claude-code":
        return format_claude_code(portable, signers)
    return FORMATS[format].write(portable, hidden)
