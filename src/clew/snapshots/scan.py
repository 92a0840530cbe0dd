"""Finding the files of a workspace: names only, level by level, without folders that are ignored."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import subprocess
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from clew.platform.files import CLOEXEC, NOFOLLOW, NONBLOCK
from clew.snapshots.base import MORE_SKIPPED, SnapshotsOff
from clew.snapshots.files import escape_name
from clew.snapshots.git import Git, finish, running
from clew.snapshots.index import with_parents

__all__ = ["IgnoreRules", "Scan", "Skipped", "scan"]

_DOT: Final = ord(".")
_SETTLED_NS: Final = 2_000_000_000
_TIMEOUT_S: Final = 60.0
_MAX_SKIPPED: Final = 200
"""Paths that are named as not covered; the others are counted."""


class Skipped:
    """The paths that a snapshot does not cover, with reasons; a limited number of them."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}
        self._more = 0

    def add(self, path: bytes, reason: str) -> None:
        if len(self._reasons) < _MAX_SKIPPED:
            self._reasons[escape_name(path)] = reason
        else:
            self._more += 1

    def listed(self) -> Mapping[str, str]:
        more = {MORE_SKIPPED: f"and {self._more} more"} if self._more else {}
        return {**self._reasons, **more}


class Scan(msgspec.Struct):
    """The names in a workspace: files known already, others that are covered, and folders without a covered file."""

    present: set[bytes]
    new: list[bytes]
    folders: list[bytes]
    inner: set[bytes]
    """Folders that have others."""
    skipped: Skipped
    rules: list[bytes]
    """The ``.gitignore`` files."""


def scan(
    root: bytes,
    known: Container[bytes],
    known_folders: Container[bytes],
    ignored: Callable[[Sequence[bytes], Sequence[bytes]], set[bytes]],
    own: tuple[bytes, ...],
    max_files: int,
) -> Scan:
    """Look through a workspace. ``ignored`` returns those of the files and folders that are; what is known is not asked
    for. ``own`` are clew's own folders and files, which are left out, files with their companions (``-wal``)."""
    found = Scan(set(), [], [], set(), Skipped(), [])
    level = [b""]
    while level:
        folders: list[tuple[bytes, bool]] = []
        others: list[bytes] = []
        with_content: set[bytes] = set()
        for folder in level:
            _list(root, folder, known, known_folders, found, folders, others, with_content)
        unknown = [path for path, is_known in folders if not is_known]
        left_out = ignored(others, unknown) if others or unknown else set()
        for path in others:
            if path in left_out:
                found.skipped.add(path, "is ignored")
            elif os.path.join(root, path).startswith(own):
                found.skipped.add(path, "is clew's own data")
            else:
                found.new.append(path)
                with_content.add(path.rpartition(b"/")[0])
        below = []
        for path, is_known in folders:
            if not is_known and path in left_out:
                found.skipped.add(path + b"/", "is ignored")
            elif os.path.join(root, path) in own:
                found.skipped.add(path + b"/", "has clew's own data")
            else:
                below.append(path)
                found.inner.add(path.rpartition(b"/")[0])
        found.folders += [one for one in level if one and one not in with_content and one not in found.inner]
        if len(found.present) + len(found.new) > max_files:
            raise SnapshotsOff(
                f"Snapshots are off: this workspace has more than {max_files:,} files. "
                "Add what need not be saved to .gitignore, or raise snapshots.max_files."
            )
        level = below
    return found


