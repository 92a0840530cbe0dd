"""read, write, edit, ls and glob on real files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from clew.errors import ToolFailed
from clew.tools.base import MAX_OUTPUT_CHARS, Signal, Tool
from clew.tools.builtin.edit import edit
from clew.tools.builtin.glob import glob
from clew.tools.builtin.ls import ls
from clew.tools.builtin.read import read
from clew.tools.builtin.write import write
from tests.unit.test_tools_support import call, context_of


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "key").write_text("secret\n")
    return tmp_path / "work"


# read


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"one\ntwo\n", "one\ntwo\n"),
        (b"no end", "no end"),
        (b"\n\n", "\n\n"),
        (b"", "[the file is empty]"),
        (b"a\r\nb\r\n", "a\nb\n"),
        ("\ufeffwith a mark\n".encode(), "with a mark\n"),
        ("漢字 😀\n".encode(), "漢字 😀\n"),
        (b"caf\xe9 au lait\n", "caf\ufffd au lait\n[what is not valid UTF-8 is shown as \ufffd]"),
        (b"\x1b[31mred\n", "\x1b[31mred\n"),
        (b"x" * 2_000 + b"\n", "x" * 2_000 + "\n"),
        (b"x" * 2_001 + b"\nnext", "x" * 2_000 + "…\nnext\n[1 line cut at 2,000 characters]"),
    ],
)
async def test_a_text_file_is_read_as_it_is(content: bytes, text: str, workspace: Path) -> None:
    """What was left out or changed is said in one last line."""
    (workspace / "file").write_bytes(content)
    assert await call(read, {"path": "file"}, workspace) == text


async def test_a_long_file_comes_in_pages_that_join_to_the_whole(workspace: Path) -> None:
    """Each page says where the next one begins."""
    lines = [f"line {number}\n" for number in range(1, 4_501)]
    (workspace / "long").write_text("".join(lines))
    first = await call(read, {"path": "long"}, workspace)
    assert first == "".join(lines[:2_000]) + "[lines 1 to 2,000 of 4,500; go on with offset 2001]"
    second = await call(read, {"path": "long", "offset": 2_001}, workspace)
    assert second == "".join(lines[2_000:4_000]) + "[lines 2,001 to 4,000 of 4,500; go on with offset 4001]"
    last = await call(read, {"path": "long", "offset": 4_001}, workspace)
    assert last == "".join(lines[4_000:]) + "[lines 4,001 to 4,500, the last one]"
    few = await call(read, {"path": "long", "offset": 10, "limit": 2}, workspace)
    assert few == "line 10\nline 11\n[lines 10 to 11 of 4,500; go on with offset 12]"
    beyond = await call(read, {"path": "long", "offset": 9_999}, workspace)
    assert beyond == "[nothing to show: the file has 4,500 lines]"
    exact = await call(read, {"path": "long", "offset": 4_499, "limit": 2}, workspace)
    assert exact == "line 4499\nline 4500\n[lines 4,499 to 4,500, the last one]"


async def test_a_page_also_ends_where_the_output_would_grow_too_long(workspace: Path) -> None:
    """Wide lines make short pages; nothing is copied elsewhere, the file is there."""
    (workspace / "wide").write_text(("x" * 999 + "\n") * 100)
    page = await call(read, {"path": "wide"}, workspace)
    assert page.endswith("\n[lines 1 to 29 of 100; go on with offset 30]")
    assert len(page) <= MAX_OUTPUT_CHARS
    assert not (workspace.parent / "spill").exists()


async def test_one_endless_line_is_cut_and_costs_no_memory(workspace: Path) -> None:
    """A file without line ends is one line, not one string."""
    with (workspace / "flat").open("wb") as file:
        for _ in range(30):
            file.write(b"x" * 1_000_000)
    assert await call(read, {"path": "flat"}, workspace) == ("x" * 2_000 + "…\n[1 line cut at 2,000 characters]")


@pytest.mark.parametrize(
    ("content", "type_"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x02\x00\x00\x00\x03", "PNG image, 2 × 3 pixels"),
        (b"\x7fELF\x00" + bytes(range(256)) * 100, "ELF program or library"),
        (b"abc\x00def", "unknown type"),
    ],
)
async def test_a_binary_file_is_described_not_dumped(content: bytes, type_: str, workspace: Path) -> None:
    """Type, size, digest: enough to know it by."""
    (workspace / "bin").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    assert await call(read, {"path": "bin"}, workspace) == (
        f"[binary file: {type_}, {len(content):,} bytes, sha256 {digest}; its content is not text and is not shown]"
    )


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("missing", "missing does not exist"),
        ("missing/file", "missing/file does not exist"),
        ("file/below", "is a file, not a folder"),
        (".", "is a folder"),
        ("pipe", "named pipe"),
        ("/dev/zero", "device"),
        ("x" * 300, "is too long"),
    ],
)
async def test_what_cannot_be_read_is_a_sentence(path: str, words: str, workspace: Path) -> None:
    """In the model's words for the path."""
    (workspace / "file").write_text("x")
    os.mkfifo(workspace / "pipe")
    with pytest.raises(ToolFailed, match=words):
        await call(read, {"path": path}, workspace)


