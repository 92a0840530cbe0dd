"""The git program in a private repository: no config, attributes, hooks or environment of anyone else reaches it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Final

from clew.errors import SnapshotFailed
from clew.failpoints import failpoint
from clew.ids import random_name
from clew.platform.files import CLOEXEC
from clew.snapshots.base import SnapshotsOff

__all__ = ["EMPTY_TREE", "BlobReader", "Git", "GitFailed", "ObjectWriter", "blob_id", "find_git", "user_git"]

EMPTY_TREE: Final = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

_TIMEOUT_S: Final = 600.0
_MAX_ARGUMENT_BYTES: Final = 60_000
_CONFIG: Final = b"""[core]
\trepositoryformatversion = 0
\tbare = true
\tfilemode = true
\tsymlinks = true
\tignorecase = false
\tprecomposeunicode = false
\tquotepath = false
\tautocrlf = false
\tfsmonitor = false
\tuntrackedCache = false
\tsplitIndex = false
\tprotectNTFS = false
\tprotectHFS = false
\thooksPath = /dev/null
\tattributesFile = /dev/null
\texcludesFile = /dev/null
\tbigFileThreshold = 512m
\tcompression = 1
\tsharedRepository = 0600
\tlogAllRefUpdates = false
[gc]
\tauto = 0
[fastimport]
\tunpackLimit = 0
[pack]
\tthreads = 1
"""
# Attributes have no effect on bytes here: this file has precedence over each one in a workspace.
_ATTRIBUTES: Final = b"* -text -eol -crlf -ident -filter -working-tree-encoding -export-subst !diff !merge\n"


class GitFailed(Exception):
    """The git program failed; the message is its own."""


@functools.cache
def find_git() -> str:
    """Return the path of the git program, or raise :class:`SnapshotsOff`."""
    program = shutil.which("git")
    if program is None:
        raise SnapshotsOff(
            "Snapshots are off: there is no git program. Install git and restart clew to switch them on."
        )
    return os.path.abspath(program)


def blob_id(data: bytes) -> str:
    """Return git's name of a content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


