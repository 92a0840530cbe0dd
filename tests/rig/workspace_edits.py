"""Random changes of a workspace, as a person, an editor and shell commands make them, and what is in it afterwards.

The observation is a plain walk that knows nothing of git but the few forms of ignore rules that the edits write.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import subprocess
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

__all__ = ["MAX_FILE_BYTES", "Edits", "Seen", "digest_of", "observe", "raw_state"]

MAX_FILE_BYTES: Final = 64 * 1024
_NAMES: Final = (
    *(b"a", b"b", b"c", b"A", b"x.txt", b"X.txt", b"f.log", b"build", b"lib", b"-dash", b"sp ace", b":(top)x", b"*"),
    *("ü".encode(), "u\u0308".encode(), "日本".encode(), b"\xff\xfe", b"new\nline", b'q"uo\\te', b"\\x41", b"\t", b"'"),
    *(b".gitmodules", b".gitkeep", b"git~1", b".clew-x", b"#", b"!x", b"end "),
)
_RULES: Final = (b"*.log\n", b"/build/\n", b"lib/\n", b"*.log\n/build/\n", b"", b"/build/\nlib/\n")
_ATTRIBUTES: Final = (
    b"* filter=evil\n",
    b"* text=auto eol=crlf\n*.txt text ident working-tree-encoding=UTF-16\n",
    b"[attr]filter text=auto\n* filter ident export-subst eol=lf\n",
    b"* binary -diff merge=evil diff=evil\n",
)
State = tuple[str, bytes, bool]
"""``file`` or ``link``, its content or target, and whether it is executable."""


class Seen(NamedTuple):
    """The covered part of a workspace."""

    files: dict[bytes, State]
    folders: set[bytes]


def raw_state(path: bytes) -> State | None:
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return None
    if stat.S_ISLNK(status.st_mode):
        return "link", os.readlink(path), False
    if stat.S_ISREG(status.st_mode):
        with open(path, "rb") as file:
            return "file", file.read(), bool(status.st_mode & 0o100)
    return None


def digest_of(folder: bytes) -> dict[bytes, State | None]:
    """Return everything in a ``.git``."""
    return {
        os.path.join(above, name): raw_state(os.path.join(above, name))
        for above, _, names in os.walk(folder)
        for name in names
    }


def _suffixes_and_folders(rules: bytes) -> tuple[bool, set[bytes], set[bytes]]:
    lines = set(rules.replace(b"\r\n", b"\n").split(b"\n"))
    return (
        b"*.log" in lines,
        {b"build"} & {line.strip(b"/") for line in lines},
        {b"lib"} & {one.strip(b"/") for one in lines},
    )


def observe(root: bytes) -> Seen:
    """Return what a snapshot of a workspace must have."""
    rules = raw_state(os.path.join(root, b".gitignore"))
    logs, at_root, anywhere = _suffixes_and_folders(rules[1] if rules is not None and rules[0] == "file" else b"")
    forced: set[bytes] = set()
    if logs or at_root or anywhere:
        forced = _tracked(root)
    seen = Seen({}, set())
    _walk(root, b"", (logs, at_root, anywhere), forced, False, seen)
    return seen


def _tracked(root: bytes) -> set[bytes]:
    if not os.path.isdir(os.path.join(root, b".git")):
        return set()
    listed = subprocess.run([b"git", b"-C", root, b"ls-files", b"-z"], capture_output=True, check=True).stdout
    paths: set[bytes] = set()
    for path in listed.split(b"\0")[:-1]:
        while path and path not in paths:
            paths.add(path)
            path = path.rpartition(b"/")[0]
    return paths


def _walk(
    root: bytes,
    folder: bytes,
    rules: tuple[bool, set[bytes], set[bytes]],
    forced: set[bytes],
    in_ignored: bool,
    seen: Seen,
) -> None:
    covered = False
    for name in sorted(os.listdir(os.path.join(root, folder))):
        path = os.path.join(folder, name)
        status = os.lstat(os.path.join(root, path))
        is_folder = stat.S_ISDIR(status.st_mode)
        if name.lower() == b".git" or (name.lower() == b".gitmodules" and stat.S_ISLNK(status.st_mode)):
            continue
        ignored = in_ignored or (rules[0] and name.endswith(b".log"))
        if is_folder:
            ignored = ignored or (not folder and name in rules[1]) or name in rules[2]
        if ignored and path not in forced:
            continue
        if is_folder:
            covered = True
            _walk(root, path, rules, forced, ignored, seen)
        elif stat.S_ISLNK(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_size <= MAX_FILE_BYTES):
            covered = True
            state = raw_state(os.path.join(root, path))
            assert state is not None
            seen.files[path] = state
    if folder and not covered:
        seen.folders.add(folder)


class Edits:
    """Random edits of one workspace. ``git`` tells whether it is a repository of the user."""

    def __init__(self, root: bytes, random: Random, template: Path) -> None:
        self._root = root
        self._random = random
        self._template = template
        self.has_repository = random.random() < 0.5
        os.mkdir(root)
        if self.has_repository:
            shutil.copytree(template, os.path.join(os.fsdecode(root), ".git"))

    def run(self, count: int) -> None:
        kinds = (
            *((self.write,) * 6),
            *((self.change,) * 4),
            *(self.append, self.same_size, self.remove, self.remove_tree, self.move, self.case_rename, self.chmod),
            *(
                self.link,
                self.empty_folder,
                self.empty_folder,
                self.swap_kind,
                self.rules,
                self.attributes,
                self.special,
            ),
            *(self.large, self.nested, self.hard_link),
        )
        for _ in range(count):
            kind = self._random.choice(kinds)
            # Many edits do not fit what is there.
            with contextlib.suppress(OSError, shutil.Error):
                kind()
        if self._random.random() < 0.02:
            self.many(self._random.choice((300, 300, 3_000)))
        if self.has_repository and self._random.random() < 0.3:
            self.user_git()

    def path(self, parent: bytes | None = None) -> bytes:
        """Return a path that need not exist, in a folder that does."""
        folder = self.folder() if parent is None else parent
        return os.path.join(folder, self._random.choice(_NAMES))

    def existing(self) -> bytes:
        found = [os.path.join(above, name) for above, _, names in self._tree() for name in names]
        return self._random.choice(found) if found else self.path()

    def folder(self) -> bytes:
        return self._random.choice([above for above, _, _ in self._tree()])

    def _tree(self) -> list[tuple[bytes, list[bytes], list[bytes]]]:
        found = []
        for above, below, names in os.walk(self._root):
            below[:] = sorted(name for name in below if name.lower() != b".git")
            found.append((above, below, sorted(names)))
        return found

    def content(self) -> bytes:
        kind = self._random.randrange(6)
        if kind == 0:
            return b""
        if kind == 1:
            return self._random.randbytes(self._random.randrange(300))
        lines = [b"line %d" % self._random.randrange(9) for _ in range(self._random.randrange(1, 8))]
        if kind == 2:
            return b"\r\n".join(lines)
        return b"\n".join([*lines, b"$Id$ $Format:%H$", b""][: self._random.choice((None, -1))])

    def write(self) -> None:
        path = self.path()
        if self._random.random() < 0.4:
            os.makedirs(path, exist_ok=True)
            path = self.path(path)
        with open(path, "xb") as file:
            file.write(self.content())
        if self._random.random() < 0.2:
            os.chmod(path, 0o755)
        if self._random.random() < 0.3:
            # As unpacked from an archive.
            os.utime(path, (1_600_000_000, 1_600_000_000))

    def change(self) -> None:
        path = self.existing()
        if stat.S_ISREG(os.lstat(path).st_mode):
            with open(path, "wb") as file:
                file.write(self.content())

    def append(self) -> None:
        path = self.existing()
        if stat.S_ISREG(os.lstat(path).st_mode):
            with open(path, "ab") as file:
                file.write(b"more\r\n")

    def same_size(self) -> None:
        """Change a file so that neither its size nor its time of change tell."""
        path = self.existing()
        status = os.lstat(path)
        if stat.S_ISREG(status.st_mode) and status.st_size:
            with open(path, "r+b") as file:
                first = file.read(1)
                file.seek(0)
                file.write(bytes([first[0] ^ 1]))
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def remove(self) -> None:
        os.unlink(self.existing())

    def remove_tree(self) -> None:
        if (folder := self.folder()) != self._root:
            shutil.rmtree(folder)

    def move(self) -> None:
        source = self._random.choice((self.existing(), self.folder()))
        if source != self._root:
            os.rename(source, self.path())

    def case_rename(self) -> None:
        path = self.existing()
        folder, name = os.path.split(path)
        os.rename(path, os.path.join(folder, name.swapcase()))

    def chmod(self) -> None:
        path = self.existing()
        if stat.S_ISREG(mode := os.lstat(path).st_mode):
            os.chmod(path, mode ^ 0o111)

    def link(self) -> None:
        target = self._random.choice((b"a", b"/etc/passwd", b"../..", b"nowhere", b"lib", self.existing()))
        os.symlink(target, self.path())

    def empty_folder(self) -> None:
        os.makedirs(os.path.join(self.path(), self._random.choice(_NAMES)))

    def swap_kind(self) -> None:
        """Make a folder of a file, or a file of a folder."""
        path = self._random.choice((self.existing(), self.folder()))
        if path == self._root:
            return
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
            with open(path, "wb") as file:
                file.write(self.content())
        else:
            os.unlink(path)
            os.mkdir(path)
            with open(self.path(path), "wb") as file:
                file.write(self.content())

    def rules(self) -> None:
        if self._random.random() < 0.5:
            self._overwrite(b".gitignore", self._random.choice(_RULES))

    def attributes(self) -> None:
        self._overwrite(b".gitattributes", self._random.choice(_ATTRIBUTES))

    def _overwrite(self, name: bytes, content: bytes) -> None:
        path = os.path.join(self._root, name)
        if os.path.isfile(path) and not os.path.islink(path):
            os.unlink(path)
        with open(path, "xb") as file:
            file.write(content)

    def special(self) -> None:
        os.mkfifo(self.path())

    def large(self) -> None:
        with open(self.path(), "xb") as file:
            file.write(b"x" * (MAX_FILE_BYTES + self._random.choice((0, 1))))

    def nested(self) -> None:
        shutil.copytree(self._template, os.path.join(os.fsdecode(self.folder()), ".git"))

    def hard_link(self) -> None:
        os.link(self.existing(), self.path(), follow_symlinks=False)

    def many(self, count: int) -> None:
        folder = os.path.join(self.folder(), b"many")
        os.makedirs(folder, exist_ok=True)
        for number in range(count):
            with open(os.path.join(folder, b"%d" % number), "wb") as file:
                file.write(b"%d\n" % number)

    def user_git(self) -> None:
        commands = (
            "add -A",
            "commit -qm one",
            "stash -q",
            "checkout -q .",
            "stash pop -q",
            "reset -q --hard",
            "clean -qfd",
        )
        for command in self._random.sample(commands, 2):
            subprocess.run(["git", "-C", self._root, *command.split()], capture_output=True, check=False)
