"""The content of a file, read from its bytes: its media type, its text, and its dimensions or number of pages.

Names and declared media types are only claims. The bytes are untrusted, too: only a limited part is parsed, what makes
no sense is ignored, and pages are counted rather than taken from a declared number.
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Final

import msgspec

from clew.transcript.part import is_text_type

__all__ = ["Content", "content_of", "extent_of"]

_CONTROL: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
"""Bytes that text does not contain. Form feeds occur in old sources, escapes in terminal output."""
_PAGE: Final = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_MAX_STREAMS: Final = 2_000
_MAX_PACKED_BYTES: Final = 1 << 20
_MAX_UNPACKED_BYTES: Final = 16 << 20
"""Decompressed bytes of a document that are searched; a file of a megabyte can expand to a gigabyte."""
_MAX_SEGMENTS: Final = 1_000
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


class Content(msgspec.Struct, frozen=True):
    """The detected content of a file. ``text`` is its text, if it is text; not ``whole`` means truncated."""

    media_type: str
    text: str | None = None
    whole: bool = True


def content_of(data: bytes, claimed: str) -> Content:
    """Return the detected content of a file; the claimed media type counts only where its bytes are ambiguous."""
    for beginning, media_type, is_whole in _KINDS:
        if beginning.match(data):
            return Content(media_type, whole=is_whole(data))
    text = _text_in(data, claimed)
    if text is None:
        # The claimed type has a signature that the bytes lack, so they are something else.
        known = any(claimed == media_type for _, media_type, _ in _KINDS)
        return Content("application/octet-stream" if known else claimed)
    return Content(claimed if is_text_type(claimed) else "text/plain", text)


def _text_in(data: bytes, claimed: str) -> str | None:
    try:
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return data.decode("utf-16")
        return None if _CONTROL.search(data) else data.decode("utf-8-sig")
    except UnicodeDecodeError:
        # An older encoding: a file claimed to be text is decoded as far as possible.
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
    # The end of the last block, then the trailer.
    (re.compile(rb"GIF8[79]a"), "image/gif", lambda data: b"\x00;" in data),
    (
        re.compile(rb"RIFF....WEBP", re.DOTALL),
        "image/webp",
        lambda data: int.from_bytes(data[4:8], "little") + 8 <= len(data),
    ),
    (re.compile(rb"%PDF-"), "application/pdf", lambda data: b"%%EOF" in data),
)
"""Signatures of the types that models accept, with a check for truncation: a truncated file would fail the call."""


def extent_of(data: bytes, media_type: str) -> Mapping[str, int]:
    """Return ``width`` and ``height`` of an image in pixels, or ``pages`` of a PDF; empty if unknown."""
    if media_type == "application/pdf":
        pages = sum(1 for text in chain((data,), _packed_objects(data)) for _ in _PAGE.finditer(text))
        return {"pages": pages} if pages else {}
    width = height = 0
    match media_type:
        case "image/png" if data[12:16] == b"IHDR":
            width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
        case "image/gif":
            width, height = int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
        case "image/jpeg":
            width, height = _jpeg(data)
        case "image/webp":
            width, height = _webp(data)
    return {"width": width, "height": height} if width and height else {}


def _jpeg(data: bytes) -> tuple[int, int]:
    at = 2
    for _ in range(_MAX_SEGMENTS):
        if at + 9 > len(data) or data[at] != 0xFF:
            break
        kind = data[at + 1]
        if kind in _FRAMES:
            return int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(data[at + 5 : at + 7], "big")
        # Fill bytes may precede a marker; some markers have no length.
        alone = kind == 0x01 or 0xD0 <= kind <= 0xD8
        at += 1 if kind == 0xFF else 2 if alone else 2 + max(int.from_bytes(data[at + 2 : at + 4], "big"), 2)
    return 0, 0


def _webp(data: bytes) -> tuple[int, int]:
    match data[12:16]:
        case b"VP8X":
            return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
        case b"VP8L" if data[20:21] == b"\x2f":
            bits = int.from_bytes(data[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 " if data[23:26] == b"\x9d\x01\x2a":
            return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF
    return 0, 0


def _packed_objects(data: bytes) -> Iterator[bytes]:
    """Yield the decompressed object streams of a PDF, where most files have their pages."""
    at, packed, unpacked = 0, 0, 0
    for _ in range(_MAX_STREAMS):
        at = data.find(b"/ObjStm", at) + 7
        begin = data.find(b"stream", at, at + 1_000) + 6
        if at < 7 or packed > _MAX_UNPACKED_BYTES or unpacked > _MAX_UNPACKED_BYTES:
            return
        if begin < 6:
            continue
        end = data.find(b"endstream", begin, begin + _MAX_PACKED_BYTES)
        stream = data[begin : end if end >= 0 else begin + _MAX_PACKED_BYTES].lstrip(b"\r\n")
        packed += len(stream)
        try:
            unpacked_stream = zlib.decompressobj().decompress(stream, _MAX_PACKED_BYTES)
        except zlib.error:
            continue
        unpacked += len(unpacked_stream)
        yield unpacked_stream
