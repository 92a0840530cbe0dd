"""Reading inside a folder: what leads out, blocks, or is no text is refused, and nothing is read past its limit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clew import safe_read
from clew.safe_read import ContainedText, FolderListing, Unreadable, list_contained, read_contained, shown


def refusal(path: Path, inside: Path, limit: int = 100) -> str:
    with pytest.raises(Unreadable) as caught:
        read_contained(path, inside, limit)
    return str(caught.value)


def test_a_file_is_read_with_plain_line_ends_and_without_a_mark_at_its_start(tmp_path: Path) -> None:
    """Whatever system wrote it."""
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree\n")
    assert read_contained(tmp_path / "a", tmp_path, 100) == ContainedText(
        "one\ntwo\nthree\n", 18, False, tmp_path / "a"
    )


def test_a_file_that_is_not_there_is_none(tmp_path: Path) -> None:
    """Nor is one below a file, or in a folder that is not there."""
    (tmp_path / "a").write_text("a")
    for path in (tmp_path / "b", tmp_path / "a" / "b", tmp_path / "c" / "d"):
        assert read_contained(path, tmp_path, 100) is None
    assert read_contained(tmp_path / "c" / "d", tmp_path / "c", 100) is None


def test_what_is_not_utf_8_is_replaced(tmp_path: Path) -> None:
    """A stray byte does not make a file useless."""
    (tmp_path / "a").write_bytes(b"caf\xe9 \xff")
    found = read_contained(tmp_path / "a", tmp_path, 100)
    assert found is not None
    assert found.text == "caf\ufffd \ufffd"


@pytest.mark.parametrize(("limit", "text"), [(4, "é€"[:1]), (5, "é€"), (6, "é€a"), (2, "é"), (1, "")])
def test_a_cut_never_leaves_half_a_character(tmp_path: Path, limit: int, text: str) -> None:
    """Two bytes, three bytes, one byte, one byte."""
    (tmp_path / "a").write_text("é€ab", encoding="utf-8")
    assert read_contained(tmp_path / "a", tmp_path, limit) == ContainedText(text, 7, True, tmp_path / "a")


def test_a_file_of_any_size_is_read_only_up_to_the_limit(tmp_path: Path) -> None:
    """A terabyte, most of it a hole."""
    with (tmp_path / "huge").open("wb") as file:
        file.write(b"x" * 1_000)
        file.truncate(1 << 40)
    assert read_contained(tmp_path / "huge", tmp_path, 999) == ContainedText(
        "x" * 999, 1 << 40, True, tmp_path / "huge"
    )


def test_links_inside_are_followed_and_links_out_are_not(tmp_path: Path) -> None:
    """Also over several steps, through a folder, and to a folder whose name begins the same."""
    root, other = tmp_path / "root", tmp_path / "rooted"
    for folder in (root / "deep", other):
        folder.mkdir(parents=True)
    (root / "deep" / "a").write_text("inside")
    (other / "a").write_text("outside")
    (root / "one").symlink_to("two")
    (root / "two").symlink_to("deep/a")
    (root / "out").symlink_to("../rooted/a")
    (root / "folder").symlink_to(other)
    found = read_contained(root / "one", root, 100)
    assert found == ContainedText("inside", 6, False, root / "deep" / "a")
    for path in (root / "out", root / "folder" / "a", root / ".." / "rooted" / "a"):
        assert refusal(path, root) == f"leads out of {root}"


def test_the_folder_itself_may_be_reached_by_a_link(tmp_path: Path) -> None:
    """A home folder often is."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a").write_text("a")
    (tmp_path / "link").symlink_to("real")
    found = read_contained(tmp_path / "link" / "a", tmp_path / "link", 100)
    assert found == ContainedText("a", 1, False, tmp_path / "real" / "a")


