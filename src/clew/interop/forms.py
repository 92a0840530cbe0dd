"""The forms a session can be exported in, by name. Secrets are taken out unless somebody asks to keep them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from clew.interop.document import SessionDocument
from clew.interop.html import format_html
from clew.interop.json_form import format_json
from clew.interop.jsonl_form import format_jsonl
from clew.interop.markdown import format_markdown
from clew.interop.redact import redact_document

__all__ = ["FORMS", "Form", "FormName", "format_document"]

FormName = Literal["json", "jsonl", "md", "html"]


class Form(msgspec.Struct, frozen=True):
    """What a form is called elsewhere, and how it is written. The flag is whether hidden messages are shown."""

    media_type: str
    suffix: str
    write: Callable[[SessionDocument, bool], bytes]


FORMS: Final[Mapping[FormName, Form]] = {
    "json": Form("application/json", ".json", lambda document, _: format_json(document)),
    "jsonl": Form("application/x-ndjson", ".jsonl", lambda document, _: format_jsonl(document)),
    "md": Form(
        "text/markdown; charset=utf-8",
        ".md",
        lambda document, hidden: format_markdown(document, hidden=hidden).encode(),
    ),
    "html": Form(
        "text/html; charset=utf-8",
        ".html",
        lambda document, hidden: format_html(document, hidden=hidden).encode(),
    ),
}
"""JSON and lines carry the whole session and can be imported; the others are for people."""


def format_document(
    document: SessionDocument,
    form: FormName,
    *,
    redact: bool = True,
    secrets: Sequence[str] = (),
    hidden: bool = False,
) -> bytes:
    """The document in that form. ``secrets`` are values to take out beside those that are known by their shape."""
    if redact:
        document = redact_document(document, secrets)
    return FORMS[form].write(document, hidden)
