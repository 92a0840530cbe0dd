"""What bytes are, when they are not text: a guess at the type, the size, the digest. Never their content."""

from __future__ import annotations

from typing import Final

__all__ = ["SNIFF_BYTES", "describe", "guess_type", "looks_binary"]

SNIFF_BYTES: Final = 8192

_MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", "PNG image"),
    (b"GIF87a", "GIF image"),
    (b"GIF89a", "GIF image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"BM", "BMP image"),
    (b"II*\x00", "TIFF image"),
    (b"MM\x00*", "TIFF image"),
    (b"%PDF-", "PDF document"),
    (b"PK\x03\x04", "ZIP archive (or an office document, a wheel, a JAR)"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\x00", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"7z\xbc\xaf\x27\x1c", "7-Zip archive"),
    (b"\x7fELF", "ELF program or library"),
    (b"MZ", "Windows program or library"),
    (b"\xcf\xfa\xed\xfe", "Mach-O program or library"),
    (b"\xca\xfe\xba\xbe", "Java class or Mach-O program"),
    (b"SQLite format 3\x00", "SQLite database"),
    (b"OggS", "Ogg audio or video"),
    (b"fLaC", "FLAC audio"),
    (b"ID3", "MP3 audio"),
    (b"\x00asm", "WebAssembly module"),
    (b"wOFF", "font"),
    (b"wOF2", "font"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
)


def looks_binary(head: bytes) -> bool:
    """True for what would be noise as text: a NUL, or more than a tenth of it not UTF-8."""
    head = head[:SNIFF_BYTES]
    if b"\x00" in head:
        return True
    text = head.decode("utf-8", "replace")
    return text.count("\ufffd") * 10 > len(text) + 30


def guess_type(head: bytes) -> str:
    """What the first bytes say."""
    if head[:4] == b"RIFF":
        return {b"WEBP": "WebP image", b"WAVE": "WAV audio", b"AVI ": "AVI video"}.get(head[8:12], "RIFF data")
    if head[4:8] == b"ftyp":
        return "MP4 video or HEIF image"
    if head[257:262] == b"ustar":
        return "tar archive"
    return next((name for magic, name in _MAGIC if head.startswith(magic)), "unknown type")


def describe(what: str, head: bytes, size: int, sha256: str | None) -> str:
    """One line for the model in the place of bytes it could not read."""
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
    if head[:3] == b"\xff\xd8\xff":
        return _jpeg_pixels(head)
    return None


def _jpeg_pixels(head: bytes) -> tuple[int, int] | None:
    """The frame header, if it lies in the bytes at hand: segments are skipped by their lengths."""
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        marker = head[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(head[at + 7 : at + 9], "big"), int.from_bytes(head[at + 5 : at + 7], "big")
        at += 2 + int.from_bytes(head[at + 2 : at + 4], "big")
    return None
