"""Paths that a session's calls may not touch: clew's own, and in an owner's session those outside its workspace.

They are resolved again for each turn, because a folder may have become a link: a path is protected as spelled and as
resolved. A file or folder with a further name (a second hard link, a mount) is recognised by its identity. How rules
are weighed is not known here.

The owner answers the approvals of the session and does not run the server, so the confinement is checked before any
rule, answer or mode. It follows from the session as it is stored, so it applies in every process that runs the session.
The workspace was in one of the owner's folders when the session was created. A path is checked as resolved, never by
its name, and a file with several names is allowed only where all of them are in the workspace. What a command does by
itself is limited by the sandbox (:mod:`clew.tools.process.owner_sandbox`).
"""

from __future__ import annotations

import functools
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import Final

import msgspec

from clew.permissions.evaluate import Decision, Judgement
from clew.permissions.paths import is_resolved
from clew.permissions.rules import READING, own_rules
from clew.tools.files.hard_links import Identity, count_names, has_names
from clew.transcript.rule import Rule, Target

__all__ = ["Confinement", "ProtectedPaths", "glob_finder", "leads_to"]


_OUTSIDE: Final = "a path outside the workspace"
_MAX_FILES: Final = 200_000
_MAX_LINKS: Final = 40
_MAX_ENTRIES: Final = 20_000
_cached_rules = functools.lru_cache(maxsize=256)(own_rules)
"""Cached: the rules depend only on the current spellings, which rarely change."""


class Confinement:
    """The check of a session's paths. ``workspace`` is the only folder it may use, None for none; ``spill`` has its
    long outputs.

    It caches which files have several names there, so each call gets a new one.
    """

    def __init__(self, workspace: Path | None, spill: Path) -> None:
        self._workspace = workspace
        self._spill = spill
        self._names: Counter[Identity] | None = None

    def refuse(self, targets: Sequence[Target]) -> Decision | None:
        """Return the refusal of a call that would leave the workspace, else None. Reads the file system."""
        outside = next((one for one in targets if one.kind == "path" and not self._is_inside(one)), None)
        if outside is None:
            return None
        pattern = "/**" if self._workspace is None else f"!({self._workspace})/**"
        limit = "and this session has none" if self._workspace is None else f"which is {self._workspace}"
        rule = Rule("*", pattern, "deny", "manifest", pinned=True)
        # The resolved path would reveal to the owner where another user's link leads.
        outside = msgspec.structs.replace(outside, value=_OUTSIDE)
        reason = f"an owner's session can use only the files of its workspace, {limit}"
        judged = (Judgement(outside, "deny", rule, "manifest", reason),)
        return Decision("deny", rule, "manifest", outside, (), reason, judged)

    def must_look(self, target: Target) -> bool:
        """Return whether checking this target walks the whole workspace, which takes too long for the event loop."""
        status = _status_of(Path(target.value)) if self._names is None and target.kind == "path" else None
        return status is not None and has_names(status)

    def _is_inside(self, target: Target) -> bool:
        if not is_resolved(target.value):
            return False
        path = Path(target.value)
        if target.permission in READING and path.is_relative_to(os.path.realpath(self._spill)):
            return True
        if self._workspace is None or not path.is_relative_to(self._workspace):
            return False
        status = _status_of(path)
        if status is None or not has_names(status):
            return True
        if self._names is None:
            self._names = count_names(self._workspace, _MAX_FILES)
        return self._names[status.st_dev, status.st_ino] >= status.st_nlink


def _status_of(path: Path) -> os.stat_result | None:
    """Return None for a path that does not exist or cannot be read: then it cannot be opened, either."""
    try:
        return path.lstat()
    except (OSError, ValueError):
        return None


class ProtectedPaths:
    """The protected paths: ``folders`` with everything in them, ``files`` with companions of the same name.

    Each session has a folder in ``spill``, named after it, that only it may read.
    """

    def __init__(self, folders: Iterable[Path], files: Iterable[Path], spill: Path) -> None:
        self._folders = tuple(folders)
        self._files = tuple(files)
        self._spill = spill

    def look(self, session_id: str) -> tuple[tuple[Rule, ...], Callable[[str], Sequence[str]]]:
        """Return the rules that keep a session out, and a function that returns the further names of a path.

        The function caches what it finds. Both read the file system to resolve links, so they are for one call only.
        """
        spill, files = _spellings([self._spill]), self.files
        folders = tuple(dict.fromkeys((*_spellings(self._folders), *spill)))
        return _cached_rules(folders, files, spill, session_id), self._aliases(folders, files)

    def confine(self, session_id: str, workspace: Path | None) -> Confinement:
        """Return the check that confines an owner's session to its workspace and its own long outputs."""
        return Confinement(workspace, self._spill / session_id)

    @property
    def folders(self) -> tuple[str, ...]:
        return _spellings((*self._folders, self._spill))

    @property
    def files(self) -> tuple[str, ...]:
        return _spellings(self._files)

    def _aliases(self, folders: tuple[str, ...], files: tuple[str, ...]) -> Callable[[str], Sequence[str]]:
        # Computed on first use: targets that are no paths need neither.
        roots = functools.cache(lambda: {known: path for path in (*folders, *files) if (known := _identity(path))})
        linked = functools.cache(lambda: dict(self._linked()))

        @functools.cache
        def known(folder: str) -> str | None:
            """Return the folder's name below a protected folder, whatever it is called here."""
            identity = _identity(folder)
            parent, name = os.path.split(folder)
            over = None if parent == folder else known(parent)
            here = roots().get(identity) if identity is not None else None
            return here or (over and f"{over}/{name}")

        # Each rule asks about the same path.
        @functools.lru_cache(maxsize=1)
        def names(path: str) -> Sequence[str]:
            found = [name for name in (known(path) if len(path) > 1 else None,) if name is not None and name != path]
            identity = _linked_file(path, follow=True)
            if identity is not None and (name := linked().get(identity)) is not None:
                found.append(name)
            return found

        return names

    def _linked(self) -> Iterator[tuple[Identity, str]]:
        """Yield the protected files that have more than one name."""
        paths = (*self.folders, *self.files, *(file + "-wal" for file in self.files))
        for path in islice(chain.from_iterable(map(_files_in, paths)), _MAX_FILES):
            if (identity := _linked_file(path)) is not None:
                yield identity, path


