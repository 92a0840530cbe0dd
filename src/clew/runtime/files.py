"""Files, between a message and a model: what their bytes are, and what a model is given of them.

What a file is, its bytes say: a name and a media type are claims. A text is given to every model as text, under the
file's name. What the model takes goes as bytes; in the place of anything else stands a line that says what is there,
so that no history can make a call fail. Only what is new is refused (:mod:`clew.runtime.admission`).
"""

from __future__ import annotations

import base64
import codecs
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from clew.errors import RowUndecodable
from clew.providers.base import ModelInfo
from clew.store.base import Store
from clew.transcript.message import Message
from clew.transcript.part import (
    MOST_GIVEN_TEXT,
    blob_of,
    bytes_in,
    file_name_of,
    first_words,
    giver_of,
    is_text_type,
    kind_of,
    media_type_of,
    stub_file,
    text_of,
    text_part,
    url_of,
)

__all__ = ["Content", "content_of", "holds_files", "with_files", "without_older_files"]

log = logging.getLogger("clew.files")

_CONTROL: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
"""What no text holds. Form feeds are in old sources, and escapes in what terminals were shown."""
_NAME_CHARS: Final = 200


class Content(msgspec.Struct, frozen=True):
    """What the bytes of a file are. ``text`` is what they say, where they are text; not ``whole``: they break off."""

    media_type: str
    text: str | None = None
    whole: bool = True


def content_of(data: bytes, claimed: str) -> Content:
    """What a file is by its bytes; the media type it was given counts only where they do not tell."""
    for beginning, media_type, is_whole in _KINDS:
        if beginning.match(data):
            return Content(media_type, whole=is_whole(data))
    text = _text_in(data, claimed)
    if text is None:
        # What calls itself something that has a beginning of its own, and has not, is something else.
        known = any(claimed == media_type for _, media_type, _ in _KINDS)
        return Content("application/octet-stream" if known else claimed)
    return Content(claimed if is_text_type(claimed) else "text/plain", text)


def _text_in(data: bytes, claimed: str) -> str | None:
    try:
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return data.decode("utf-16")
        return None if _CONTROL.search(data) else data.decode("utf-8-sig")
    except UnicodeDecodeError:
        # In an older encoding: whoever calls it text means it to be read, as far as it can be.
        return data.decode("utf-8", "replace") if is_text_type(claimed) and not _CONTROL.search(data) else None


def _is_whole_png(data: bytes) -> bool:
    at = 8
    while at + 12 <= len(data):
        if data[at + 4 : at + 8] == b"IEND":
            return True
        at += 12 + int.from_bytes(data[at : at + 4], "big")
    return False


_KINDS: Final[tuple[tuple[re.Pattern[bytes], str, Callable[[bytes], bool]], ...]] = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png", _is_whole_png),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg", lambda data: b"\xff\xd9" in data),
    # The end of the last block, and the trailer.
    (re.compile(rb"GIF8[79]a"), "image/gif", lambda data: b"\x00;" in data),
    (
        re.compile(rb"RIFF....WEBP", re.DOTALL),
        "image/webp",
        lambda data: int.from_bytes(data[4:8], "little") + 8 <= len(data),
    ),
    (re.compile(rb"%PDF-"), "application/pdf", lambda data: b"%%EOF" in data),
)
"""How what models take begins, and whether it is all there; one that is cut off fails the call that sends it."""


