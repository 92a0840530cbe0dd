"""Files on their way from a message to a model: the form in which a model receives them.

Text is sent to every model as text, under the file's name. Other types are sent as bytes if the model accepts them, and
are otherwise replaced by a line that describes the file, so that no history can make a call fail. Only new files are
refused (:mod:`clew.session.prompt.admission`).
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from clew.errors import RowUndecodable
from clew.providers.base import ModelInfo
from clew.session.prompt.file_content import content_of
from clew.store.base import Store
from clew.transcript.message import Message
from clew.transcript.part import (
    MAX_GIVEN_TEXT,
    blob_of,
    bytes_in,
    file_name_of,
    first_words,
    giver_of,
    kind_of,
    media_type_of,
    stub_file,
    text_of,
    text_part,
    url_of,
)

__all__ = ["holds_files", "with_files", "without_older_files"]

log = logging.getLogger("clew.files")

_NAME_CHARS: Final = 200


async def with_files(
    store: Store, messages: Iterable[Message], info: ModelInfo | None, owner: str | None
) -> list[Message]:
    """Return the messages as a model receives them, with every file of a user by value, as text, or as a description.

    Files of tool calls are included the same way; their text stays a file part, which belongs to the call's result.

    Blobs must belong to ``owner``: a message that names a file grants no access, since an import may name any.

    With ``info`` None, for summaries and searches, only a user's text files are included; others stay as they are.
    """
    all_messages = list(messages)
    if not any(map(holds_files, all_messages)):
        # The common case, and a long session has many messages.
        return all_messages
    result: list[Message] = []
    for message in all_messages:
        if message.role == "user" and holds_files(message):
            parts = [
                await _to_sent_part(store, part, info, owner) if kind_of(part) == "file" else part
                for part in message.parts
            ]
            message = msgspec.structs.replace(message, parts=parts)
        elif info is not None and holds_files(message):
            parts = [
                part if giver_of(part) is None else _as_file(part, await _to_sent_part(store, part, info, owner))
                for part in message.parts
            ]
            message = msgspec.structs.replace(message, parts=parts)
        result.append(message)
    return result


def _as_file(part: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    text = text_of(result)
    if text is None:
        return result
    if len(text) > MAX_GIVEN_TEXT:
        text = f"{text[:MAX_GIVEN_TEXT]}\n[… the rest of the file is left out …]"
    return stub_file(part, text)


def holds_files(message: Message) -> bool:
    """Return whether a message has files; cached in it, as a cached line is sent with every step."""
    known: bool | None = message.memo.get("files")
    if known is None:
        known = message.memo["files"] = any(kind_of(part) == "file" for part in message.parts)
    return known


async def _to_sent_part(
    store: Store, part: dict[str, Any], info: ModelInfo | None, owner: str | None
) -> dict[str, Any]:
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
    return _description(name, content.media_type, len(data), why)


def _description(name: str, media_type: str, size: int, why: str) -> dict[str, Any]:
    return text_part(f"[{name or 'a file'} ({media_type}, {size:,} bytes) is attached here and not shown: {why}.]")


def without_older_files(messages: Sequence[Message]) -> list[Message] | None:
    """Return the messages with older files described instead of sent: those before the user's newest message, and
    those of tool calls, which the user did not attach. None if there are none."""
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
        left[n] = msgspec.structs.replace(message, parts=[_without_file(part) for part in message.parts])
    return left if older else None


def _is_sent(part: dict[str, Any]) -> bool:
    """Return whether the file came from a call and its bytes are sent."""
    return giver_of(part) is not None and media_type_of(part) != "text/plain"


def _without_file(part: dict[str, Any]) -> dict[str, Any]:
    if kind_of(part) != "file":
        return part
    name = first_words(file_name_of(part) or "", _NAME_CHARS)
    size = len(bytes_in(url_of(part) or "") or b"")
    description = _description(name, media_type_of(part) or "unknown", size, "a request with it was refused")
    return description if giver_of(part) is None else _as_file(part, description) if _is_sent(part) else part
