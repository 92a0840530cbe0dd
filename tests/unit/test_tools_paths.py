"""Where a path really leads: a corpus of ways to write one, and what becomes of a path that changes meanwhile."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import unicodedata
from contextlib import suppress
from pathlib import Path

import pytest

from clew.errors import PermissionDenied, ToolFailed
from clew.safe_read import leads_elsewhere
from clew.tools.base import Signal, Tool
from clew.tools.builtin import BUILTIN
from clew.tools.files.access import file_errors, open_folder, open_plain, read_all, replace
from clew.tools.files.paths import judged_path, locate, show_name
from clew.tools.files.walk import LeftOut, StopCheck, walk
from clew.transcript.rule import Target
from tests.unit.test_tools_support import Permits, context_of

FILE_TOOLS = [tool for tool in BUILTIN if tool.name in ("read", "write", "edit", "ls", "glob", "grep")]
NFC, NFD = unicodedata.normalize("NFC", "é.txt"), unicodedata.normalize("NFD", "é.txt")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace with a neighbour whose name begins the same, and links of every kind."""
    for folder in ("room/src/deep", "room-not", "outside/secret"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("room/a.txt", "room/src/b.txt", "outside/secret/key", "room-not/c.txt", f"room/{NFC}"):
        (tmp_path / file).write_text("one\n")
    root = tmp_path / "room"
    (root / "in").symlink_to("src")
    (root / "in-file").symlink_to("src/b.txt")
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "out-file").symlink_to("../outside/secret/key")
    (root / "up").symlink_to("..")
    (root / "broken").symlink_to("nothing/here")
    (root / "broken-out").symlink_to(tmp_path / "outside" / "new")
    (root / "src" / "back").symlink_to(root)
    (root / "self").symlink_to("self")
    (root / "ping").symlink_to("pong")
    (root / "pong").symlink_to("ping")
    return root


INSIDE = [
    ("a.txt", "a.txt"),
    ("./a.txt", "a.txt"),
    ("src/../a.txt", "a.txt"),
    ("src//b.txt", "src/b.txt"),
    ("src/./b.txt", "src/b.txt"),
    ("src/b.txt/", "src/b.txt"),
    ("src///", "src"),
    (".", ""),
    ("src/..", ""),
    ("in/b.txt", "src/b.txt"),
    ("in-file", "src/b.txt"),
    ("in/../a.txt", "a.txt"),
    ("src/back/a.txt", "a.txt"),
    ("src/back/src/back/src/b.txt", "src/b.txt"),
    ("up/room/a.txt", "a.txt"),
    ("../room/a.txt", "a.txt"),
    ("new/folder/file", "new/folder/file"),
    ("new/../a.txt", "a.txt"),
    ("a.txt/../a.txt", "a.txt"),
    ("broken", "nothing/here"),
    ("~", "~"),
    ("~root/x", "~root/x"),
    ("$HOME", "$HOME"),
    ("%2e%2e/a", "%2e%2e/a"),
    ("..\\a", "..\\a"),
    ("...", "..."),
    (" ", " "),
    ("-rf", "-rf"),
    ("new\nline", "new\nline"),
    (NFC, NFC),
    (NFD, NFD),
    ("A.TXT", "A.TXT"),
    ("x" * 255, "x" * 255),
]

OUTSIDE = [
    ("..", ""),
    ("../", ""),
    ("../outside/secret/key", "outside/secret/key"),
    ("../room-not/c.txt", "room-not/c.txt"),
    ("src/../../outside", "outside"),
    ("src/deep/../../../outside", "outside"),
    ("./.././outside", "outside"),
    ("in/../../outside", "outside"),
    ("out", "outside"),
    ("out/", "outside"),
    ("out/secret/key", "outside/secret/key"),
    ("out/../room-not/c.txt", "room-not/c.txt"),
    ("out/secret/../../room-not", "room-not"),
    ("out-file", "outside/secret/key"),
    ("up", ""),
    ("up/outside", "outside"),
    ("src/back/out/secret", "outside/secret"),
    ("src/back/../outside", "outside"),
    ("broken-out", "outside/new"),
    ("new/../../outside", "outside"),
    ("../WORK/a.txt", "WORK/a.txt"),
    ("../room /a.txt", "room /a.txt"),
]


@pytest.mark.rule("PM-5")
@pytest.mark.parametrize(("written", "real"), INSIDE, ids=lambda text: repr(text)[:40])
def test_a_path_inside_is_resolved_and_said_to_be_inside(written: str, real: str, workspace: Path) -> None:
    """Links and dots are followed as the kernel would; nothing is expanded, decoded or folded."""
    target = locate(written, workspace).target("read")
    assert target == Target("read", "path", str(workspace / real), True)