async def with_files(
    store: Store, messages: Iterable[Message], info: ModelInfo | None, owner: str | None
) -> list[Message]:
    """The messages as a model takes them: every file of a user's by value, as text, or named in a line; those that
    calls gave too, where a text is a file by value as well, so that it stays a part of its call's result.

    Of a session of ``owner``: that a message names a file makes it nobody's, since an import may name any.

    ``info`` None, for what is written about them or looked up in them: only a user's texts, others stay as they are.
    """
    asked = list(messages)
    if not any(map(holds_files, asked)):
        # As in most sessions, and a long one has many messages.
        return asked
    given: list[Message] = []
    for message in asked:
        if message.role == "user" and holds_files(message):
            parts = [
                await _given(store, part, info, owner) if kind_of(part) == "file" else part for part in message.parts
            ]
            message = msgspec.structs.replace(message, parts=parts)
        elif info is not None and holds_files(message):
            parts = [
                part if giver_of(part) is None else _as_file(part, await _given(store, part, info, owner))
                for part in message.parts
            ]
            message = msgspec.structs.replace(message, parts=parts)
        given.append(message)
    return given


def _as_file(part: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    text = text_of(given)
    if text is None:
        return given
    if len(text) > MOST_GIVEN_TEXT:
        text = f"{text[:MOST_GIVEN_TEXT]}\n[… the rest of the file is left out …]"
    return stub_file(part, text)


def holds_files(message: Message) -> bool:
    """Noted in the message: a line that is kept is sent with every step."""
    known: bool | None = message.memo.get("files")
    if known is None:
        known = message.memo["files"] = any(kind_of(part) == "file" for part in message.parts)
    return known


async def _given(store: Store, part: dict[str, Any], info: ModelInfo | None, owner: str | None) -> dict[str, Any]:
    digest = blob_of(part)
    data = bytes_in(url_of(part) or "") if digest is None else None
    if digest is not None:
        try:
            blob = await store.find_blob(digest, owner)
            data = blob.data if blob is not None else None
        except RowUndecodable as error:
            log.error("a file is not sent: %s (%s)", error, digest)
    claimed = media_type_of(part) or "application/octet-stream"
    name = first_words(file_name_of(part) or "", _NAME_CHARS)
    if data is None and digest is None:
        return text_part(f"[{name or 'a file'} ({claimed}) is not shown]")
    if data is None:
        name = name or f"a file of type {claimed}"
        return text_part(f"[{name} is missing or damaged where it is stored, and is left out.]")
    content = content_of(data, claimed)
    if content.text is not None:
        return text_part(f"[{name or 'a file'}]\n{content.text or '(the file is empty)'}")
    if info is None:
        return part
    if content.whole and info.takes(content.media_type):
        body = base64.b64encode(data).decode()
        return {**part, "mediaType": content.media_type, "url": f"data:{content.media_type};base64,{body}"}
    why = "this model does not take such files" if content.whole else "it breaks off before its end"
    return _line(name, content.media_type, len(data), why)


def _line(name: str, media_type: str, size: int, why: str) -> dict[str, Any]:
    return text_part(f"[{name or 'a file'} ({media_type}, {size:,} bytes) is attached here and not shown: {why}.]")


def without_older_files(messages: Sequence[Message]) -> list[Message] | None:
    """The messages with the files before the user's newest one named instead of sent, and those that calls gave, which
    nobody attached on purpose; None where there are none."""
    newest = max((n for n, message in enumerate(messages) if message.role == "user"), default=0)
    left = list(messages)
    older: list[int] = []
    for n, message in enumerate(messages):
        own = message.role == "user"
        if (own and n >= newest) or not any(
            kind_of(part) == "file" if own else _is_sent(part) for part in message.parts
        ):
            continue
        older.append(n)
        left[n] = msgspec.structs.replace(message, parts=[_refused(part) for part in message.parts])
    return left if older else None


def _is_sent(part: dict[str, Any]) -> bool:
    """Whether a call gave it, and its bytes are sent as they are."""
    return giver_of(part) is not None and media_type_of(part) != "text/plain"


def _refused(part: dict[str, Any]) -> dict[str, Any]:
    if kind_of(part) != "file":
        return part
    name = first_words(file_name_of(part) or "", _NAME_CHARS)
    size = len(bytes_in(url_of(part) or "") or b"")
    line = _line(name, media_type_of(part) or "unknown", size, "a request with it was refused")
    return line if giver_of(part) is None else _as_file(part, line) if _is_sent(part) else part
