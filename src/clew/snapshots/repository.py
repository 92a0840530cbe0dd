"""The saved states of one workspace, for one process at a time."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

import msgspec

from clew.errors import SnapshotFailed
from clew.failpoints import failpoint
from clew.platform.files import CLOEXEC
from clew.platform.locks import lock
from clew.snapshots import restore as writing
from clew.snapshots.base import FileChange, SavedTree, SnapshotsOff
from clew.snapshots.files import PLAIN, Folders, NotCovered, SavedFile, escape_name, is_safe, unescape_name
from clew.snapshots.git import (
    EMPTY_TREE,
    BlobReader,
    Git,
    GitFailed,
    ObjectWriter,
    blob_id,
    finish,
    running,
    user_git,
    write_private,
)
from clew.snapshots.index import Index, IndexState, entry_of, mode_and_name, read_index, size_of
from clew.snapshots.scan import IgnoreRules, Scan, Skipped, scan

__all__ = ["Limits", "Repository"]

_ATTEMPTS: Final = 3
_NAME: Final = re.compile(r"([0-9a-f]{40})(?:-([0-9a-f]{40}))?", re.ASCII)
_DIFFS_AT_ONCE: Final = 100
_MAX_DIFF_BYTES: Final = 256 * 1024
_MAX_TEXT_BYTES: Final = 2 * 1024 * 1024


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a workspace, the ignored files that are covered, and clew's own data, which is not."""

    max_files: int = 200_000
    max_bytes: int = 2 * 1024**3
    max_file_bytes: int = 20 * 1024**2
    include: tuple[str, ...] = ()
    own: tuple[str, ...] = ()


