"""The dimensions of an image, or the number of pages of a document, read from its bytes.

They are read once, when a file is stored. The bytes are untrusted: only a limited part is parsed, what makes no sense
is ignored, and pages are counted rather than taken from a declared number.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final

__all__ = ["extent_of"]

_PAGE: Final = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_MAX_STREAMS: Final = 2_000
_MAX_PACKED_BYTES: Final = 1 << 20
_MAX_UNPACKED_BYTES: Final = 16 << 20
"""Decompressed bytes of a document that are searched; a file of a megabyte can expand to a gigabyte."""
_MAX_SEGMENTS: Final = 1_000
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def extent_of(data: bytes, media_type: str) -> Mapping[str, int]:
    """Return ``width`` and ``height`` of an image in pixels, or ``pages`` of a PDF; empty if unknown."""
    if media_type == "application/pdf":
        pages = sum(1 for held in chain((data,), _packed_objects(data)) for _ in _PAGE.finditer(held))
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
        held = data[begin : end if end >= 0 else begin + _MAX_PACKED_BYTES].lstrip(b"\r\n")
        packed += len(held)
        try:
            whole = zlib.decompressobj().decompress(held, _MAX_PACKED_BYTES)
        except zlib.error:
            continue
        unpacked += len(whole)
        yield whole
