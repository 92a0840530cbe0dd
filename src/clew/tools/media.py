"""Descriptions of bytes that are not text: the detected type, the size, the digest. Never their content."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Final

__all__ = ["SNIFF_BYTES", "describe", "guess_type", "looks_binary"]

SNIFF_BYTES: Final = 8192


@cache
def _signatures() -> dict[bytes, str]:
    table = tomllib.loads(files(__package__).joinpath("media.toml").read_text("utf-8"))
    return {signature.encode("latin-1"): kind for signature, kind in table.items()}


def looks_binary(head: bytes) -> bool:
    """Return whether bytes are not text: they contain a NUL, or more than a tenth is not UTF-8."""
    head = head[:SNIFF_BYTES]
    if b"\x00" in head:
        return True
    text = head.decode("utf-8", "replace")
    return text.count("\ufffd") * 10 > len(text) + 30


def guess_type(head: bytes) -> str:
    """Return the type the first bytes indicate."""
    if head[:4] == b"RIFF":
        return {b"WEBP": "WebP image", b"WAVE": "WAV audio", b"AVI ": "AVI video"}.get(head[8:12], "RIFF data")
    if head[4:8] == b"ftyp":
        return "MP4 video or HEIF image"
    if head[257:262] == b"ustar":
        return "tar archive"
    return next((kind for signature, kind in _signatures().items() if head.startswith(signature)), "unknown type")


def describe(what: str, head: bytes, size: int, sha256: str | None) -> str:
    """Return a line that replaces bytes the model could not read."""
    type_ = guess_type(head)
    if pixels := _pixels(head):
        type_ += f", {pixels[0]} × {pixels[1]} pixels"
    digest = f"sha256 {sha256}" if sha256 else "too large for a digest"
    return f"{what}: {type_}, {size:,} bytes, {digest}; its content is not text and is not shown"


def _pixels(head: bytes) -> tuple[int, int] | None:
    if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR" and len(head) >= 24:
        return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
    if head[:4] == b"GIF8" and len(head) >= 10:
        return int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")
    # JPEG: find the frame header, if the bytes reach it; segments are skipped by their lengths.
    at = 2 if head[:3] == b"\xff\xd8\xff" else len(head)
    while at + 9 <= len(head) and head[at] == 0xFF:
        marker = head[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(head[at + 7 : at + 9], "big"), int.from_bytes(head[at + 5 : at + 7], "big")
        at += 2 + int.from_bytes(head[at + 2 : at + 4], "big")
    return None
