"""Snapshots: what is saved of a workspace, what is not, and how saved states are compared, read and written back."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from clew.errors import SnapshotFailed
from clew.snapshots import files
from clew.snapshots.base import FileChange, SavedTree, SnapshotPoint, SnapshotsOff, SnapshotStore
from clew.snapshots.files import escape_name, unescape_name
from clew.snapshots.git import Git, GitFailed, ObjectWriter, find_git
from clew.snapshots.layer import GitSnapshots
from tests.rig.workspace_edits import observe

OLD = (1_600_000_000, 1_600_000_000)


class Workspace:
    """A folder with files, and a layer for it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "workspace"
        self.root.mkdir()
        self.data = folder / "data"
        self.layer = GitSnapshots(self.data, grace_s=0)
        self.point = SnapshotPoint(session_id="ses_x", workspace=str(self.root))

    def write(self, contents: Mapping[str, bytes]) -> None:
        for name, content in contents.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=user", "-c", "user.email=user@localhost")
        command = ["git", "-C", str(self.root), *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    async def take(self) -> SavedTree:
        taken = await self.layer.take(self.point)
        assert taken is not None
        return taken

    async def restore(self, target: SavedTree, *names: str) -> list[str]:
        current = await self.take()
        paths = names or [change.path for change in await self.layer.compare(self.point, current.tree, target.tree)]
        return await self.layer.restore(self.point, target.tree, current.tree, paths)

    async def saved(self, tree: SavedTree) -> dict[str, bytes | None]:
        listed = await self.layer.compare(self.point, "4b825dc642cb6eb9a060e54bf8d69288fbee4904", tree.tree)
        return {one.path: await self.layer.read(self.point, tree.tree, one.path) for one in listed}


@pytest.fixture
def ws(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


@pytest.mark.rule("WR-1")
async def test_a_workspace_goes_back_to_each_of_its_states(ws: Workspace) -> None:
    """Content, executable bit, links, added and deleted files, files that became folders, empty folders."""
    assert isinstance(ws.layer, SnapshotStore)
    ws.write({"a": b"1\r\n", "bin": b"\0\1", "gone/x": b"x", "kind": b"file", "run": b"#!/bin/sh\n", "Case": b"c"})
    (ws.root / "empty/below").mkdir(parents=True)
    (ws.root / "link").symlink_to("/etc/passwd")
    first, seen_first = await ws.take(), observe(os.fsencode(ws.root))
    ws.write({"a": b"2\n", "new/ü\nü": b"new"})
    (ws.root / "run").chmod(0o755)
    (ws.root / "gone/x").unlink()
    (ws.root / "kind").unlink()
    ws.write({"kind/inside": b"folder"})
    (ws.root / "link").unlink()
    (ws.root / "link").symlink_to("a")
    (ws.root / "Case").rename(ws.root / "case")
    (ws.root / "empty/below").rmdir()
    second, seen_second = await ws.take(), observe(os.fsencode(ws.root))
    assert await ws.layer.compare(ws.point, first.tree, second.tree) == [
        FileChange(path="Case", kind="deleted", added=0, removed=1),
        FileChange(path="a", kind="modified", added=1, removed=1),
        FileChange(path="case", kind="added", added=1, removed=0),
        FileChange(path="gone/x", kind="deleted", added=0, removed=1),
        FileChange(path="kind", kind="deleted", added=0, removed=1),
        FileChange(path="kind/inside", kind="added", added=1, removed=0),
        FileChange(path="link", kind="modified", added=1, removed=1),
        FileChange(path="new/ü\nü", kind="added", added=1, removed=0),
        FileChange(path="run", kind="mode", added=0, removed=0),
    ]
    for target, seen in ((first, seen_first), (second, seen_second), (first, seen_first)):
        assert await ws.restore(target) == []
        assert observe(os.fsencode(ws.root)) == seen
        assert (await ws.take()).tree == target.tree
    assert await ws.layer.compare(ws.point, first.tree, None) == []


@pytest.mark.rule("WR-1")
async def test_what_is_not_covered_is_named_with_the_reason(ws: Workspace) -> None:
    """And the files of a nested repository are covered like all others."""
    ws.layer = GitSnapshots(ws.data, max_file_bytes=30, include=[".env", "build/wanted/*"])
    ws.write({".gitignore": b"*.log\nbuild/\n.env\n", "a.log": b"1", "big": b"x" * 31, ".env": b"secret"})
    ws.write({"build/out": b"1", "build/wanted/x": b"1", "nested/.git/HEAD": b"ref: refs/heads/main\n"})
    ws.write({"nested/.git/objects/x": b"", "nested/.git/refs/x": b"", "nested/file": b"1"})
    os.mkfifo(ws.root / "pipe")
    taken = await ws.take()
    assert dict(taken.skipped) == {
        "a.log": "is ignored",
        "build/out": "is ignored",
        "big": "is larger than 30 bytes",
        "nested/.git": "is the .git of a nested repository",
        "pipe": "is a special file",
    }
    assert set(await ws.saved(taken)) == {".gitignore", ".env", "build/wanted/x", "nested/file"}
    # A file that grows leaves the next snapshot, and one that is ignored from now on does, too.
    ws.write({".gitignore": b"nested\n", ".env": b"x" * 31})
    assert set(await ws.saved(await ws.take())) == {".gitignore", "a.log", "build/out", "build/wanted/x"}


@pytest.mark.rule("WR-1")
async def test_the_names_of_files_that_are_not_covered_are_limited(ws: Workspace) -> None:
    """A count stands for the others."""
    ws.write({".gitignore": b"*.o\n", **{f"{n}.o": b"" for n in range(230)}})
    skipped = (await ws.take()).skipped
    assert (len(skipped), skipped["…"]) == (201, "and 30 more")


@pytest.mark.rule("WR-1")
async def test_the_rules_of_the_whole_repository_count(ws: Workspace) -> None:
    """Those above the workspace, its exclude file, and what the user's index has all the same."""
    ws.git("init", "-q")
    ws.write({".gitignore": b"*.o\n", ".git/info/exclude": b"private\n", "part/a.o": b"1", "part/forced.o": b"1"})
    ws.write({"part/private": b"1", "part/file": b"1"})
    ws.git("add", "-f", "part/forced.o")
    part = SnapshotPoint(session_id="ses_x", workspace=str(ws.root / "part"))
    taken = await ws.layer.take(part)
    assert taken is not None
    assert dict(taken.skipped) == {"a.o": "is ignored", "private": "is ignored"}
    assert await ws.layer.read(part, taken.tree, "forced.o") == b"1"


@pytest.mark.rule("WR-1")
async def test_a_change_within_one_tick_of_the_clock_is_not_missed(ws: Workspace) -> None:
    """Of the same size, and with the time of the last change set back."""
    ws.write({"old": b"1", "new": b"1"})
    os.utime(ws.root / "old", OLD)
    for content in (b"2", b"3", b"4"):
        before = await ws.take()
        for name in ("old", "new"):
            status = (ws.root / name).stat()
            (ws.root / name).write_bytes(content)
            os.utime(ws.root / name, ns=(status.st_atime_ns, status.st_mtime_ns))
        after = await ws.take()
        assert await ws.saved(after) == {"old": content, "new": content}
        assert after.tree != before.tree


@pytest.mark.rule("WR-1")
async def test_any_name_is_saved_and_comes_back(ws: Workspace) -> None:
    """Not UTF-8, composed and decomposed, with a newline, like an escape, like git's own syntax."""
    names = [
        b"\xff\xfe",
        "ü".encode(),
        "u\u0308".encode(),
        b"\\xff",
        b"\\x5cxff",
        b"a\nb",
        b'q"\\',
        b":(top)x",
        b"*",
        b"-x",
    ]
    for name in names:
        ws.write({os.fsdecode(name): name})
    taken, seen = await ws.take(), observe(os.fsencode(ws.root))
    assert {unescape_name(path): content for path, content in (await ws.saved(taken)).items()} == {n: n for n in names}
    assert [escape_name(name).encode() for name in names[:5]] == [
        *(b"\\xff\\xfe", "ü".encode(), "u\u0308".encode(), b"\\x5cxff", b"\\x5cx5cxff")
    ]
    for path in ws.root.iterdir():
        path.unlink()
    assert await ws.restore(taken) == []
    assert observe(os.fsencode(ws.root)) == seen


@pytest.mark.rule("WR-1")
async def test_thousands_of_files_are_saved_at_once(ws: Workspace) -> None:
    """And two sessions may take at the same time."""
    ws.write({f"many/{number}": b"%d" % number for number in range(3_000)})
    one, other = await asyncio.gather(ws.take(), ws.take())
    assert one == other
    assert len(await ws.layer.compare(ws.point, "4b825dc642cb6eb9a060e54bf8d69288fbee4904", one.tree)) == 3_000


@pytest.mark.rule("WR-7")
async def test_no_config_attribute_or_variable_of_anyone_has_an_effect(
    ws: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes in, bytes out, and the user's ``.git`` stays as it is."""
    mark = tmp_path / "mark"
    ws.git("init", "-q")
    home = tmp_path / "home"
    attributes = b"[attr]filter text\n* filter=evil text=auto eol=crlf ident working-tree-encoding=UTF-16 diff=evil\n"
    (home / ".config/git").mkdir(parents=True)
    (home / ".config/git/attributes").write_bytes(attributes)
    commands = "".join(f"\t{name} = touch {mark}; cat\n" for name in ("clean", "smudge", "process"))
    config = f"""[core]
    autocrlf = true
    fsmonitor = touch {mark}
    hooksPath = {home}/hooks
[filter "evil"]
{commands}
[diff "evil"]
    textconv = touch {mark}; cat
    command = touch {mark}
[diff]
    external = touch {mark}
"""
    (home / ".gitconfig").write_text(config)
    (home / "hooks").mkdir()
    (home / "hooks/post-index-change").write_text(f"#!/bin/sh\ntouch {mark}\n")
    (home / "hooks/post-index-change").chmod(0o755)
    with (ws.root / ".git/config").open("a") as file:
        file.write(config)
    content = "a\r\nb\n$Id$ ü\n".encode()
    ws.write({".gitattributes": attributes, ".git/info/attributes": attributes, "a.txt": content})
    before = observe(os.fsencode(ws.root / ".git"))
    monkeypatch.setenv("HOME", str(home))
    for name in ("DIR", "WORK_TREE", "INDEX_FILE", "OBJECT_DIRECTORY", "EXTERNAL_DIFF", "EXEC_PATH", "CONFIG_GLOBAL"):
        monkeypatch.setenv(f"GIT_{name}", str(home / "hooks/post-index-change"))
    first = await ws.take()
    ws.write({"a.txt": content + b"\r\n"})
    shown = await ws.layer.diff(ws.point, first.tree, None, ["a.txt"])
    assert shown["a.txt"].partition("@@")[2] == " -1,3 +1,4 @@\n a\r\n b\n $Id$ ü\n+\r\n"
    assert await ws.restore(first) == []
    assert (ws.root / "a.txt").read_bytes() == content
    await ws.layer.check_out(ws.point, first.tree, str(tmp_path / "copy"))
    assert (tmp_path / "copy/a.txt").read_bytes() == content
    assert observe(os.fsencode(ws.root / ".git")) == before
    assert not mark.exists()


@pytest.mark.rule("WR-7")
async def test_snapshots_are_off_where_they_must_not_be(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the root, a home folder, what is above it, a tree that is too large, and without git; it says what to do."""
    ws.write({"a": b"12345", "b/c": b"12345"})

    async def reason(layer: GitSnapshots, folder: Path) -> str:
        with pytest.raises(SnapshotsOff) as caught:
            await layer.take(SnapshotPoint(session_id="ses_x", workspace=str(folder)))
        return str(caught.value)

    monkeypatch.setenv("HOME", str(ws.root))
    for folder in (Path("/"), Path("/root"), ws.root.parent, ws.root):
        assert "Use the folder of a project" in await reason(ws.layer, folder)
    monkeypatch.setenv("HOME", "/nowhere")
    assert "raise snapshots.max_files" in await reason(GitSnapshots(ws.data, max_files=1), ws.root)
    assert "raise snapshots.max_bytes" in await reason(GitSnapshots(ws.data, max_bytes=9), ws.root)
    assert (await GitSnapshots(ws.data, max_files=2, max_bytes=10).take(ws.point)) is not None
    ws.write({"a": b"123456"})
    assert "raise snapshots.max_bytes" in await reason(GitSnapshots(ws.data, max_files=2, max_bytes=10), ws.root)
    os.mkfifo(ws.root / ".gitignore")
    assert "special file" in await reason(ws.layer, ws.root)
    find_git.cache_clear()
    monkeypatch.setenv("PATH", "/nowhere")
    assert "Install git" in await reason(ws.layer, ws.root)


@pytest.mark.rule("WR-7")
async def test_only_the_owner_can_read_what_is_saved(ws: Workspace) -> None:
    """Whatever the umask is."""
    before = os.umask(0)
    try:
        ws.write({"a": b"1"})
        await ws.take()
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in [ws.data, *ws.data.rglob("*")]}
    assert {path: oct(mode) for path, mode in modes.items() if mode & 0o077} == {}


@pytest.mark.rule("WR-2")
async def test_what_was_changed_by_another_hand_is_left_alone(ws: Workspace) -> None:
    """Its content, its deletion, and what is in the way."""
    ws.write({"a": b"1", "b": b"1", "c": b"1", "d": b"1", "e/f": b"1"})
    first = await ws.take()
    ws.write({"a": b"2", "b": b"2", "c": b"2", "e/f": b"2"})
    (ws.root / "d").unlink()
    current = await ws.take()
    ws.write({"a": b"3", "d/x": b"3"})
    (ws.root / "b").unlink()
    assert await ws.layer.restore(ws.point, first.tree, current.tree, ["a", "b", "c", "d", "e/f"]) == ["a", "b", "d"]
    assert observe(os.fsencode(ws.root)).files == {
        b"a": ("file", b"3", False),
        b"c": ("file", b"1", False),
        b"d/x": ("file", b"3", False),
        b"e/f": ("file", b"1", False),
    }


@pytest.mark.rule("WR-1")
async def test_a_file_takes_the_place_of_a_folder_that_had_empty_folders(ws: Workspace) -> None:
    """Found by the campaign: the empty ones went too late."""
    ws.write({"x": b"file"})
    first, seen = await ws.take(), observe(os.fsencode(ws.root))
    (ws.root / "x").unlink()
    ws.write({"x/file": b"1"})
    (ws.root / "x/empty/below").mkdir(parents=True)
    assert await ws.restore(first) == []
    assert observe(os.fsencode(ws.root)) == seen


@pytest.mark.rule("WR-7")
async def test_nothing_is_written_through_a_link_into_git_or_outside(ws: Workspace, tmp_path: Path) -> None:
    """A folder that became a link is left alone, and so is a path that leads elsewhere."""
    ws.write({"d/x": b"1", "y": b"1"})
    first = await ws.take()
    outside = tmp_path / "outside"
    outside.mkdir()
    (ws.root / "d/x").unlink()
    (ws.root / "d").rmdir()
    current = await ws.take()
    (ws.root / "d").symlink_to(outside)
    unsafe = ["../outside/z", ".git/config", "a/.GIT/hooks/x", "/etc/x", "d/../../x", ""]
    base = await ws.layer.combine(ws.point, first.tree, {"z": b"1"})
    assert await ws.layer.restore(ws.point, base, current.tree, ["d/x", *unsafe]) == sorted(["d/x", *unsafe])
    assert list(outside.iterdir()) == []
    with pytest.raises(SnapshotFailed, match="cannot be the path"):
        await ws.layer.combine(ws.point, first.tree, {".git/config": b""})


@pytest.mark.rule("WR-7")
@pytest.mark.parametrize("name", ["0" * 40, "HEAD", "--all", "0" * 40 + "-" + "0" * 40, ""])
async def test_a_state_that_is_not_there_changes_nothing(ws: Workspace, name: str) -> None:
    """Whether it is the target or the state before."""
    ws.write({"a": b"1"})
    first = await ws.take()
    for pair in ((name, first.tree), (first.tree, name)):
        with pytest.raises(SnapshotFailed, match="does not exist any more"):
            await ws.layer.restore(ws.point, *pair, ["a"])
    assert (ws.root / "a").read_bytes() == b"1"


@pytest.mark.rule("WR-2")
async def test_a_restored_file_keeps_who_may_read_it(ws: Workspace) -> None:
    """Only the executable bit is part of a state."""
    ws.write({"a": b"1", "b": b"1"})
    first = await ws.take()
    ws.write({"a": b"2", "b": b"2"})
    (ws.root / "a").chmod(0o700)
    (ws.root / "b").chmod(0o640)
    await ws.restore(first)
    assert [stat.S_IMODE((ws.root / name).stat().st_mode) for name in "ab"] == [0o600, 0o640]


@pytest.mark.rule("WR-4")
async def test_files_are_read_compared_and_put_together(ws: Workspace) -> None:
    """As a revert of one hunk does it. Long differences are shortened, binary ones are not shown."""
    ws.write({"a": b"1\n2\n", "run": b"x", "d/f": b"1", "bin": b"\0"})
    (ws.root / "run").chmod(0o755)
    (ws.root / "link").symlink_to("a")
    (ws.root / "empty").mkdir()
    first = await ws.take()
    ws.write({"a": b"1\n3\n", "bin": b"\0\0", "long": b"line\n" * 100_000})
    second = await ws.take()
    shown = await ws.layer.diff(ws.point, first.tree, second.tree, ["a", "bin", "long", "run", "nowhere"])
    assert sorted(shown) == ["a", "bin", "long"]
    assert shown["a"].endswith("--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n 1\n-2\n+3\n")
    assert shown["bin"].endswith("Binary files a/bin and b/bin differ\n")
    assert shown["long"].endswith("more bytes are not shown.\n")
    assert [one for one in await ws.layer.compare(ws.point, first.tree, None) if one.path == "bin"] == [
        FileChange(path="bin", kind="modified")
    ]
    tree = await ws.layer.combine(
        ws.point, second.tree, {"a": b"1\n", "run": b"y", "d/f": None, "empty/new": b"n", "link": b"b", "long": None}
    )
    ws.write({"a": b"1\n", "run": b"y", "empty/new": b"n"})
    for name in ("d/f", "link", "long"):
        (ws.root / name).unlink()
    (ws.root / "d").rmdir()
    (ws.root / "link").symlink_to("b")
    assert (await ws.take()).tree == tree
    assert [await ws.layer.read(ws.point, tree, name) for name in ("link", "d/f", "d")] == [b"b", None, None]


@pytest.mark.rule("WR-4")
async def test_each_of_many_differences_is_shown_below_its_own_path(ws: Workspace) -> None:
    """Also of a file that became a link or a folder, and where a name or a content looks like a header."""
    names = ["\ndiff --git a", "x", "y", "z", *(f"many/{number}" for number in range(250))]
    ws.write({name: b"diff --git a/x b/x\n" + name.encode() for name in names})
    first = await ws.take()
    ws.write({name: b"diff --git a/y b/y\n" + name.encode() for name in names})
    (ws.root / "x").unlink()
    (ws.root / "x").symlink_to("y")
    (ws.root / "y").unlink()
    ws.write({"y/inside": b"1"})
    shown = await ws.layer.diff(ws.point, first.tree, None, names)
    assert sorted(shown) == sorted(names)
    assert {name: text.count("-diff --git a/x b/x\n") for name, text in shown.items()} == dict.fromkeys(
        sorted(names), 1
    )
    assert "+y\n" in shown["x"]
    assert "+++ /dev/null" in shown["y"]
    assert all(f"\n {name}\n" in text for name, text in shown.items() if name.startswith("many/"))


@pytest.mark.rule("WR-1")
async def test_a_file_that_cannot_be_read_is_not_covered(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named, and a restore does not touch it."""
    ws.write({"a": b"1", "b": b"1"})
    first = await ws.take()
    ws.write({"a": b"2"})
    read = files._read_regular

    def refuse(name: bytes, *others: int) -> object:
        if name == b"a":
            raise PermissionError(13, "Permission denied")
        return read(name, *others)

    monkeypatch.setattr(files, "_read_regular", refuse)
    second = await ws.take()
    assert dict(second.skipped) == {"a": "cannot be read: Permission denied"}
    assert await ws.layer.restore(ws.point, first.tree, second.tree, ["a", "b"]) == ["a"]
    assert (ws.root / "a").read_bytes() == b"2"


@pytest.mark.rule("WR-5", "WR-7")
async def test_a_state_is_written_into_a_worktree_or_a_copy(ws: Workspace, tmp_path: Path) -> None:
    """A worktree of the user's repository at its commit, with the state's files; a folder with files is refused."""
    ws.write({"a": b"1\r\n", "gone": b"1"})
    (ws.root / "empty").mkdir()
    plain = await ws.take()
    await ws.layer.check_out(ws.point, plain.tree, str(tmp_path / "plain"))
    assert observe(os.fsencode(tmp_path / "plain")) == observe(os.fsencode(ws.root))
    assert not (tmp_path / "plain/.git").exists()
    ws.git("init", "-q")
    ws.git("add", "-A")
    ws.git("commit", "-qm", "one")
    (ws.root / "gone").unlink()
    ws.write({"a": b"2"})
    state = await ws.take()
    await ws.layer.check_out(ws.point, state.tree, str(tmp_path / "tree"))
    assert observe(os.fsencode(tmp_path / "tree")) == observe(os.fsencode(ws.root))
    assert ws.git("-C", str(tmp_path / "tree"), "status", "--porcelain") == " M a\n D gone\n"
    # Nor does the user's git run what a repository names for a checkout.
    mark = tmp_path / "mark"
    hook = ws.root / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {mark}\n")
    hook.chmod(0o755)
    for name in ("core.fsmonitor", "filter.evil.smudge", "filter.evil.clean", "core.sshCommand", "core.pager"):
        ws.git("config", name, f"touch {mark}; cat")
    (ws.root / ".git/info/attributes").write_bytes(b"* filter=evil\n")
    await ws.layer.check_out(ws.point, state.tree, str(tmp_path / "other"))
    assert (tmp_path / "other/.git").is_file()
    assert not mark.exists()
    with pytest.raises(SnapshotFailed, match="is not empty"):
        await ws.layer.check_out(ws.point, state.tree, str(tmp_path / "tree"))


@pytest.mark.rule("WR-6")
async def test_what_no_session_names_is_freed(ws: Workspace, tmp_path: Path) -> None:
    """But not what was saved a moment ago, whose name may not be stored yet. Disk use grows with the change."""
    ws.write({f"{number}": os.urandom(5_000) for number in range(20)})
    first = await ws.take()
    full = (await ws.layer.disk_use())[str(ws.root)]
    ws.write({"0": os.urandom(5_000)})
    second = await ws.take()
    assert (await ws.layer.disk_use())[str(ws.root)] - full < 10_000
    careful = GitSnapshots(ws.data)
    assert await careful.collect({}) < 4_000
    assert await ws.layer.read(ws.point, first.tree, "0") is not None
    assert await ws.layer.collect({str(ws.root): {second.tree}}) > 4_000
    with pytest.raises(SnapshotFailed):
        await ws.layer.read(ws.point, first.tree, "0")
    assert len(await ws.saved(second)) == 20
    assert await ws.layer.collect({}) > 90_000
    assert await ws.layer.disk_use() == {}
    assert (await ws.take()).tree == second.tree


@pytest.mark.rule("WR-1")
async def test_an_empty_workspace_is_saved_too(ws: Workspace) -> None:
    """Found by the campaign: git wants another line where nothing changes."""
    empty = await ws.take()
    (ws.root / "folder").mkdir()
    assert (await ws.take()).tree != empty.tree
    # Collecting sees packs only.
    assert list(ws.data.glob("*/git/objects/??/*")) == []
    assert await ws.restore(empty) == []
    assert list(ws.root.iterdir()) == []


@pytest.mark.rule("WR-6")
async def test_many_small_packs_become_one(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost."""
    monkeypatch.setattr(Git, "max_packs", 3)
    taken = []
    for number in range(8):
        ws.write({f"{number}": b"%d" % number})
        taken.append(await ws.take())
    assert [len(await ws.saved(one)) for one in taken] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert len(list(ws.data.rglob("*.pack"))) <= 4


async def test_a_failed_snapshot_leaves_nothing_on_the_disk(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the pack that a git without space did not complete, nor an index; the next snapshot is taken."""
    ws.write({"a": b"old"})
    await ws.take()
    before = {path for path in ws.data.rglob("*") if path.is_file()}
    ws.write({"a": b"new"})
    end, replace = ObjectWriter.end, os.replace

    def fail(writer: ObjectWriter, *_: object) -> str:
        folder = next(ws.data.glob("*/git"))
        (folder / "objects/pack/tmp_pack_x").write_bytes(b"x")
        (folder / "fast_import_crash_1").write_bytes(b"x")
        raise GitFailed("Out of diskspace")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ObjectWriter, "end", fail)
    with pytest.raises(SnapshotFailed, match="Out of diskspace"):
        await ws.take()
    assert {path for path in ws.data.rglob("*") if path.is_file()} == before
    monkeypatch.setattr(ObjectWriter, "end", end)
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(SnapshotFailed, match="No space left"):
        await ws.take()
    monkeypatch.setattr(os, "replace", replace)
    assert not list(ws.data.rglob("*.new"))
    assert await ws.saved(await ws.take()) == {"a": b"new"}


async def test_a_workspace_without_a_folder_has_nothing_to_save(ws: Workspace) -> None:
    """A damaged index or repository is not believed, either."""
    ws.write({"a": b"1"})
    first = await ws.take()
    (index,) = ws.data.glob("*/git/index")
    index.write_bytes(index.read_bytes()[:-30])
    assert await ws.take() == first
    for pack in ws.data.glob("*/git/objects/pack/*"):
        pack.unlink()
    assert await ws.take() == first
    assert await ws.layer.read(ws.point, first.tree, "a") == b"1"
    (ws.root / "a").unlink()
    ws.root.rmdir()
    assert await ws.layer.take(ws.point) is None
    assert [one.kind for one in await ws.layer.compare(ws.point, first.tree, None)] == ["deleted"]
    with pytest.raises(SnapshotFailed, match="create its folder"):
        await ws.layer.restore(ws.point, first.tree, first.tree, ["a"])