@pytest.mark.rule("PM-5")
@pytest.mark.parametrize(("written", "real"), OUTSIDE)
def test_a_path_outside_can_be_asked_for_and_says_so(written: str, real: str, workspace: Path) -> None:
    """The permission layer sees where it leads, not what was written."""
    target = locate(written, workspace).target("read")
    assert target == Target("read", "path", str(workspace.parent / real), False)


@pytest.mark.rule("PM-5")
@pytest.mark.parametrize(
    "written", ["/etc/passwd", "//etc/passwd", "///etc//passwd", "/etc/../etc/passwd", "/./etc/passwd"]
)
def test_an_absolute_path_has_one_spelling(written: str, workspace: Path) -> None:
    """A doubled slash must not slip by a rule for /etc."""
    real = os.path.realpath("/etc/passwd")
    assert locate(written, workspace).target("write") == Target("write", "path", real, False)
    assert locate(str(workspace / "a.txt"), workspace).target("write").inside


@pytest.mark.rule("PM-5")
def test_a_workspace_that_is_a_link_is_resolved_too(workspace: Path) -> None:
    """Inside is judged between real paths."""
    door = workspace.parent / "door"
    door.symlink_to(workspace)
    assert locate("a.txt", door).target("read") == Target("read", "path", str(workspace / "a.txt"), True)


@pytest.mark.parametrize(
    "written",
    ["", "a\x00b", "\x00", "x" * 5000, "a/" * 3000, "\ud800", "a\udc80", "self", "ping/x"],
    ids=lambda written: repr(written)[:20],
)
def test_what_cannot_be_a_path_fails_before_anything_is_asked(written: str, workspace: Path) -> None:
    """A sentence for the model; no target, so nothing to permit."""
    for tool in FILE_TOOLS:
        with pytest.raises(ToolFailed):
            tool.targets({"path": written, "pattern": "x"}, workspace)


@pytest.mark.rule("PM-5")
@pytest.mark.parametrize("tool", FILE_TOOLS, ids=lambda tool: tool.name)
def test_every_file_tool_says_the_resolved_path(tool: Tool, workspace: Path) -> None:
    """Under its own name, links resolved; a listing without a path is one of the workspace."""
    outside = str(workspace.parent / "outside" / "secret")
    assert list(tool.targets({"path": "out/secret"}, workspace)) == [Target(tool.name, "path", outside, False)]
    if tool.name in ("ls", "glob", "grep"):
        assert list(tool.targets({}, workspace)) == [Target(tool.name, "path", str(workspace), True)]


def test_without_a_workspace_there_are_no_paths() -> None:
    """Not even absolute ones: there is nothing to be inside of."""
    with pytest.raises(ToolFailed, match="no workspace"):
        locate("/etc/passwd", None)


async def test_a_link_swapped_after_it_was_judged_is_refused(workspace: Path) -> None:
    """What is acted on is what was judged, or nothing is."""
    judged = (locate("in-file", workspace).target("read"),)
    (workspace / "in-file").unlink()
    (workspace / "in-file").symlink_to("../outside/secret/key")
    with pytest.raises(ToolFailed, match="not what was judged"):
        await judged_path("read", "in-file", context_of(workspace.parent, workspace=workspace, judged=judged))


async def test_what_was_judged_for_another_tool_does_not_count(workspace: Path) -> None:
    """A read that was allowed is no write."""
    judged = (locate("a.txt", workspace).target("read"),)
    with pytest.raises(ToolFailed, match="not what was judged"):
        await judged_path("write", "a.txt", context_of(workspace.parent, workspace=workspace, judged=judged))


async def test_where_nothing_was_judged_every_path_is_put_to_the_rules(workspace: Path) -> None:
    """A host that calls a tool by itself is asked about the real path, and its no holds."""
    permits = Permits(str(workspace.parent / "outside"))
    context = context_of(workspace.parent, workspace=workspace, permit=permits)
    assert (await judged_path("read", "in-file", context)).path == workspace / "src" / "b.txt"
    with pytest.raises(PermissionDenied):
        await judged_path("read", "out", context)
    assert [target.value for target in permits.asked] == [
        str(workspace / "src" / "b.txt"),
        str(workspace.parent / "outside"),
    ]


@pytest.mark.parametrize("path", ["in-file", "in/b.txt", "src/back/a.txt"])
def test_a_link_anywhere_in_a_resolved_path_is_refused_when_it_is_opened(path: str, workspace: Path) -> None:
    """It was put there after the path was resolved; the walk by handles notices."""
    with pytest.raises(ToolFailed, match="link"), open_plain(workspace / path):
        pass
    with pytest.raises(ToolFailed, match="link"):
        replace(workspace / path, b"new")
    assert (workspace / "src" / "b.txt").read_text() == (workspace / "a.txt").read_text() == "one\n"