class Git:
    """A private repository, which only this layer writes to."""

    max_packs = 32
    """More packs than this are combined."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.index = folder / "index"

    def create(self) -> None:
        """Make the repository unless it exists. Nothing is read from templates or config."""
        if (self.folder / "config").exists():
            return
        for name in ("objects/info", "objects/pack", "refs/heads", "info"):
            _make_private(self.folder / name)
        for name, content in (
            ("HEAD", b"ref: refs/heads/none\n"),
            ("info/attributes", _ATTRIBUTES),
            ("config", _CONFIG),
        ):
            write_private(self.folder / name, content)

    def start(
        self,
        *arguments: str | bytes,
        work_tree: bytes | None = None,
        index: bytes | None = None,
        input: int | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a git command. Its environment has nothing of this process but the path of programs."""
        environment: dict[str, str | bytes] = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.folder),
            "XDG_CONFIG_HOME": str(self.folder),
            "LC_ALL": "C",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_SYSTEM": os.devnull,
            "GIT_DIR": str(self.folder),
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
        }
        command: list[str | bytes] = [find_git()]
        if work_tree is not None:
            # Without a work tree git reads no attributes from one.
            command += ["-c", "core.bare=false"]
            environment["GIT_WORK_TREE"] = work_tree
        if index is not None:
            environment["GIT_INDEX_FILE"] = index
        return subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.DEVNULL if input is None else input,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            umask=0o077,
            cwd=self.folder,
        )

    def run(self, *arguments: str | bytes, input: bytes = b"") -> bytes:
        """Run a command on the objects and return its output."""
        with self.start(*arguments, input=subprocess.PIPE) as process:
            return finish(process, input)

    def has(self, names: Sequence[str]) -> list[bool]:
        """Return for each name whether it is an object of this repository."""
        output = self.run("cat-file", "--batch-check", input="".join(f"{name}\n" for name in names).encode())
        return [not line.endswith(b" missing") for line in output.splitlines()]

    def list_tree(self, tree: str, paths: Sequence[bytes] = ()) -> dict[bytes, tuple[int, str]]:
        """Return the mode and the name of the content of each file in a tree, or of those paths that are there."""
        few = sum(map(len, paths)) < _MAX_ARGUMENT_BYTES
        wanted = set(paths)
        only: list[bytes] = [b"--", *paths] if few and paths else []
        output = self.run("--literal-pathspecs", "ls-tree", "-r", "-z", "--full-tree", tree, *only)
        listed = {}
        for line in output.split(b"\0")[:-1]:
            about, _, path = line.partition(b"\t")
            if not paths or path in wanted:
                mode, _, name = about.split(b" ")
                listed[path] = int(mode, 8), name.decode()
        return listed

    # packs

    @property
    def _pack_folder(self) -> Path:
        return self.folder / "objects" / "pack"

    def packs(self) -> list[Path]:
        """Return the packs, the smallest first."""
        found = [path for path in self._pack_folder.glob("pack-*.pack") if path.with_suffix(".idx").exists()]
        return sorted(found, key=lambda path: path.stat().st_size)

    def combine_packs(self) -> None:
        """Combine the small packs once there are many, so that each object is copied a few times at most."""
        packs = self.packs()
        if len(packs) <= self.max_packs:
            return
        total, count = 0, 0
        for number, pack in enumerate(packs):
            if number > self.max_packs // 2 and pack.stat().st_size > total:
                break
            total, count = total + pack.stat().st_size, number + 1
        names = b"".join(
            line.split(b" ")[1] + b"\n"
            for pack in packs[:count]
            for line in self.run("show-index", input=pack.with_suffix(".idx").read_bytes()).splitlines()
        )
        self._replace_packs(packs[:count], names)

    def keep_only(self, roots: Sequence[str]) -> None:
        """Remove every object that no root leads to."""
        self.remove_leftovers()
        output = self.run(
            "rev-list", "--objects", "--no-object-names", "--stdin", input="\n".join([*roots, ""]).encode()
        )
        self._replace_packs(self.packs(), output)

    def _replace_packs(self, packs: list[Path], names: bytes) -> None:
        base = self._pack_folder / "pack"
        made = self.run("pack-objects", "-q", "--non-empty", str(base), input=names).split()
        failpoint("snapshots.before_pack_removal")
        for pack in packs:
            if pack.stem.removeprefix("pack-").encode() not in made:
                # Without its index a pack is not used, so this one goes first.
                for path in (pack.with_suffix(".idx"), pack, pack.with_suffix(".rev")):
                    path.unlink(missing_ok=True)
        self.remove_leftovers()

    def remove_leftovers(self) -> None:
        """Remove what a killed git command left. Only while no other process writes here."""
        leftovers = self._pack_folder.glob("tmp_*"), self.folder.glob("fast_import_crash_*"), self.folder.glob("*.new")
        for path in itertools.chain(*leftovers):
            path.unlink(missing_ok=True)
        for path in self._pack_folder.glob("pack-*"):
            if not path.with_suffix(".idx").exists():
                path.unlink(missing_ok=True)


