"""clew's own places: its settings and token, its data, its stores, and what other sessions put aside.

What is closed is looked up anew for each turn, because a folder may have become a link meanwhile: a place counts as
it is spelled and as it is resolved. A file or folder that has yet another name (a second hard link, a mount) is known
by its identity. How rules are weighed is not known here.
"""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import Final

from clew.permissions.rules import own_rules
from clew.runtime.confinement import Confinement
from clew.transcript.rule import Rule

__all__ = ["OwnPlaces", "glob_finder", "leads_to"]

_MAX_FILES: Final = 200_000
_MAX_LINKS: Final = 40
_MAX_ENTRIES: Final = 20_000

Identity = tuple[int, int]

_rules_for = functools.lru_cache(maxsize=256)(own_rules)
"""They follow from the places as they are spelled now, and these hardly ever change."""


class OwnPlaces:
    """``folders`` are closed with all that is in them, ``files`` with what lies beside them under the same name.

    In ``spill`` each session has a folder, named after it, that it alone may read.
    """

    def __init__(self, folders: Iterable[Path], files: Iterable[Path], spill: Path) -> None:
        self._folders = tuple(folders)
        self._files = tuple(files)
        self._spill = spill

    def look(self, session_id: str) -> tuple[tuple[Rule, ...], Callable[[str], Sequence[str]]]:
        """The rules that keep a session out, and a function that gives the names rules know a path by, if it has
        others, which remembers. Asks the file system where links lead: one look for each call."""
        spill, files = _spellings([self._spill]), self.files
        folders = tuple(dict.fromkeys((*_spellings(self._folders), *spill)))
        return _rules_for(folders, files, spill, session_id), self._aliases(folders, files)

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
        # Asked of the disk where a path is looked at, once: what is no path needs neither.
        roots = functools.cache(lambda: {known: place for place in (*folders, *files) if (known := _identity(place))})
        linked = functools.cache(lambda: dict(self._linked()))

        @functools.cache
        def known(folder: str) -> str | None:
            """The folder's name below a closed one, whatever it is called."""
            identity = _identity(folder)
            parent, name = os.path.split(folder)
            over = None if parent == folder else known(parent)
            here = roots().get(identity) if identity is not None else None
            return here or (over and f"{over}/{name}")

        # Rule after rule asks about the same path.
        @functools.lru_cache(maxsize=1)
        def names(path: str) -> Sequence[str]:
            found = [name for name in (known(path) if len(path) > 1 else None,) if name is not None and name != path]
            identity = _linked_file(path, follow=True)
            if identity is not None and (name := linked().get(identity)) is not None:
                found.append(name)
            return found

        return names

    def _linked(self) -> Iterator[tuple[Identity, str]]:
        """The closed files that have more than one name."""
        places = (*self.folders, *self.files, *(file + "-wal" for file in self.files))
        for path in islice(chain.from_iterable(map(_files_in, places)), _MAX_FILES):
            if (identity := _linked_file(path)) is not None:
                yield identity, path


def leads_to(path: str) -> str:
    """Where an absolute path leads a program that is not this one.

    Like ``os.path.realpath``, but links in /proc, which mean something else to everybody, are left where they stand.
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
    """A function that gives the paths a shell's glob finds behind links and under second names: names do not show
    where those lead. It finds rather too much. None when there is too much to look at; one for each decision.
    ``**`` is every depth below a folder, no link followed; with a slash at its end the pattern finds folders only.
    """
    room = _MAX_ENTRIES

    def finds(pattern: str) -> Sequence[str] | None:
        nonlocal room
        reached = [("", False)]
        for name in filter(None, pattern.split("/")):
            # Brackets mean more in a shell than here, so they stand for anything.
            glob = name.partition("[")[0] + "*" if "[" in name else name
            following: list[tuple[str, bool]] = []
            if name == "**":
                below = [folder for folder, _ in reached]
                for folder in below:
                    for entry in _entries(folder or "/"):
                        room -= 1
                        if room < 0:
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
                    room -= 1
                    if room < 0:
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
    """What a file with more than one name is known by; None for any other."""
    try:
        status = os.stat(path, follow_symlinks=follow)
    except (OSError, ValueError):
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) and status.st_nlink > 1 else None


def _spellings(places: Iterable[Path]) -> tuple[str, ...]:
    """Each place as it is written, as its links lead, and with the links of a part of it followed; without doubles."""
    found: dict[str, None] = {}
    for place in places:
        spelled = os.path.abspath(place)
        names = [name for name in spelled.split("/") if name]
        steps = accumulate(names, lambda above, name: f"{above}/{name}", initial="")
        if not any(map(os.path.islink, islice(steps, 1, None))):
            # As nearly always: then there is one way to spell it.
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


def _files_in(place: str) -> Iterator[str]:
    if not os.path.isdir(place):
        yield place
    for folder, _, names in os.walk(place):
        yield from (os.path.join(folder, name) for name in names)
