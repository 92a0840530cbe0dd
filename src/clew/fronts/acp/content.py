"""Conversion between the protocol's content blocks and the parts of clew's messages."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Sequence
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from clew.errors import InvalidInput
from clew.fronts.acp.params import AudioBlock, Block, ImageBlock, LinkBlock, ResourceBlock, TextBlock
from clew.interop.export_sections import piece_of
from clew.transcript import part as p

__all__ = ["FindBlob", "blocks_of", "parts_of", "text_block"]

FindBlob = Callable[[str], Awaitable[bytes | None]]
"""Returns the bytes of a stored file by their sha256; None if there are none."""
_MAX_NAME: Final = 200


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def parts_of(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    """Return the parts of a prompt. Adjacent texts and links become one text, as they were typed."""
    parts: list[dict[str, Any]] = []
    for block in blocks:
        match block:
            case TextBlock(text):
                added = text
            case LinkBlock(name, uri):
                added = f"[{name}]({uri})"
            case ImageBlock(data, media_type, uri):
                parts.append(_file(media_type, data, uri))
                continue
            case ResourceBlock(resource):
                if resource.text is not None:
                    data = base64.b64encode(resource.text.encode()).decode()
                elif resource.blob is not None:
                    data = resource.blob
                else:
                    raise InvalidInput(f"the resource {resource.uri[:200]!r} has neither text nor blob")
                default = "application/octet-stream" if resource.text is None else "text/plain"
                parts.append(_file(resource.mime_type or default, data, resource.uri))
                continue
            case AudioBlock():
                raise InvalidInput("audio is not supported (see promptCapabilities)")
            case _:
                raise InvalidInput("this kind of content is not supported (see promptCapabilities)")
        if parts and (before := p.text_of(parts[-1])) is not None:
            parts[-1] = p.text_part(before + added)
        else:
            parts.append(p.text_part(added))
    return parts


def _file(media_type: str, data: str, uri: str | None) -> dict[str, Any]:
    part = {"type": "file", "mediaType": media_type, "url": f"data:{media_type};base64,{data}"}
    try:
        name = unquote(PurePosixPath(urlsplit(uri or "").path).name)[:_MAX_NAME]
    except ValueError:
        name = ""  # not a valid address; the data is here anyway
    return {**part, "filename": name} if name else part


async def blocks_of(part: p.Part, find_blob: FindBlob) -> list[dict[str, Any]]:
    """Return the blocks of a part; none for a part without visible content and for calls."""
    kind, text = p.kind_of(part), p.text_of(part, "text", "reasoning")
    if text is not None:
        return [text_block(text)] if text and not p.is_notice(part) else []
    if p.is_call(part) or kind in p.UNSEEN:
        return []
    if kind == "file":
        return [await _shown_file(part, find_blob)]
    if kind == "source-url" and (url := p.url_of(part)) is not None:
        return [{"type": "resource_link", "name": p.name_of(part) or url, "uri": url}]
    piece = piece_of(dict(part))
    shown = "" if piece is None else "\n".join(filter(None, [piece.title, piece.text, *(b.text for b in piece.blocks)]))
    return [text_block(shown)] if shown else []


async def _shown_file(part: p.Part, find_blob: FindBlob) -> dict[str, Any]:
    sha256, name = p.blob_of(part), p.name_of(part) or "a file"
    media_type = p.media_type_of(part) or "application/octet-stream"
    data = await find_blob(sha256) if sha256 is not None else p.bytes_in(p.url_of(part) or "")
    if data is None:
        return text_block(f"[{name}, {media_type}]")
    if media_type.startswith("image/"):
        return {"type": "image", "mimeType": media_type, "data": base64.b64encode(data).decode()}
    resource: dict[str, Any] = {"uri": f"attachment:{quote(name)}", "mimeType": media_type}
    if p.is_text_type(media_type):
        return {"type": "resource", "resource": {**resource, "text": data.decode(errors="replace")}}
    return {"type": "resource", "resource": {**resource, "blob": base64.b64encode(data).decode()}}