class Repository:
    """A private git repository with the saved states of a workspace. Blocking.

    A saved state is a tree, and a list of empty folders if there are any: ``tree`` or ``tree-list``, by git's names.
    """

    def __init__(self, folder: Path, workspace: str, limits: Limits) -> None:
        self._folder = folder
        self._workspace = os.fsencode(workspace)
        self._limits = limits
        self._git = Git(folder / "git")
        self._journal = folder / "restoring"
        self._recent = folder / "recent"

    @property
    def exists(self) -> bool:
        return (self._folder / "workspace").exists()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes and threads out. The lock of a killed process is free."""
        self._folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Beside the folder: collecting may remove that.
        descriptor = os.open(self._folder.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | CLOEXEC, 0o600)
        try:
            lock(descriptor, wait=True)
            yield
        finally:
            os.close(descriptor)

    def take(self) -> SavedTree | None:
        with self.locked():
            if not os.path.isdir(self._workspace):
                return None
            self._prepare()
            for attempt in range(_ATTEMPTS):
                try:
                    return self._take(with_index=attempt < _ATTEMPTS - 1)
                except (GitFailed, OSError) as error:
                    # On a full disk a pack that was not completed would keep it full.
                    self._git.remove_leftovers()
                    # The workspace may have changed under git's eyes. The last attempt does not rely on the index.
                    if attempt == _ATTEMPTS - 1 or isinstance(error, OSError):
                        raise
            raise AssertionError("unreachable")

    def compare(self, before: str, after: str) -> list[FileChange]:
        with self.locked():
            pair = [self._tree(before), self._tree(after)]
            output = self._git.run(
                "diff-tree", "-r", "-z", "--no-renames", "--raw", "--numstat", "--no-ext-diff", *pair
            )
        return _changes(output)

    def diff(self, before: str, after: str, paths: Sequence[str]) -> dict[str, str]:
        """Return unified diffs, shortened where they are long; a file that is not text is said to be binary."""
        named = [path for path in map(unescape_name, paths) if is_safe(path)]
        shown: dict[str, str] = {}
        with self.locked():
            pair = [self._tree(before), self._tree(after)]
            for first in range(0, len(named), _DIFFS_AT_ONCE):
                batch = named[first : first + _DIFFS_AT_ONCE]
                for path, text in self._diffs(pair, batch).items():
                    if path in batch:
                        shown[escape_name(path)] = _shorten(text)
        return shown

    def _diffs(self, pair: list[str], paths: list[bytes]) -> dict[bytes, bytes]:
        """Return the differences of these paths, and of those below if one is a folder in the other tree."""
        command = ("diff-tree", "-r", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color")
        limit = ("--literal-pathspecs", "-c", f"core.bigFileThreshold={_MAX_TEXT_BYTES}")
        fields = self._git.run(*limit, *command, "-z", "--raw", *pair, "--", *paths).split(b"\0")[:-1]
        patch = self._git.run(*limit, *command, "-p", "--src-prefix=a/", "--dst-prefix=b/", *pair, "--", *paths)
        sections = iter(re.split(rb"^(?=diff --git )", patch, flags=re.MULTILINE)[1:])
        # Git shows a file that became a link as two differences.
        return {
            path: b"".join(itertools.islice(sections, 2 if about.endswith(b" T") else 1))
            for about, path in zip(fields[::2], fields[1::2], strict=True)
        }

    def read(self, tree: str, path: str) -> bytes | None:
        with self.locked():
            name = unescape_name(path)
            saved = self._tree(tree)
            found = self._git.list_tree(saved, [name]).get(name) if is_safe(name) else None
            return None if found is None else self._git.run("cat-file", "blob", found[1])

    def combine(self, base: str, files: Mapping[str, bytes | None]) -> str:
        named = {unescape_name(path): data for path, data in files.items()}
        if unsafe := [path for path in named if not is_safe(path)]:
            raise SnapshotFailed(f"{escape_name(unsafe[0])} cannot be the path of a saved file.")
        with self.locked(), ObjectWriter(self._git) as writer:
            state = self._state(base, list(named))
            changed = []
            for path, data in named.items():
                if data is not None:
                    name = blob_id(data)
                    writer.add(data, name)
                    changed.append((path, state.files.get(path, (PLAIN, ""))[0], name))
            parents = {path[: at.start()] for path, _, _ in changed for at in re.finditer(b"/", path)}
            folders = sorted(state.folders - parents - {path for path, _, _ in changed})
            listed = _write_folders(writer, folders)
            tree = writer.end(self._tree(base), (path for path in named), changed)
            return self._remember(tree, listed)

    def restore(self, tree: str, expected: str, paths: Sequence[str]) -> list[str]:
        named = [unescape_name(path) for path in paths]
        with self.locked():
            safe = [path for path in named if is_safe(path)]
            target, before = self._state(tree, safe), self._state(expected, safe)
            # What a restored file needs to know of its neighbours: which folders have any.
            everything = self._git.list_tree(self._tree(tree))
            if not os.path.isdir(self._workspace):
                raise SnapshotFailed("The workspace does not exist any more; create its folder and try again.")
            self._prepare()
            with BlobReader(self._git) as contents:
                left = writing.restore(
                    self._workspace,
                    writing.State(everything, target.folders),
                    before,
                    named,
                    contents.read,
                    self._journal,
                    self._limits.max_file_bytes,
                )
        return [escape_name(path) for path in left]

    def check_out(self, tree: str, folder: str) -> None:
        with self.locked():
            state = self._state(tree)
            target = Path(folder).absolute()
            if os.path.lexists(target) and (target.is_symlink() or not target.is_dir() or any(target.iterdir())):
                raise SnapshotFailed(f"{folder} is not empty; name a new folder.")
            if not _add_worktree(os.fsdecode(self._workspace), str(target)):
                target.mkdir(parents=True, exist_ok=True)
            with BlobReader(self._git) as contents:
                writing.write_new(os.fsencode(target.resolve()), state, contents.read)

    def collect(self, keep: Iterable[str], newer_than: float) -> None:
        """Free what no tree in ``keep`` has, nor one that was saved after that time."""
        with self.locked():
            removed = self._folder.with_suffix(".removed")
            shutil.rmtree(removed, ignore_errors=True)
            if not self.exists:
                return
            recent = self._recent_trees(newer_than)
            wanted = {found[0]: found for one in {*keep, *recent} if (found := _NAME.fullmatch(one))}
            if not wanted:
                with contextlib.suppress(OSError):
                    writing.remove_leftovers(self._workspace, self._journal)
                # In one step: a killed process leaves nothing that looks like a repository.
                self._folder.rename(removed)
                shutil.rmtree(removed)
                return
            roots = {name for found in wanted.values() for name in found.groups() if name}
            index = read_index(self._git.index)
            roots |= {name for name in (index.state.tree, index.state.folders) if name}
            names = sorted(roots - {EMPTY_TREE})
            self._git.keep_only([name for name, there in zip(names, self._git.has(names), strict=True) if there])
            write_private(self._recent, "".join(f"{at} {name}\n" for name, at in recent.items()).encode())

    # with the lock

    def _prepare(self) -> None:
        if not self.exists:
            self._git.create()
            write_private(self._folder / "workspace", self._workspace)
        writing.remove_leftovers(self._workspace, self._journal)

    def _take(self, *, with_index: bool) -> SavedTree:
        command = ("diff-files", "--raw", "-z", "--ignore-submodules=none")
        # git compares the known files while names are listed here.
        with running(self._git.start("-C", self._workspace, *command, work_tree=self._workspace)) as process:
            index = read_index(self._git.index) if with_index else Index()
            known = index.offsets.keys()
            state = IndexState(parents=index.state.parents)
            found = self._scan(state, index, known, set(index.state.parents))
            if known and state.rules != index.state.rules:
                found = self._scan(state, Index(), (), ())
            output = finish(process) if known else b""
        covered = found.present.union(found.new)
        read_again = covered.intersection(output.split(b"\0")[1::2])
        fresh = sorted(read_again.union(path for path in found.new if path not in known))
        return self._save(index, state, fresh, known - covered, found)

    def _scan(self, state: IndexState, index: Index, known: Container[bytes], known_folders: Container[bytes]) -> Scan:
        limits = self._limits
        forced = (index.state.user_index, index.state.forced)
        with IgnoreRules(self._git, self._workspace, limits.include, forced) as ignore:
            own = (os.fsencode(self._folder.parent), *map(os.fsencode, limits.own))
            found = scan(self._workspace, known, known_folders, ignore.ignored, own, limits.max_files)
            state.rules = ignore.digest(found.rules, limits.max_file_bytes)
            state.user_index, state.forced = ignore.user_index, sorted(ignore.forced())
        return found

    def _save(
        self, index: Index, state: IndexState, fresh: list[bytes], gone: AbstractSet[bytes], found: Scan
    ) -> SavedTree:
        """Read the files that are new or may have changed, and write the tree and the index."""
        removed = set(gone)
        updated: dict[bytes, bytes] = {}
        changed: dict[bytes, tuple[int, str]] = {}
        with Folders(self._workspace) as folders, contextlib.ExitStack() as stack:
            remaining = index.state.total_bytes - sum(size_of(index.entry(path)) for path in {*gone, *fresh})
            self._check_size(remaining, fresh, folders)
            writer: ObjectWriter | None = None
            for path in fresh:
                file = _read(folders, path, self._limits.max_file_bytes, found.skipped)
                if file is None:
                    removed.add(path)
                    continue
                name = blob_id(file.data)
                before, entry = index.entry(path), entry_of(path, file, name)
                remaining += len(file.data)
                if before is None or mode_and_name(before) != (file.mode, name):
                    writer = writer or stack.enter_context(ObjectWriter(self._git))
                    writer.add(file.data, name)
                    changed[path] = file.mode, name
                if entry != before:
                    updated[path] = entry
            state.total_bytes = remaining
            if lost := {path.rpartition(b"/")[0] for path in removed.intersection(fresh)}:
                # Their folders may have no other file.
                names = (index.offsets.keys() - removed) | updated.keys()
                found.folders += lost - {name.rpartition(b"/")[0] for name in names} - found.inner - {b""}
            removed &= index.offsets.keys()
            empty = b"\0".join(sorted(found.folders))
            state.folders, state.tree = blob_id(empty) if empty else "", index.state.tree
            if removed or changed or state.folders != index.state.folders:
                writer = writer or stack.enter_context(ObjectWriter(self._git))
                _write_folders(writer, sorted(found.folders))
                replaced = removed.union(path for path in changed if path in index.offsets)
                state.tree = writer.end(state.tree, sorted(replaced), ((path, *one) for path, one in changed.items()))
            if writer is None and index.offsets and not all(self._git.has([state.tree])):
                raise GitFailed("The last saved state is damaged.")
        failpoint("snapshots.before_index")
        if removed or updated or state != index.state:
            write_private(self._git.index, index.with_changes(removed, updated, state))
        name = self._remember(state.tree, state.folders)
        self._git.combine_packs()
        return SavedTree(name, found.skipped.listed())

    def _check_size(self, total: int, fresh: Sequence[bytes], folders: Folders) -> None:
        """Raise :class:`SnapshotsOff` if the workspace is too large, before anything is stored."""
        for path in fresh:
            with contextlib.suppress(OSError):
                status = folders.status(path)
                if status is not None and status.st_size <= self._limits.max_file_bytes:
                    total += status.st_size
        if total > self._limits.max_bytes:
            raise SnapshotsOff(
                f"Snapshots are off: the files of this workspace have more than {self._limits.max_bytes:,} bytes. "
                "Add what need not be saved to .gitignore, or raise snapshots.max_bytes."
            )

    def _remember(self, tree: str, folders: str) -> str:
        """Return the name of a saved state, protected from collecting for some time: it may not be stored yet."""
        name = f"{tree}-{folders}" if folders else tree
        with open(os.open(self._recent, os.O_WRONLY | os.O_CREAT | os.O_APPEND | CLOEXEC, 0o600), "wb") as file:
            file.write(f"{time.time()} {name}\n".encode())
        return name

    def _recent_trees(self, newer_than: float) -> dict[str, float]:
        trees: dict[str, float] = {}
        with contextlib.suppress(FileNotFoundError):
            for line in self._recent.read_text(errors="replace").splitlines():
                at, _, name = line.partition(" ")
                # A line that a killed process cut short counts for nothing.
                if _NAME.fullmatch(name) and re.fullmatch(r"\d+\.\d+", at) and float(at) >= newer_than:
                    trees[name] = float(at)
        return trees

    def _names(self, state: str) -> tuple[str, str]:
        found = _NAME.fullmatch(state)
        names = [name for name in found.groups() if name] if found else []
        if not names or not self.exists or not all(self._git.has([name for name in names if name != EMPTY_TREE])):
            raise SnapshotFailed("This snapshot does not exist any more; nothing was changed.")
        return names[0], names[1] if len(names) > 1 else ""

    def _tree(self, state: str) -> str:
        return self._names(state)[0]

    def _state(self, state: str, paths: Sequence[bytes] = ()) -> writing.State:
        tree, listed = self._names(state)
        folders = self._git.run("cat-file", "blob", listed).split(b"\0") if listed else []
        return writing.State(self._git.list_tree(tree, paths), frozenset(folders))


def _read(folders: Folders, path: bytes, max_bytes: int, skipped: Skipped) -> SavedFile | None:
    try:
        return folders.read(path, max_bytes)
    except NotCovered as reason:
        skipped.add(path, str(reason))
        return None


def _write_folders(writer: ObjectWriter, folders: list[bytes]) -> str:
    data = b"\0".join(folders)
    if not data:
        return ""
    name = blob_id(data)
    writer.add(data, name)
    return name


def _changes(output: bytes) -> list[FileChange]:
    """Read the raw list of differences, and the counts after it."""
    fields = output.split(b"\0")[:-1]
    kinds: dict[bytes, tuple[str, bool]] = {}
    position = 0
    while position < len(fields) and fields[position].startswith(b":"):
        _, _, before, after, status = fields[position].split(b" ")
        kinds[fields[position + 1]] = status[:1].decode(), before == after
        position += 2
    changes: list[FileChange] = []
    for counts in fields[position:]:
        added, removed, path = counts.split(b"\t", 2)
        kind, same = kinds[path]
        changes.append(
            FileChange(
                path=escape_name(path),
                kind="added" if kind == "A" else "deleted" if kind == "D" else "mode" if same else "modified",
                added=None if added == b"-" else int(added),
                removed=None if removed == b"-" else int(removed),
            )
        )
    return changes


def _shorten(diff: bytes) -> str:
    if len(diff) <= _MAX_DIFF_BYTES:
        return diff.decode(errors="replace")
    cut = diff[: diff.rfind(b"\n", 0, _MAX_DIFF_BYTES) + 1]
    return cut.decode(errors="replace") + f"... {len(diff) - len(cut):,} more bytes are not shown.\n"


def _add_worktree(workspace: str, folder: str) -> bool:
    """Add a worktree without files to the user's repository, if the workspace is the root of one with a commit."""
    if not os.path.lexists(os.path.join(workspace, ".git")):
        return False
    if user_git(workspace, "worktree", "add", "--detach", "--no-checkout", folder) is None:
        return False
    # Only the index: no filter runs.
    user_git(folder, "read-tree", "HEAD")
    return True