def test_only_text_in_regular_files_is_read(tmp_path: Path) -> None:
    """A pipe would wait for ever, a device has no end."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(b"MZ\x00")
    (tmp_path / "wide").write_text("text", encoding="utf-16")
    (tmp_path / "loose").symlink_to("gone")
    (tmp_path / "loop").symlink_to("loop")
    assert refusal(tmp_path / "pipe", tmp_path) == "is not a regular file"
    assert refusal(tmp_path / "folder", tmp_path) == "is not a regular file"
    assert refusal(tmp_path, tmp_path) == "is not a regular file"
    assert refusal(Path("/dev/zero"), Path("/dev")) == "is not a regular file"
    assert refusal(tmp_path / "binary", tmp_path) == "is not text; save it as UTF-8"
    assert refusal(tmp_path / "wide", tmp_path) == "is not text; save it as UTF-8"
    assert refusal(tmp_path / "loose", tmp_path) == "is a link that leads nowhere"
    assert refusal(tmp_path / "loop", tmp_path) == "cannot be read: Too many levels of symbolic links"
    assert refusal(tmp_path / ("n" * 300), tmp_path) == "cannot be read: File name too long"
    assert refusal(tmp_path / "a\x00b", tmp_path).startswith("cannot be read: ")


@pytest.mark.parametrize("swapped", ["file", "folder"])
def test_a_link_swapped_in_after_the_check_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swapped: str
) -> None:
    """The path was judged; between that and the opening somebody puts a link in its place."""
    root, secret = tmp_path / "root", tmp_path / "secret"
    for folder in (root / "folder", secret):
        folder.mkdir(parents=True)
        (folder / "a").write_text(folder.name)
    opened = safe_read._open

    def swap_then_open(base: Path, real: Path) -> int:
        (root / "folder" / "a").unlink()
        if swapped == "file":
            (root / "folder" / "a").symlink_to(secret / "a")
        else:
            (root / "folder").rmdir()
            (root / "folder").symlink_to(secret)
        return opened(base, real)

    monkeypatch.setattr(safe_read, "_open", swap_then_open)
    try:
        found = read_contained(root / "folder" / "a", root, 100)
    except Unreadable:
        found = None
    assert found is None


def test_every_descriptor_is_closed_again(tmp_path: Path) -> None:
    """Whatever the outcome was."""
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "a").write_text("a")
    (tmp_path / "b").write_bytes(b"\x00")
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(10):
        read_contained(tmp_path / "deep" / "er" / "a", tmp_path, 100)
        read_contained(tmp_path / "deep" / "er" / "gone", tmp_path, 100)
        refusal(tmp_path / "deep", tmp_path)
        refusal(tmp_path / "b", tmp_path)
    # What another test left open may be closed meanwhile.
    assert set(os.listdir("/proc/self/fd")) <= before


def test_a_listing_is_sorted_filtered_and_bounded(tmp_path: Path) -> None:
    """It says when there was more."""
    for name in ("c.md", "a.md", "b.txt", "b.md"):
        (tmp_path / name).write_text("")
    assert list_contained(tmp_path, tmp_path, 3, ".md") == FolderListing(tmp_path, ("a.md", "b.md", "c.md"), False)
    assert list_contained(tmp_path, tmp_path, 2, ".md") == FolderListing(tmp_path, ("a.md", "b.md"), True)
    assert list_contained(tmp_path / "gone", tmp_path, 2) == FolderListing(tmp_path / "gone", (), False)
    assert list_contained(tmp_path / "a.md", tmp_path, 2) == FolderListing(tmp_path / "a.md", (), False)
    with pytest.raises(Unreadable, match="leads out of"):
        list_contained(tmp_path / "..", tmp_path, 2)


def test_a_path_is_shown_without_what_a_terminal_would_act_on() -> None:
    """Escapes, line ends, marks of direction, bytes that are no text."""
    assert shown(Path("/a\x1b[2J\n\u202e\udcff/é")) == "/a\ufffd[2J\ufffd\ufffd\ufffd/é"