def test_a_folder_that_became_a_link_is_not_opened(workspace: Path) -> None:
    """Nor listed."""
    with pytest.raises(ToolFailed, match="link"), open_folder(workspace / "out"):
        pass


def test_a_folder_swapped_for_a_link_during_a_walk_is_not_entered(workspace: Path) -> None:
    """Between its listing and its turn; it is counted as unreadable."""

    def swap(path: str) -> bool:
        if path == "src":
            (workspace / "src").rename(workspace / "moved")
            (workspace / "src").symlink_to(workspace.parent / "outside")
        return path == "src"

    left_out = LeftOut()
    with open_folder(workspace) as handle:
        paths = [entry.path for entry in walk(handle, StopCheck(Signal(), 60), left_out, swap)]
    assert [path for path in paths if path.startswith("src")] == ["src"]
    assert left_out.sentences() == ["1 folder could not be read"]


def test_pipes_devices_sockets_and_folders_are_neither_read_nor_written(workspace: Path) -> None:
    """The open of a pipe would wait for ever; that of a device may do something."""
    os.mkfifo(workspace / "pipe")
    for path, what in (
        (workspace / "pipe", "named pipe"),
        (Path("/dev/null"), "device"),
        (workspace / "src", "folder"),
        (Path("/"), "folder"),
    ):
        with pytest.raises(ToolFailed, match=what), open_plain(path):
            pass
        with pytest.raises(ToolFailed, match=what):
            replace(path, b"")


def test_a_file_is_replaced_at_once_and_keeps_its_mode(workspace: Path) -> None:
    """By a rename in the same folder: who has the old file open goes on reading it; nothing is left lying about."""
    file = workspace / "a.txt"
    file.chmod(0o640)
    with file.open() as old:
        assert replace(file, b"two\n") == 4
        assert old.read() == "one\n"
    assert file.read_text() == "two\n"
    assert file.stat().st_mode & 0o777 == 0o640
    assert replace(workspace / "src" / "new" / "er", b"x", make_folders=True) is None
    assert list(workspace.rglob(".clew-*")) == []


def test_a_new_file_has_the_mode_the_umask_leaves(workspace: Path) -> None:
    """As if the user had made it."""
    before = os.umask(0o027)
    try:
        replace(workspace / "new", b"")
    finally:
        os.umask(before)
    assert (workspace / "new").stat().st_mode & 0o777 == 0o640


def test_a_hard_link_out_of_the_workspace_is_cut_by_a_write_not_written_through(workspace: Path) -> None:
    """The other name keeps the old content."""
    os.link(workspace.parent / "outside" / "secret" / "key", workspace / "twin")
    replace(workspace / "twin", b"mine")
    assert (workspace.parent / "outside" / "secret" / "key").read_text() == "one\n"


def test_a_file_changed_meanwhile_is_not_overwritten(workspace: Path) -> None:
    """Somebody else's edit is not lost."""
    file = workspace / "a.txt"
    data, version = read_all(file, 100)
    file.write_text("theirs, and longer\n")
    with pytest.raises(ToolFailed, match="changed by another program"):
        replace(file, data, expected=version)
    file.unlink()
    with pytest.raises(ToolFailed, match="changed by another program"):
        replace(file, data, expected=version)


def test_a_write_that_fails_leaves_the_file_and_no_rest(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk shows in the sentence."""

    def full(handle: int, data: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(ToolFailed, match="disk is full"), file_errors("a.txt"):
        replace(workspace / "a.txt", b"two")
    monkeypatch.undo()
    assert (workspace / "a.txt").read_text() == "one\n"
    assert list(workspace.glob(".clew-*")) == []


def test_names_are_shown_on_one_line_and_without_disguise() -> None:
    """Line ends, escapes, direction marks and bytes that are no text are written out."""
    assert show_name("a\nb\x1b[31m\u202egpj.exe\udc80 é") == "a\\nb\\x1b[31m\\u202egpj.exe\\udc80 é"


@pytest.mark.skipif(sys.platform != "linux", reason="exchanges two names in one system call")
def test_a_path_that_changes_while_it_is_resolved_raises_nothing_unexpected(workspace: Path) -> None:
    """A folder and a link that take each other's place: what is a link when it is looked at is none when it is read."""
    folder, link = os.fsencode(workspace / "src"), os.fsencode(workspace / "in")
    library, ended = ctypes.CDLL(None), threading.Event()

    def exchange() -> None:
        while not ended.is_set():
            library.renameat2(-100, folder, -100, link, 2)

    exchanging = threading.Thread(target=exchange)
    exchanging.start()
    try:
        for _ in range(10_000):
            with suppress(ToolFailed):
                locate("src/b.txt", workspace)
            leads_elsewhere(workspace / "src")
    finally:
        ended.set()
        exchanging.join()
