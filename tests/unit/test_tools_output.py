"""Output that is too long, or not text: its two ends, its size, its digest, and a file with the whole."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.tools.output import Spool, describe, guess_type, looks_binary

PNG = b"\x89PNG\r\n\x1a\n" + b"\x00\x00\x00\rIHDR" + (640).to_bytes(4, "big") + (480).to_bytes(4, "big")
JPEG = b"\xff\xd8\xff\xe0\x00\x10" + b"\x00" * 14 + b"\xff\xc0\x00\x11\x08" + (32).to_bytes(2, "big") + b"\x00\x40\x03"


def spooled(folder: Path, data: bytes, piece: int = 1 << 16, **limits: int) -> str:
    spool = Spool(folder / "spill", "out", **limits)
    for at in range(0, len(data), piece):
        spool.write(data[at : at + piece])
    return spool.finish()


def only_file(folder: Path) -> Path:
    (file,) = (folder / "spill").iterdir()
    return file


def test_short_output_is_handed_over_as_it_is(tmp_path: Path) -> None:
    """And no folder is made for it."""
    assert spooled(tmp_path, "één\r\ntwo\x1b[0m".encode()) == "één\r\ntwo\x1b[0m"
    assert not (tmp_path / "spill").exists()


@pytest.mark.parametrize("piece", [1, 7, 4096])
def test_long_output_keeps_its_ends_and_goes_to_a_file_whole(tmp_path: Path, piece: int) -> None:
    """The model is told where, how much, and the digest; only the owner may read it."""
    data = "".join(f"line {number} ü\n" for number in range(5_000)).encode()
    told = spooled(tmp_path / "data", data, piece, max_chars=100, note_chars=0)
    file = only_file(tmp_path / "data")
    assert file.read_bytes() == data
    # The folder above it holds the store, and may be made here.
    assert [oct(path.stat().st_mode & 0o777) for path in (file, *file.parents[:2])] == ["0o600", "0o700", "0o700"]
    text = data.decode()
    head, note, tail = re.fullmatch(r"(.*)\n\[… (.*) …\]\n(.*)", told, re.DOTALL).groups()  # type: ignore[union-attr]
    assert (head, tail) == (text[:50], text[-50:])
    left_out = len(data) - len(head.encode()) - len(tail.encode())
    digest = hashlib.sha256(data).hexdigest()
    assert note == (f"{left_out:,} of {len(data):,} bytes left out here, sha256 {digest}; all of it is in {file}")


def test_the_ends_and_the_note_are_within_the_limit_together(tmp_path: Path) -> None:
    """So that nobody further on cuts them again."""
    assert 29_000 < len(spooled(tmp_path, b"x" * 30_001)) <= 30_000
    assert len(spooled(tmp_path, b"x" * 1_000_000)) <= 30_000
    assert spooled(tmp_path, "漢".encode() * 30_000) == "漢" * 30_000


@given(text=st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=400), piece=st.integers(1, 50))
def test_no_character_is_cut_in_two(tmp_path_factory: pytest.TempPathFactory, text: str, piece: int) -> None:
    """Whatever the pieces and wherever the ends fall."""
    folder = tmp_path_factory.mktemp("spool")
    told = spooled(folder, text.encode(), piece, max_chars=20, note_chars=0)
    assert told.count("\ufffd") <= text.count("\ufffd")
    assert told == text if len(text) <= 20 else told.startswith(text[:10]) and told.endswith(text[-10:])


def test_the_file_has_a_cap_and_the_rest_is_counted(tmp_path: Path) -> None:
    """Endless output must not fill the disk."""
    told = spooled(tmp_path, b"x" * 10_000, max_chars=10, note_chars=0, max_spill_bytes=1_000)
    assert only_file(tmp_path).stat().st_size == 1_000
    assert told.splitlines()[1].startswith("[… 9,990 of 10,000 bytes left out here")
    assert told.splitlines()[1].endswith(f"; the first 1,000 bytes are in {only_file(tmp_path)} …]")


def test_a_file_that_cannot_be_written_is_said_so_and_the_ends_are_still_there(tmp_path: Path) -> None:
    """A full disk takes the middle, not the answer."""
    (tmp_path / "spill").write_text("in the way")
    told = spooled(tmp_path, b"a" * 5_000 + b"z" * 5_000, max_chars=10, note_chars=0)
    assert told.startswith("aaaaa\n")
    assert told.endswith("\nzzzzz")
    assert "the whole could not be stored: File exists" in told


def test_a_disk_that_fills_up_midway_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came after is counted all the same."""
    write, calls = os.write, []

    def filling(handle: int, data: bytes) -> int:
        calls.append(len(data))
        if len(calls) > 2:
            raise OSError(28, "No space left on device")
        return write(handle, data)

    monkeypatch.setattr(os, "write", filling)
    told = spooled(tmp_path, b"x" * 10_000, piece=1_000, max_chars=10, note_chars=0)
    assert "9,990 of 10,000 bytes left out here" in told
    assert "the whole could not be stored: No space left on device" in told


