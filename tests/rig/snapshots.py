"""Snapshots of a workspace that is changed at random: each state is saved exactly, and written back exactly.

A round makes a workspace, often a repository of the user with hostile attributes, filters and hooks, and changes it a
few times. After each change it takes a snapshot: whole, while another process takes one, or killed on the way. What is
saved, compared and restored is held against a plain walk. The user's ``.git`` has the same bytes before and after.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final

from clew.failpoints import arm
from clew.snapshots.base import SnapshotPoint
from clew.snapshots.files import unescape_name
from clew.snapshots.git import Git
from clew.snapshots.layer import GitSnapshots
from clew.snapshots.repository import Repository
from tests.rig.budget import Budget, Outcome
from tests.rig.workspace_edits import MAX_FILE_BYTES, Edits, Seen, digest_of, observe, raw_state

__all__ = ["ROUNDS", "figure", "main", "run"]

ROUNDS: Final = 1_000
_TAKE_POINTS: Final = ("before_tree", "after_tree", "before_index", "before_pack_removal")
_RESTORE_POINTS: Final = ("before_delete", "before_rename", "after_rename")
_HOSTILE: Final = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES"),
    *("GIT_EXTERNAL_DIFF", "GIT_CONFIG_PARAMETERS", "GIT_EXEC_PATH", "GIT_NAMESPACE", "GIT_ATTR_SOURCE"),
)


class _Broken(Exception):
    """A guarantee that was broken."""


class _Round:
    def __init__(self, seed: int, folder: Path, template: Path, counts: Counter[str]) -> None:
        self._random = Random(seed)
        self._counts = counts
        self._folder = folder
        self._root = os.fsencode(folder / "workspace")
        self._edits = Edits(self._root, self._random, template)
        self._layer = GitSnapshots(folder / "data", max_file_bytes=MAX_FILE_BYTES, grace_s=0)
        self._point = SnapshotPoint(session_id="ses_x", workspace=os.fsdecode(self._root))
        self._states: list[tuple[str, Seen]] = []

    @property
    def _repository(self) -> Repository:
        return self._layer.open(self._point)

    def run(self) -> None:
        self._edits.run(self._random.randrange(3, 25))
        for _ in range(self._random.randrange(1, 4)):
            self._states.append(self._take())
            if self._random.random() < 0.4:
                self._check_compare()
            if self._random.random() < 0.5:
                self._restore()
            if self._random.random() < 0.1:
                self._check_out()
            if self._random.random() < 0.1:
                self._collect()
            self._edits.run(self._random.randrange(1, 12))
        self._states.append(self._take())
        self._check_compare()
        self._restore()

    def _take(self) -> tuple[str, Seen]:
        with self._git_untouched():
            how = self._random.random()
            if how < 0.12:
                self._counts["kills in take"] += self._kill(lambda: self._repository.take(), _TAKE_POINTS)
            if how > 0.9:
                self._counts["two at once"] += 1
                other = _fork(lambda: self._repository.take())
                taken = self._repository.take()
                if code := _wait(other):
                    raise _Broken(f"the other process ended with {code}")
            else:
                taken = self._repository.take()
        assert taken is not None
        self._counts["takes"] += 1
        seen = observe(self._root)
        self._check_saved(taken.tree, seen, "take")
        return taken.tree, seen

    def _check_saved(self, tree: str, seen: Seen, what: str) -> None:
        """Compare a saved tree with an observation, through git's own plumbing."""
        # Reaches into the layer, so that it is not the layer that is asked.
        private = self._repository._git
        name, _, folders = tree.partition("-")
        saved: dict[bytes, tuple[str, bytes, bool]] = {}
        listed = private.list_tree(name)
        contents = private.run(
            "cat-file", "--batch", input="".join(f"{blob}\n" for _, blob in listed.values()).encode()
        )
        for path, (mode, _) in listed.items():
            header, _, contents = contents.partition(b"\n")
            size = int(header.split()[2])
            data, contents = contents[:size], contents[size + 1 :]
            saved[path] = ("link" if mode == 0o120000 else "file", data, mode == 0o100755)
        empty = set(private.run("cat-file", "blob", folders).split(b"\0")) if folders else set()
        _compare(saved, seen.files, what)
        if loose := list((private.folder / "objects").glob("??/*")):
            raise _Broken(f"{what}: {len(loose)} objects are in no pack, so they would never be collected")
        if empty != seen.folders:
            raise _Broken(
                f"{what}: empty folders {sorted(empty - seen.folders)[:4]}, missing {sorted(seen.folders - empty)[:4]}"
            )

    def _check_compare(self) -> None:
        (before, old), (after, new) = self._random.choice(self._states), self._states[-1]
        found = {unescape_name(change.path): change for change in self._repository.compare(before, after)}
        expected = {path for path in old.files.keys() | new.files.keys() if old.files.get(path) != new.files.get(path)}
        if found.keys() != expected:
            raise _Broken(f"compare: {sorted(found.keys() ^ expected)[:4]}")
        for path, change in found.items():
            was, now = old.files.get(path), new.files.get(path)
            same = was is not None and now is not None and was[:2] == now[:2]
            kind = "added" if was is None else "deleted" if now is None else "mode" if same else "modified"
            if change.kind != kind:
                raise _Broken(f"compare: {path!r} is {change.kind}, not {kind}")
        self._counts["compared"] += len(found)

    def _restore(self) -> None:
        """Write a state back, sometimes with edits by another hand, sometimes killed; then everything must be exact."""
        current, present = self._states[-1]
        target, wanted = self._random.choice(self._states)
        paths = [change.path for change in self._repository.compare(current, target)]
        if self._random.random() < 0.2:
            self._edits.run(2)
        files = {unescape_name(path) for path in paths}
        before = {path: raw_state(os.path.join(self._root, path)) for path in files | present.files.keys()}
        with self._git_untouched():
            if self._random.random() < 0.25:
                restore = lambda: self._repository.restore(target, current, paths)  # noqa: E731
                self._counts["kills in restore"] += self._kill(restore, _RESTORE_POINTS)
            left = {unescape_name(path) for path in self._repository.restore(target, current, paths)}
        self._counts["restores"] += 1
        self._counts["left alone"] += len(left)
        for path in files:
            now, was = raw_state(os.path.join(self._root, path)), before[path]
            target_state, expected = wanted.files.get(path), present.files.get(path)
            changed = was not in (expected, target_state)
            if path not in left:
                if changed:
                    raise _Broken(f"restore: {path!r} was {_shown(was)}, changed by another hand, and overwritten")
                if now != target_state:
                    raise _Broken(f"restore: {path!r} is {_shown(now)}, not {_shown(target_state)}")
            elif now != was:
                raise _Broken(f"restore: {path!r} was left alone and is {_shown(now)}, not {_shown(was)}")
            elif not changed and not self._is_blocked(path):
                raise _Broken(f"restore: {path!r} was left alone without a reason")
        for path, was in before.items():
            if path not in files and raw_state(os.path.join(self._root, path)) != was:
                raise _Broken(f"restore: {path!r} was not named and has changed")
        names = [name for _, below, names in os.walk(self._root) for name in (*below, *names)]
        if found := [name for name in names if name.startswith(b".clew-") and name != b".clew-x"]:
            raise _Broken(f"restore: left {found}")
        if not left and before.keys() == files | present.files.keys():
            seen = observe(self._root)
            state = self._take()
            if all(before[path] == one for path, one in present.files.items()):
                self._check_restored(seen, wanted, state[0] == target)
            self._states.append(state)
        else:
            self._states.append(self._take())

    def _is_blocked(self, path: bytes) -> bool:
        """Whether something else is where a file or one of its folders must be."""
        above = [path[: at.start()] for at in re.finditer(b"/", path)]
        joined = [os.path.join(self._root, folder) for folder in above]
        if any(os.path.lexists(one) and (os.path.islink(one) or not os.path.isdir(one)) for one in joined):
            return True
        one = os.path.join(self._root, path)
        return os.path.lexists(one) and raw_state(one) is None

    def _check_restored(self, seen: Seen, wanted: Seen, same: bool) -> None:
        if (seen.files == wanted.files and seen.folders == wanted.folders) != same:
            raise _Broken("restore: the name of the state does not tell whether it is the same")
        self._counts["exact"] += same

    def _check_out(self) -> None:
        target, wanted = self._random.choice(self._states)
        folder = self._folder / "copy"
        self._repository.check_out(target, str(folder))
        copied = os.fsencode(folder)
        seen = observe(copied)
        # The rules of ignored files may be others there.
        for path, state in wanted.files.items():
            if raw_state(os.path.join(copied, path)) != state:
                raise _Broken(f"check out: {path!r}")
        if extra := seen.files.keys() - wanted.files.keys():
            raise _Broken(f"check out: {sorted(extra)[:4]}")
        shutil.rmtree(folder)
        if self._edits.has_repository:
            subprocess.run(["git", "-C", self._root, "worktree", "prune"], check=True, capture_output=True)
        self._counts["copies"] += 1

    def _collect(self) -> None:
        newest = self._states[-2:]
        self._layer._collect({self._point.workspace: {tree for tree, _ in newest}}, time.time())
        for tree, seen in newest:
            self._check_saved(tree, seen, "collect")
        self._states = newest
        self._counts["collected"] += 1

    def _kill(self, call: Callable[[], object], points: tuple[str, ...]) -> bool:
        """Run it in a process that dies at a point, or after a short time; return whether it died."""
        if self._random.random() < 0.7:
            point = f"snapshots.{self._random.choice(points)}=kill@{self._random.choice((1, 1, 2, 3, 5))}"
            return _wait(_fork(call, point)) == -signal.SIGKILL
        pid = _fork(call)
        time.sleep(self._random.random() * 0.03)
        os.kill(pid, signal.SIGKILL)
        return _wait(pid) == -signal.SIGKILL

    @contextlib.contextmanager
    def _git_untouched(self) -> Iterator[None]:
        user_git = os.path.join(self._root, b".git")
        before, environment = digest_of(user_git), dict(os.environ)
        mark = self._folder.parent / "pwned-by-user"
        mark.unlink(missing_ok=True)
        if self._random.random() < 0.3:
            os.environ.update(dict.fromkeys(_HOSTILE, "/nowhere"))
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(environment)
        if digest_of(user_git) != before:
            raise _Broken("the user's .git has changed")
        if (self._folder.parent / "pwned").exists() or mark.exists():
            raise _Broken("a program of the workspace was run")


