"""Files in a model's view: stored messages name blobs, a provider is given their bytes."""

from __future__ import annotations

import base64
import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from clew.errors import RowUndecodable
from clew.store.base import Store
from clew.transcript.message import Message
from clew.transcript.part import blob_of, file_name_of, media_type_of, text_part

__all__ = ["with_files"]

log = logging.getLogger("clew.files")


async def with_files(store: Store, messages: Sequence[Message]) -> list[Message]:
    """The messages with every file part that names a blob given as a ``data:`` URL.

    In the place of a blob that is gone, or damaged, a text says so.
    """
    given: list[Message] = []
    for message in messages:
        if any(blob_of(part) for part in message.parts):
            parts = [await _inlined(store, part) for part in message.parts]
            message = msgspec.structs.replace(message, parts=parts)
        given.append(message)
    return given


async def _inlined(store: Store, part: dict[str, Any]) -> dict[str, Any]:
    digest = blob_of(part)
    if digest is None:
        return part
    try:
        blob = await store.find_blob(digest)
    except RowUndecodable as error:
        log.error("a file is not sent: %s (%s)", error, digest)
        blob = None
    if blob is None:
        name = file_name_of(part) or f"a file of type {media_type_of(part)}"
        return text_part(f"[{name} is missing or damaged where it is stored, and is left out.]")
    body = base64.b64encode(blob.data).decode()
    return {**part, "url": f"data:{blob.media_type};base64,{body}"}
