"""Files in a model's view: stored messages name blobs, a provider is given their bytes."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from clew.store.base import Store
from clew.transcript.message import Message

__all__ = ["with_files"]

_BLOB: Final = "/api/blobs/"


async def with_files(store: Store, messages: Sequence[Message]) -> list[Message]:
    """The messages with every file part that names a blob given as a ``data:`` URL. A blob that is gone stays named."""
    given: list[Message] = []
    for message in messages:
        if any(_digest(part) for part in message.parts):
            parts = [await _inlined(store, part) for part in message.parts]
            message = msgspec.structs.replace(message, parts=parts)
        given.append(message)
    return given


def _digest(part: dict[str, Any]) -> str | None:
    url = part.get("url")
    if part.get("type") != "file" or not isinstance(url, str) or not url.startswith(_BLOB):
        return None
    return url.removeprefix(_BLOB)


async def _inlined(store: Store, part: dict[str, Any]) -> dict[str, Any]:
    digest = _digest(part)
    blob = await store.find_blob(digest) if digest is not None else None
    if blob is None:
        return part
    body = base64.b64encode(blob.data).decode()
    return {**part, "url": f"data:{blob.media_type};base64,{body}"}