def _compare(
    found: dict[bytes, tuple[str, bytes, bool]], expected: dict[bytes, tuple[str, bytes, bool]], what: str
) -> None:
    for path in sorted(found.keys() | expected.keys()):
        if found.get(path) != expected.get(path):
            raise _Broken(f"{what}: {path!r} is {_shown(found.get(path))}, not {_shown(expected.get(path))}")


def _shown(state: tuple[str, bytes, bool] | None) -> str:
    return "absent" if state is None else f"{state[0]} {state[1][:40]!r}{' x' * state[2]}"


def _fork(call: Callable[[], object], failpoints: str = "") -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        arm(failpoints)
        call()
        code = 0
    finally:
        os._exit(code)


def _wait(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _make_template(folder: Path) -> Path:
    """Make the ``.git`` of a user with hooks and filters that leave a mark."""
    mark = folder / "pwned"
    repository = folder / "template"
    quiet = {"check": True, "capture_output": True}
    subprocess.run(["git", "init", "-q", "--template=", str(repository)], **quiet)  # type: ignore[call-overload]
    # The filters mark another file: the user's own git commands run them, too.
    settings = {
        "filter.evil.clean": f"touch {mark}-by-user; cat",
        "filter.evil.smudge": f"touch {mark}-by-user; cat",
        "diff.evil.textconv": f"touch {mark}; cat",
        "diff.evil.command": f"touch {mark}",
        "core.autocrlf": "true",
        "user.name": "user",
        "user.email": "user@localhost",
        "gc.auto": "0",
    }
    for name, value in settings.items():
        subprocess.run(["git", "-C", str(repository), "config", name, value], **quiet)  # type: ignore[call-overload]
    return repository / ".git"


def run(budget: Budget) -> Outcome:
    outcome = Outcome()
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="clew-snapshots-", dir=place) as name:
        folder = Path(name).resolve()
        template = _make_template(folder)
        few, Git.max_packs = Git.max_packs, 3
        for seed in budget.rounds():
            target = folder / str(seed)
            target.mkdir()
            try:
                _Round(seed, target, template, outcome.counts).run()
            except Exception as error:
                outcome.counts["broken"] += 1
                outcome.broken.append(f"seed {seed}: {type(error).__name__}: {error}")
            shutil.rmtree(target)
            outcome.counts["rounds"] += 1
        Git.max_packs = few
    return outcome


def main() -> int:
    """Take a snapshot, or restore one, in a process of its own: ``data workspace [tree expected path...]``."""
    data, workspace, *order = sys.argv[1:]
    repository = GitSnapshots(data).open(SnapshotPoint(session_id="ses_x", workspace=workspace))
    Git.max_packs = 1
    if order:
        repository.restore(order[0], order[1], order[2:])
    else:
        repository.take()
    return 0


def figure(counts: Counter[str]) -> str:
    return (
        f"snapshots: {counts['rounds']} sequences, {counts['broken']} broken ({counts['takes']} takes, "
        f"{counts['restores']} restores, {counts['exact']} of them to the same state, {counts['left alone']} paths "
        f"left alone, {counts['compared']} changes, {counts['kills in take']} and {counts['kills in restore']} kills, "
        f"{counts['two at once']} times two at once, {counts['copies']} copies, {counts['collected']} collections)"
    )