def leads_to(path: str) -> str:
    """Return where an absolute path leads for another program.

    Like ``os.path.realpath``, but links in /proc, which differ per process, are not followed.
    """
    rest = path.split("/")[::-1]
    at, followed = "", 0
    while rest:
        name = rest.pop()
        if name == "..":
            at = at.rpartition("/")[0]
        if name in ("", ".", ".."):
            continue
        step = f"{at}/{name}"
        try:
            link = os.readlink(step)
        except (OSError, ValueError):
            at = step
            continue
        followed += 1
        if step.startswith("/proc/") or followed > _MAX_LINKS:
            return "/".join((step, *reversed(rest)))
        at = "" if link.startswith("/") else at
        rest += link.split("/")[::-1]
    return at or "/"


def glob_finder() -> Callable[[str], Sequence[str] | None]:
    """Return a function that lists the paths a shell glob may match behind links and under second names.

    It returns too many paths rather than too few, or None if there are too many entries to read. Use a new one for each
    decision. ``**`` matches every depth below a folder without following links; a trailing slash
    matches folders only.
    """
    remaining = _MAX_ENTRIES

    def finds(pattern: str) -> Sequence[str] | None:
        nonlocal remaining
        reached = [("", False)]
        for name in filter(None, pattern.split("/")):
            # Brackets mean more in a shell than here, so they match anything.
            glob = name.partition("[")[0] + "*" if "[" in name else name
            following: list[tuple[str, bool]] = []
            if name == "**":
                below = [folder for folder, _ in reached]
                for folder in below:
                    for entry in _entries(folder or "/"):
                        remaining -= 1
                        if remaining < 0:
                            return None
                        following.append((entry.path, entry.is_symlink()))
                        if entry.is_dir(follow_symlinks=False):
                            below.append(entry.path)
                reached = following
                continue
            for folder, linked in reached:
                if glob == name and not ("*" in name or "?" in name):
                    following.append((f"{folder}/{name}", linked or os.path.islink(f"{folder}/{name}")))
                    continue
                for entry in _entries(folder or "/"):
                    remaining -= 1
                    if remaining < 0:
                        return None
                    if fnmatchcase(entry.name, glob):
                        following.append((entry.path, linked or entry.is_symlink()))
            reached = following
        found = [path for path, linked in reached if linked or _linked_file(path)]
        return [path for path in found if os.path.isdir(path)] if pattern.endswith("/") else found

    return finds


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(islice(entries, _MAX_ENTRIES + 1))
    except (OSError, ValueError):
        return []


def _linked_file(path: str, *, follow: bool = False) -> Identity | None:
    """Return the identity of a file with more than one name, else None."""
    try:
        status = os.stat(path, follow_symlinks=follow)
    except (OSError, ValueError):
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) and status.st_nlink > 1 else None


def _spellings(paths: Iterable[Path]) -> tuple[str, ...]:
    """Return each path as written, as resolved, and with some of its links resolved; without duplicates."""
    found: dict[str, None] = {}
    for path in paths:
        spelled = os.path.abspath(path)
        names = [name for name in spelled.split("/") if name]
        steps = accumulate(names, lambda above, name: f"{above}/{name}", initial="")
        if not any(map(os.path.islink, islice(steps, 1, None))):
            # The common case: there is only one spelling.
            found |= dict.fromkeys(("".join(f"/{name}" for name in names), spelled))
            continue
        real, followed = "", ["".join(f"/{name}" for name in names)]
        for at, name in enumerate(names, 1):
            step = f"{real}/{name}"
            real = os.path.realpath(step) if os.path.islink(step) else step
            followed.append("/".join((real.rstrip("/"), *names[at:])))
        found |= dict.fromkeys((*reversed(followed), spelled))
    return tuple(found)


def _identity(path: str) -> Identity | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def _files_in(path: str) -> Iterator[str]:
    if not os.path.isdir(path):
        yield path
    for folder, _, names in os.walk(path):
        yield from (os.path.join(folder, name) for name in names)
