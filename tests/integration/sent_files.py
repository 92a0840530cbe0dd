"""Files as people send them, and what of them arrives at a model."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

__all__ = ["GIF", "JPEG", "MP3", "PDF", "PNG", "WEBP", "ZIP", "file_part"]


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


PNG = (
    b"\x89PNG\r\n\x1a\n"
    + _chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    + _chunk(b"IDAT", zlib.compress(b"\x00\xff\x00\x00"))
    + _chunk(b"IEND", b"")
)
JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01" + bytes(40) + b"\xff\xd9"
GIF = b"GIF89a\x01\x00\x01\x00\x80\x00\x00" + bytes(6) + b",\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"
WEBP = b"RIFF" + (22).to_bytes(4, "little") + b"WEBPVP8L" + bytes(14)
PDF = b"%PDF-1.7\n1 0 obj << >> endobj\nstartxref\n0\n%%EOF\n"
MP3 = b"ID3\x04\x00\x00" + bytes(30) + b"\xff\xfb\x90"
ZIP = b"PK\x03\x04\x14\x00" + bytes(60)


def file_part(data: bytes, media_type: object = "application/octet-stream", name: str | None = None) -> dict[str, Any]:
    """A file as a client sends it; nothing it says about itself has to be true."""
    url = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
    return {"type": "file", "mediaType": media_type, "url": url} | ({} if name is None else {"filename": name})
