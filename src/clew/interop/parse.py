"""Reading a document that came from outside: untrusted until every check has passed."""

from __future__ import annotations

from typing import Final

from clew.errors import InvalidInput, UnsupportedValue
from clew.interop.document import SessionDocument
from clew.interop.json_form import parse_json
from clew.interop.jsonl_form import is_jsonl, parse_jsonl
from clew.interop.soundness import check_document

__all__ = ["MAX_DOCUMENT_BYTES", "parse_document"]

MAX_DOCUMENT_BYTES: Final = 256 * 1024 * 1024


def parse_document(data: bytes, *, max_bytes: int = MAX_DOCUMENT_BYTES) -> SessionDocument:
    """The document in these bytes, JSON or lines, sound in itself.

    Raises :class:`InvalidInput` or :class:`UnsupportedValue` with a sentence that names the place.
    """
    if len(data) > max_bytes:
        raise UnsupportedValue(f"the file is larger than {max_bytes} bytes")
    data = data.removeprefix(b"\xef\xbb\xbf")  # some editors begin a file with it
    if not data.lstrip()[:1] == b"{":
        # Said before anything is parsed: where a page is not JSON helps nobody who did not mean it to be.
        raise InvalidInput(
            "this is not a clew session: only exports as json or jsonl can be imported; md and html are for reading"
        )
    document = parse_jsonl(data.split(b"\n")) if is_jsonl(data) else parse_json(data)
    check_document(document)
    return document