async def test_an_aborted_read_of_a_huge_file_stops(workspace: Path) -> None:
    """The file has a hole of 1 TB where the lines would be counted."""
    with (workspace / "huge").open("wb") as file:
        file.write(b"text\n" * 10_000)
        file.truncate(1 << 40)
    signal = Signal()
    signal.abort("enough")
    told = await call(read, {"path": "huge", "offset": 500_000}, workspace, signal=signal)
    assert "stopped early: enough" in told


# write


async def test_a_file_is_made_with_the_folders_on_the_way(workspace: Path) -> None:
    """Said in numbers."""
    assert await call(write, {"path": "a/b/c.txt", "content": "é\n"}, workspace) == "made a/b/c.txt with 3 bytes"
    assert (workspace / "a/b/c.txt").read_text() == "é\n"
    assert await call(write, {"path": "a/b/c.txt", "content": ""}, workspace) == "replaced a/b/c.txt: 0 bytes, before 3"


async def test_a_write_through_a_link_writes_the_real_file_and_keeps_the_link(workspace: Path) -> None:
    """The target said the real file; that is what is written."""
    (workspace / "real").write_text("old")
    (workspace / "link").symlink_to("real")
    await call(write, {"path": "link", "content": "new"}, workspace)
    assert (workspace / "link").is_symlink()
    assert (workspace / "real").read_text() == "new"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("folder", "is a folder"),
        ("folder/", "names a folder"),
        ("new/", "names a folder"),
        ("pipe", "named pipe"),
        ("/dev/null", "device"),
        ("file/below", "is a file, not a folder"),
        ("x" * 300, "is too long"),
        ("/proc/clew", "could not be|does not exist|denies"),
    ],
)
async def test_what_cannot_be_written_is_a_sentence(path: str, words: str, workspace: Path) -> None:
    """And nothing is left behind."""
    (workspace / "folder").mkdir()
    (workspace / "file").write_text("x")
    os.mkfifo(workspace / "pipe")
    with pytest.raises(ToolFailed, match=words):
        await call(write, {"path": path, "content": "x"}, workspace)
    assert sorted(os.listdir(workspace)) == ["file", "folder", "pipe"]


@pytest.mark.parametrize(("tool", "args"), [(write, {"content": "\ud800"}), (edit, {"old": "x", "new": "\ud800"})])
async def test_half_a_surrogate_is_not_written(tool: Tool, args: dict[str, Any], workspace: Path) -> None:
    """There are no bytes for it."""
    (workspace / "file").write_text("x")
    with pytest.raises(ToolFailed, match="surrogate"):
        await call(tool, {"path": "file", **args}, workspace)
    assert (workspace / "file").read_text() == "x"


# what was judged is what is touched


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        (read, {}),
        (write, {"content": "taken"}),
        (edit, {"old": "secret", "new": "taken"}),
        (ls, {}),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