def _list(
    root: bytes,
    folder: bytes,
    known: Container[bytes],
    known_folders: Container[bytes],
    found: Scan,
    folders: list[tuple[bytes, bool]],
    others: list[bytes],
    with_content: set[bytes],
) -> None:
    prefix = folder + b"/" if folder else b""
    try:
        listing = os.scandir(os.path.join(root, folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        found.skipped.add(prefix, f"cannot be read: {error.strerror}")
        # Not empty, as far as is known.
        with_content.add(folder)
        return
    count = len(found.present)
    present, new_folder, new_other = found.present.add, folders.append, others.append
    with listing:
        for entry in listing:
            name = entry.name
            path = prefix + name
            if name[0] == _DOT and name[:4].lower() == b".git" and _is_git_name(entry, path, found):
                continue
            if entry.is_dir(follow_symlinks=False):
                new_folder((path, path in known_folders))
            elif path in known:
                present(path)
            elif entry.is_file(follow_symlinks=False) or entry.is_symlink():
                new_other(path)
            else:
                found.skipped.add(path, "is a special file")
    if len(found.present) > count:
        with_content.add(folder)


def _is_git_name(entry: os.DirEntry[bytes], path: bytes, found: Scan) -> bool:
    """Note a ``.gitignore``; return whether git cannot store this name."""
    name = entry.name
    if name == b".gitignore" and not entry.is_dir(follow_symlinks=False):
        if not (entry.is_symlink() or entry.is_file(follow_symlinks=False)):
            # git would wait for a writer.
            raise SnapshotsOff(
                f"Snapshots are off: {escape_name(path)} is a special file. Remove it to switch them on."
            )
        found.rules.append(path)
    if name.lower() == b".git":
        if name != path:
            found.skipped.add(path, "is the .git of a nested repository")
        elif name != b".git":
            found.skipped.add(path, "has a name that git reserves")
        return True
    if name.lower() == b".gitmodules" and entry.is_symlink():
        found.skipped.add(path, "has a name that git reserves")
        return True
    return False


class IgnoreRules:
    """The rules of what is ignored in a workspace: its ``.gitignore`` files, those above it up to the root of its
    repository, and the repository's ``info/exclude``. A file that the user's index has is not ignored.

    ``include`` are patterns of paths that are covered although they are ignored.
    """

    def __init__(self, git: Git, workspace: bytes, include: Sequence[str], known: tuple[str, list[bytes]]) -> None:
        """``known`` are the ignored files that the user's index had, and how it looked."""
        self._git = git
        self._workspace = workspace
        self._known = known
        self._include = [(pattern, _compile(pattern)) for pattern in include]
        self._top, self._git_dir = _find_repository(workspace)
        self._listing: subprocess.Popen[bytes] | None = None
        self._forced: set[bytes] | None = None
        self.user_index = ""
        if self._top not in (None, workspace) and self._matching([os.path.join(b"..", os.path.basename(workspace))]):
            # That repository has nothing to do with this folder: one for the settings in a home folder, for example.
            self._top, self._git_dir = None, None

    def __enter__(self) -> IgnoreRules:
        """Ask for the files of the user's index, which :meth:`forced` returns, unless it looks as it did."""
        index = None if self._git_dir is None else os.path.join(self._git_dir, b"index")
        if index is None or not os.path.isfile(index):
            self._forced = set()
            return self
        status = os.stat(index)
        # One that has just changed may change again without a difference.
        if max(status.st_mtime_ns, status.st_ctime_ns) < time.time_ns() - _SETTLED_NS:
            self.user_index = f"{status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
        if self.user_index and self.user_index == self._known[0]:
            self._forced = set(self._known[1])
        else:
            self._listing = self._start("ls-files", "-z", "-c", "-i", "--exclude-standard", index=index)
        return self

    def __exit__(self, *_: object) -> None:
        if self._listing is not None:
            with running(self._listing):
                pass

    def digest(self, files: Iterable[bytes], *others: object) -> str:
        """Return a digest of everything that decides what is ignored. ``files`` are the ``.gitignore`` files."""
        digest = hashlib.sha256(repr((sorted(pattern for pattern, _ in self._include), others)).encode())
        above = [self._workspace]
        while self._top is not None and above[-1] != self._top:
            above.append(os.path.dirname(above[-1]))
        paths = [os.path.join(self._workspace, path) for path in sorted(files)]
        paths += [os.path.join(folder, b".gitignore") for folder in above[1:]]
        if self._git_dir is not None:
            paths.append(self._exclude)
        for path in paths:
            try:
                content = b"" if os.path.islink(path) else _read_rules(path)
            except OSError:
                content = b""
            digest.update(b"%d %b %d %b" % (len(path), path, len(content), content))
        for path in sorted(self.forced()):
            digest.update(b"%d %b" % (len(path), path))
        return digest.hexdigest()

    def ignored(self, files: Sequence[bytes], folders: Sequence[bytes]) -> set[bytes]:
        """Return those of the files and folders that are ignored."""
        found = self._matching([*files, *folders])
        if found:
            found -= self.forced()
        if found and self._include:
            wanted = {path for path in found if self._is_included(path)}
            found -= wanted | {path for path in folders if path in found and self._leads_to_included(path)}
        return found

    def _matching(self, paths: Sequence[bytes]) -> set[bytes]:
        # With "./" a colon at the start of a name has no meaning.
        listed = b"".join(b"./%b\0" % path for path in paths)
        with running(self._start("check-ignore", "--no-index", "-z", "--stdin", input=subprocess.PIPE)) as process:
            output = finish(process, listed, accept=(0, 1), timeout_s=_TIMEOUT_S)
        return {path.removeprefix(b"./") for path in output.split(b"\0")[:-1]}

    def forced(self) -> set[bytes]:
        """Return the ignored files that the user's index has, and their folders."""
        if self._forced is None:
            # An index that this git cannot read counts for nothing.
            output = b"" if self._listing is None else finish(self._listing, accept=(0, 128))
            self._forced = with_parents(output.split(b"\0")[:-1])
        return self._forced

    @property
    def _exclude(self) -> bytes:
        assert self._git_dir is not None
        try:
            # A worktree shares it with its repository.
            common = _read_rules(os.path.join(self._git_dir, b"commondir")).rstrip(b"\n")
        except OSError:
            common = b"."
        path = os.path.join(self._git_dir, common, b"info", b"exclude")
        return path if os.path.isfile(path) else os.devnull.encode()

    def _start(self, *arguments: str, index: bytes | None = None, input: int | None = None) -> subprocess.Popen[bytes]:
        excludes = [] if self._git_dir is None else [b"-c", b"core.excludesFile=" + self._exclude]
        work_tree = self._top or self._workspace
        return self._git.start(
            *excludes, "-C", self._workspace, *arguments, work_tree=work_tree, index=index, input=input
        )

    def _is_included(self, path: bytes) -> bool:
        text = os.fsdecode(path)
        return any(compiled.fullmatch(text) for _, compiled in self._include)

    def _leads_to_included(self, folder: bytes) -> bool:
        text = os.fsdecode(folder)
        return any(_may_contain(pattern, text) for pattern, _ in self._include)


def _compile(pattern: str) -> re.Pattern[str]:
    """Translate a pattern: without a slash it is a name anywhere, with one a path from the root. ``**`` crosses
    folders. What is below a match is included, too."""
    anywhere = "/" not in pattern.rstrip("/")
    parts = pattern.strip("/").split("/")
    translated = [".*" if part == "**" else fnmatch.translate(part)[4:-3].replace(".*", "[^/]*") for part in parts]
    return re.compile(("(?:.*/)?" if anywhere else "") + "/".join(translated) + "(?:/.*)?", re.DOTALL)


def _may_contain(pattern: str, folder: str) -> bool:
    parts = pattern.strip("/").split("/")
    if len(parts) == 1:
        return False
    for part, name in zip(parts[:-1], folder.split("/"), strict=False):
        if part == "**":
            return True
        if not fnmatch.fnmatchcase(name, part):
            return False
    return folder.count("/") < len(parts) - 1


def _read_rules(path: bytes) -> bytes:
    # A pipe of that name must not block.
    with open(os.open(path, os.O_RDONLY | NONBLOCK | CLOEXEC | NOFOLLOW), "rb") as file:
        return file.read(1 << 20)


def _find_repository(workspace: bytes) -> tuple[bytes | None, bytes | None]:
    """Return the root of the repository that has a workspace, and its git folder."""
    folder = workspace
    while True:
        git_dir = os.path.join(folder, b".git")
        if os.path.isfile(git_dir):
            try:
                content = _read_rules(git_dir)
            except OSError:
                return None, None
            if not content.startswith(b"gitdir: "):
                return None, None
            return folder, os.path.join(folder, content[8:].rstrip(b"\n"))
        if os.path.isfile(os.path.join(git_dir, b"HEAD")):
            return folder, git_dir
        if folder == os.path.dirname(folder):
            return None, None
        folder = os.path.dirname(folder)