def test_output_that_is_not_text_is_described_and_put_beside(tmp_path: Path) -> None:
    """Never dumped into a conversation."""
    told = spooled(tmp_path, PNG)
    digest = hashlib.sha256(PNG).hexdigest()
    assert told == (
        f"[binary output: PNG image, 640 × 480 pixels, {len(PNG)} bytes, sha256 {digest}; "
        f"its content is not text and is not shown; all of it is in {only_file(tmp_path)}]"
    )
    assert only_file(tmp_path).read_bytes() == PNG


@pytest.mark.parametrize(
    ("head", "type_"),
    [
        (PNG, "PNG image"),
        (JPEG, "JPEG image"),
        (b"GIF89a\x01\x00\x01\x00", "GIF image"),
        (b"RIFF....WEBPVP8 ", "WebP image"),
        (b"%PDF-1.7", "PDF document"),
        (b"PK\x03\x04", "ZIP archive (or an office document, a wheel, a JAR)"),
        (b"\x1f\x8b\x08", "gzip data"),
        (b"\x7fELF\x02", "ELF program or library"),
        (b"SQLite format 3\x00", "SQLite database"),
        (b"\x00\x00\x00\x18ftypmp42", "MP4 video or HEIF image"),
        (b"\x00" * 257 + b"ustar", "tar archive"),
        (b"\xff\xfea\x00", "UTF-16 text"),
        (b"\x00\x01\x02", "unknown type"),
        (b"", "unknown type"),
    ],
)
def test_the_type_is_guessed_from_the_first_bytes(head: bytes, type_: str) -> None:
    """A guess, and said as one."""
    assert guess_type(head) == type_


def test_the_size_of_an_image_is_told() -> None:
    """It is often what the question is about."""
    assert ", 640 × 480 pixels," in describe("file", PNG, 9, "0")
    assert ", 64 × 32 pixels," in describe("file", JPEG, 9, "0")
    assert ", 7 × 5 pixels," in describe("file", b"GIF87a\x07\x00\x05\x00", 9, None)
    assert describe("file", JPEG[:8], 8, None).startswith("file: JPEG image, 8 bytes, too large for a digest")


@pytest.mark.parametrize(
    ("head", "binary"),
    [
        (b"", False),
        (b"plain", False),
        ("ünïcödé 漢字 😀".encode(), False),
        ("é".encode("latin-1") * 3 + b" mostly plain text", False),
        (b"a\x00b", True),
        (bytes(range(128, 256)) * 4, True),
        ("漢".encode() * 4000, False),
    ],
)
def test_text_is_told_from_bytes(head: bytes, binary: bool) -> None:
    """A few bytes that are not UTF-8 make no binary file; a NUL does."""
    assert looks_binary(head) is binary