@pytest.mark.parametrize("how", ["file", "folder", "workspace"])
async def test_a_link_swapped_between_judging_and_doing_is_refused(
    tool: Tool, args: dict[str, Any], how: str, workspace: Path
) -> None:
    """The last name, a folder on the way, or the workspace itself."""
    (workspace / "sub").mkdir()
    (workspace / "sub" / "key").write_text("secret\n")
    args = {"path": "sub/key", **args}
    judged = tuple(tool.targets(args, workspace))
    swapped = {"file": workspace / "sub" / "key", "folder": workspace / "sub", "workspace": workspace}[how]
    swapped.rename(workspace.parent / "moved")
    if how == "workspace":
        (workspace.parent / "outside" / "sub").mkdir()
        (workspace.parent / "outside" / "sub" / "key").write_text("secret\n")
    swapped.symlink_to(workspace.parent / "outside" / ("key" if how == "file" else ""))
    with pytest.raises(ToolFailed, match="not what was judged"):
        await tool.execute(args, context_of(workspace.parent, workspace=workspace, judged=judged))
    assert [file.read_text() for file in (workspace.parent / "outside").rglob("key")] in (
        ["secret\n"],
        ["secret\n"] * 2,
    )


# edit


async def test_an_edit_changes_one_passage_and_nothing_else(workspace: Path) -> None:
    """Line ends, the missing last one, the mark at the start and the mode stay."""
    file = workspace / "file"
    file.write_bytes("\ufeffa\r\nb\r\nc".encode())
    file.chmod(0o755)
    assert await call(edit, {"path": "file", "old": "b\nc", "new": "B\nC"}, workspace) == (
        "replaced 1 passage in file, line 2"
    )
    assert file.read_bytes() == "\ufeffa\r\nB\r\nC".encode()
    assert file.stat().st_mode & 0o777 == 0o755
    assert await call(edit, {"path": "file", "old": "\n", "new": "\n\n", "all": True}, workspace) == (
        "replaced 2 passages in file, lines 1, 3"
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a\x00b", "not a text file"),
        (b"caf\xe9 old caf\xe9", r"not UTF-8 text \(byte 3\)"),
        (b"old old", "more than once"),
        (b"nothing", "does not occur"),
        (b"old" + b"x" * (10 << 20), "at most 10,485,760"),
    ],
    ids=["binary", "latin-1", "twice", "missing", "too large"],
)
async def test_an_edit_that_is_not_certain_is_refused_and_the_file_kept(
    content: bytes, words: str, workspace: Path
) -> None:
    """To the byte."""
    (workspace / "file").write_bytes(content)
    with pytest.raises(ToolFailed, match=words):
        await call(edit, {"path": "file", "old": "old", "new": "new"}, workspace)
    assert (workspace / "file").read_bytes() == content


# ls and glob


@pytest.fixture
def tree(workspace: Path) -> Path:
    for folder in ("src/deep", ".git/objects", "empty"):
        (workspace / folder).mkdir(parents=True)
    for file in ("a.py", ".hidden", "src/b.py", "src/deep/c.py", "src/d.txt", ".git/objects/e.py", "new\nline"):
        (workspace / file).write_text("x")
    (workspace / "in").symlink_to("src")
    (workspace / "out").symlink_to(workspace.parent / "outside")
    (workspace / "src" / "up").symlink_to("..")
    (workspace / "src" / "gone.py").symlink_to("nowhere")
    os.mkfifo(workspace / "pipe")
    return workspace


async def test_a_folder_is_listed_with_everything_in_it(tree: Path) -> None:
    """Hidden names too; links are shown, with a word when they lead out."""
    assert (await call(ls, {}, tree)).splitlines() == [
        ".git/",
        ".hidden  1 byte",
        "a.py  1 byte",
        "empty/",
        "in -> src",
        "new\\nline  1 byte",
        f"out -> {tree.parent}/outside  (leads out of the workspace)",
        "pipe  (named pipe)",
        "src/",
    ]
    assert (await call(ls, {"path": "src"}, tree)).splitlines() == [
        "src/b.py  1 byte",
        "src/d.txt  1 byte",
        "src/deep/",
        "src/gone.py -> nowhere  (leads nowhere)",
        "src/up -> ..",
    ]
    assert await call(ls, {"path": "empty"}, tree) == "[the folder is empty]"
    assert await call(ls, {"path": "a.py"}, tree) == "a.py  1 byte"
    assert await call(ls, {"path": "in/deep"}, tree) == "src/deep/c.py  1 byte"
    assert await call(ls, {"path": "../outside"}, tree) == f"{tree.parent}/outside/key  7 bytes"