def finish(
    process: subprocess.Popen[bytes],
    input: bytes | None = None,
    accept: Sequence[int] = (0,),
    timeout_s: float = _TIMEOUT_S,
) -> bytes:
    """Return the output of a command, or raise :class:`GitFailed` with its message."""
    try:
        output, errors = process.communicate(input, timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise SnapshotFailed(f"git did not finish within {timeout_s:g} seconds.") from error
    finally:
        if process.poll() is None:
            process.kill()
    if process.returncode not in accept:
        message = errors.decode(errors="replace").strip()[-500:]
        raise GitFailed(f"git failed with exit code {process.returncode}: {message}")
    return output


class ObjectWriter:
    """A writer of one pack: contents first, then the tree that has them. Nothing is visible before it has ended."""

    def __init__(self, git: Git) -> None:
        self._process = git.start("fast-import", "--quiet", "--done", "--force", "--depth=0", input=subprocess.PIPE)
        assert self._process.stdin is not None
        self._pipe: IO[bytes] = self._process.stdin
        self._written: set[str] = set()

    def __enter__(self) -> ObjectWriter:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        with contextlib.suppress(OSError):
            self._pipe.close()
        self._process.__exit__(None, None, None)

    def add(self, data: bytes, name: str) -> None:
        """Write a content."""
        if name not in self._written:
            self._written.add(name)
            self._send(b"blob\ndata %d\n%b\n" % (len(data), data))

    def end(self, base: str, removed: Iterable[bytes], changed: Iterable[tuple[bytes, int, str]]) -> str:
        """Return the tree that equals ``base`` without the removed paths, and with the changed ones."""
        lines = [b"commit refs/heads/none\nmark :1\ncommitter clew <> 0 +0000\ndata 0\n\n"]
        if base != EMPTY_TREE:
            lines.append(b'M 040000 %b ""\n' % base.encode())
        lines += [b"D %b\n" % _quote(path) for path in removed]
        lines += [b"M %06o %b %b\n" % (mode, name.encode(), _quote(path)) for path, mode, name in changed]
        lines.append(b'\nls :1 ""\ndone\n')
        failpoint("snapshots.before_tree")
        # Where the pipe is broken, the message of git says more.
        with contextlib.suppress(BrokenPipeError):
            self._pipe.write(b"".join(lines))
        output = finish(self._process)
        shown = re.fullmatch(rb"040000 tree ([0-9a-f]{40})\t\n|missing \n", output)
        if shown is None:
            raise GitFailed(f"git answered {output[:100]!r}")
        failpoint("snapshots.after_tree")
        return shown[1].decode() if shown[1] else EMPTY_TREE

    def _send(self, data: bytes) -> None:
        try:
            self._pipe.write(data)
        except BrokenPipeError:
            finish(self._process)
            raise


def _quote(path: bytes) -> bytes:
    return b'"' + path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n") + b'"'


class BlobReader:
    """A reader of contents by their names."""

    def __init__(self, git: Git) -> None:
        self._process = git.start("cat-file", "--batch", input=subprocess.PIPE)

    def __enter__(self) -> BlobReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.__exit__(None, None, None)

    def read(self, name: str) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(name.encode() + b"\n")
        self._process.stdin.flush()
        header = self._process.stdout.readline().split()
        if len(header) != 3:
            raise GitFailed(f"The content {name} of a snapshot is missing.")
        size = int(header[2])
        data = self._process.stdout.read(size + 1)
        if len(data) != size + 1:
            raise GitFailed(f"The content {name} of a snapshot cannot be read.")
        return data[:-1]


def user_git(folder: str, *arguments: str) -> bytes | None:
    """Run git in a repository of the user, without hooks and monitors; None if it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    # A missing object must not be fetched: that may run a program that the repository names.
    environment |= {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    safe = ("-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false", "-c", "gc.auto=0")
    ran = subprocess.run(
        [find_git(), "-C", folder, *safe, *arguments],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env=environment,
        timeout=_TIMEOUT_S,
        check=False,
    )
    return ran.stdout if ran.returncode == 0 else None


def _make_private(folder: Path) -> None:
    for path in (*reversed(folder.parents), folder):
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)


def write_private(path: Path, content: bytes) -> None:
    """Replace a file in one step; only its owner can read it."""
    temporary = path.with_name(f"{path.name}.{random_name()}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    os.replace(temporary, path)


@contextlib.contextmanager
def running(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """End a command with the block that started it."""
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.__exit__(None, None, None)