async def test_a_name_that_is_no_text_is_shown_escaped(workspace: Path) -> None:
    """It must neither break the listing nor the store."""
    os.close(os.open(os.fsencode(workspace) + b"/bad\xff", os.O_CREAT))
    assert await call(ls, {}, workspace) == "bad\\udcff  0 bytes"
    assert await call(glob, {"pattern": "*"}, workspace) == "bad\\udcff"


async def test_a_large_folder_is_capped_and_the_rest_counted(workspace: Path) -> None:
    """The first thousand by name."""
    for number in range(1_203):
        (workspace / f"{number:04}").touch()
    for tool, args, size in ((ls, {}, "  0 bytes"), (glob, {"pattern": "*"}, "")):
        lines = (await call(tool, args, workspace)).splitlines()
        assert (lines[0], lines[999], len(lines)) == (f"0000{size}", f"0999{size}", 1_001)
        assert lines[1_000] == "[203 more of 1,203 are not shown]"


@pytest.mark.parametrize(
    ("args", "paths"),
    [
        ({"pattern": "*.py"}, ["a.py"]),
        (
            {"pattern": "**/*.py"},
            [
                "a.py",
                "src/b.py",
                "src/deep/c.py",
                "src/gone.py -> nowhere  (leads nowhere)",
                "[1 version control folder left out; name one in path to look inside]",
            ],
        ),
        ({"pattern": "**/*.py", "path": "src/deep"}, ["src/deep/c.py"]),
        ({"pattern": "*.py", "path": ".git/objects"}, [".git/objects/e.py"]),
        ({"pattern": "src/*.{py,txt}"}, ["src/b.py", "src/d.txt", "src/gone.py -> nowhere  (leads nowhere)"]),
        ({"pattern": "*/"}, [".git/", "empty/", "src/"]),
        ({"pattern": "in/*"}, ["[nothing fits the pattern]"]),
        ({"pattern": "out/**"}, ["out -> {outside}  (leads out of the workspace)"]),
        ({"pattern": "*", "path": "../outside"}, ["{outside}/key"]),
    ],
)
async def test_paths_are_found_by_pattern(args: dict[str, Any], paths: list[str], tree: Path) -> None:
    """Links are shown and never followed; what was left out is said."""
    outside = str(tree.parent / "outside")
    assert (await call(glob, args, tree)).splitlines() == [path.format(outside=outside) for path in paths]


@pytest.mark.parametrize("pattern", ["../*", "/etc/*", "src/../../*"])
async def test_a_pattern_cannot_climb_out(pattern: str, tree: Path) -> None:
    """Where to look is said by path, which is judged."""
    with pytest.raises(ToolFailed, match="downwards only"):
        await call(glob, {"pattern": pattern}, tree)


async def test_very_deep_folders_are_counted_not_followed_for_ever(workspace: Path) -> None:
    """A handle is held for each level."""
    deep = workspace
    for _ in range(80):
        deep = deep / "d"
        deep.mkdir()
    told = await call(glob, {"pattern": "**/nothing"}, workspace)
    assert told == "[nothing fits the pattern]\n[1 folder more than 64 levels deep left out]"


async def test_a_listing_that_was_aborted_says_so(tree: Path) -> None:
    """With what it had."""
    signal = Signal()
    signal.abort("enough")
    assert await call(ls, {}, tree, signal=signal) == "[stopped early: enough]"
    assert (await call(glob, {"pattern": "**"}, tree, signal=signal)).endswith("[stopped early: enough]")


async def test_no_handle_is_left_open(tree: Path) -> None:
    """After good calls and failed ones."""
    before = set(os.listdir("/proc/self/fd"))
    await call(glob, {"pattern": "**"}, tree)
    await call(ls, {}, tree)
    await call(read, {"path": "a.py"}, tree)
    await call(write, {"path": "x/y/z", "content": ""}, tree)
    for path in ("pipe", "a.py/x", "missing/x", "src"):
        with pytest.raises(ToolFailed):
            await call(read, {"path": path}, tree)
    # What another test left open may be closed meanwhile.
    assert set(os.listdir("/proc/self/fd")) <= before
