"""Walking a folder by its handles: every entry, without following links.

Each folder is opened by its parent's handle and refused if it is a link, so a walk that starts inside stays inside,
even if another process renames things meanwhile. Entries that are left out (in version control folders, too deep, or
beyond the limits) are counted and reported.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from clew.errors import PermissionDenied
from clew.tools.base import Signal, ToolContext
from clew.tools.files.access import KINDS, LIST
from clew.tools.files.paths import ResolvedPath, show_name

__all__ = ["Entry", "LeftOut", "StopCheck", "count", "line_of", "list_folder", "permitted", "walk"]

MAX_DEPTH: Final = 64
_MAX_STEPS: Final = 1_000
MAX_ENTRIES: Final = 200_000
VERSION_CONTROL: Final = frozenset({".git", ".hg", ".svn"})


class Entry(msgspec.Struct, frozen=True):
    """One name in a folder; ``path`` is relative to where the walk began."""

    path: str
    kind: Literal["file", "folder", "link", "special"]
    size: int = 0
    note: str = ""
    """The target of a link, or the kind of a special file."""


class LeftOut(msgspec.Struct):
    """Counts of what a walk left out, reported at the end."""

    version_control: int = 0
    too_deep: int = 0
    unreadable: int = 0
    stopped: str = ""

    def sentences(self) -> list[str]:
        hidden = count(self.version_control, "version control folder")
        sentences = (
            (self.version_control, f"{hidden} left out; name one in path to look inside"),
            (self.too_deep, f"{count(self.too_deep, 'folder')} more than {MAX_DEPTH} levels deep left out"),
            (self.unreadable, f"{count(self.unreadable, 'folder')} could not be read"),
            (self.stopped, f"stopped early: {self.stopped}"),
        )
        return [sentence for happened, sentence in sentences if happened]


class StopCheck:
    """Decides when to stop: the run was aborted, or the time is over. Used in a thread."""

    def __init__(self, signal: Signal, seconds: float) -> None:
        self._signal = signal
        self._seconds = seconds
        self._until = time.monotonic() + seconds

    @property
    def stop_reason(self) -> str | None:
        if self._signal.aborted:
            return self._signal.reason or "aborted"
        return f"{self._seconds:g} s are over" if time.monotonic() >= self._until else None


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def list_folder(handle: int) -> Iterator[Entry]:
    """Yield the entries of an open folder, unordered."""

    with os.scandir(handle) as items:
        for item in items:
            try:
                status = item.stat(follow_symlinks=False)
                kind = stat.S_IFMT(status.st_mode)
                if kind == stat.S_IFLNK:
                    yield Entry(item.name, "link", note=os.readlink(item.name, dir_fd=handle))
                elif kind == stat.S_IFDIR:
                    yield Entry(item.name, "folder")
                elif kind == stat.S_IFREG:
                    yield Entry(item.name, "file", status.st_size)
                else:
                    yield Entry(item.name, "special", note=KINDS.get(kind, "a special file").removeprefix("a "))
            except OSError as error:
                yield Entry(item.name, "special", note=error.strerror or "unreadable")


def walk(handle: int, stop_check: StopCheck, left_out: LeftOut, enter: Callable[[str], bool]) -> Iterator[Entry]:
    """Yield every entry below the open folder, by name; folders that ``enter`` refuses are yielded, not entered."""
    seen = 0
    # Handles are duplicated so that each level can close its own.
    stack: list[tuple[int, str, Iterator[Entry]]] = [(os.dup(handle), "", _sorted(handle))]
    try:
        while stack:
            folder, prefix, entries = stack[-1]
            entry = next(entries, None)
            if entry is None:
                os.close(stack.pop()[0])
                continue
            seen += 1
            if reason := stop_check.stop_reason or (
                f"{MAX_ENTRIES:,} entries were seen" if seen > MAX_ENTRIES else None
            ):
                left_out.stopped = reason
                return
            name = entry.path
            entry = msgspec.structs.replace(entry, path=prefix + name)
            yield entry
            if entry.kind != "folder" or not enter(entry.path):
                continue
            if name in VERSION_CONTROL:
                left_out.version_control += 1
            elif len(stack) >= MAX_DEPTH:
                left_out.too_deep += 1
            else:
                try:
                    below = os.open(name, LIST, dir_fd=folder)
                except OSError:
                    left_out.unreadable += 1
                    continue
                stack.append((below, entry.path + "/", _sorted(below)))
    finally:
        for folder, _, _ in stack:
            os.close(folder)


async def permitted(
    paths: Sequence[str], base: ResolvedPath, permission: str, context: ToolContext, stop_check: StopCheck | None = None
) -> list[bool]:
    """Return for each path below ``base`` whether it is permitted; with a ``stop_check``, for as many as there was
    time."""
    answers: list[bool] = []
    for path in paths:
        if stop_check is not None and stop_check.stop_reason:
            break
        try:
            await context.permit(base.below(path).target(permission))
            answers.append(True)
        except PermissionDenied:
            answers.append(False)
        if len(answers) % 256 == 0:
            await asyncio.sleep(0)  # Let other tasks run: permit may never wait.
    return answers


def line_of(entry: Entry, base: ResolvedPath, *, sizes: bool) -> str:
    """Return a line about an entry: folders end in ``/``, links show their targets, files their sizes."""
    resolved = base.below(entry.path)
    shown = resolved.shown
    match entry.kind:
        case "folder":
            return shown + "/"
        case "link":
            target = _leads_inside(resolved)
            if target is None:
                return f"{shown} -> {show_name(entry.note)}  (leads out of the workspace)"
            return f"{shown} -> {show_name(entry.note)}{'' if os.path.lexists(target) else '  (leads nowhere)'}"
        case "special":
            return f"{shown}  ({entry.note})"
        case _:
            return f"{shown}  {count(entry.size, 'byte')}" if sizes else shown


def _leads_inside(link: ResolvedPath) -> str | None:
    """Return where a link leads; None as soon as a step is outside the workspace, where nothing is looked at: an owner
    who can make links must not learn from them which other files exist."""
    at, rest = str(link.path.parent), [link.path.name]
    for _ in range(_MAX_STEPS):
        if not rest:
            return at
        step = os.path.normpath(os.path.join(at, rest.pop()))
        if not Path(step).is_relative_to(link.root):
            if not link.root.is_relative_to(step):
                return None
            at = step  # The path to the workspace has no link.
            continue
        try:
            target = os.readlink(step)
        except (OSError, ValueError):
            at = step
            continue
        at = "/" if target.startswith("/") else os.path.dirname(step)
        rest += [name for name in reversed(target.split("/")) if name]
    return os.path.join(at, *reversed(rest))


def _sorted(handle: int) -> Iterator[Entry]:
    # Not more than a walk may show, so that one huge folder does not fill the memory; the one beyond is noticed.
    return iter(heapq.nsmallest(MAX_ENTRIES + 1, list_folder(handle), key=lambda entry: entry.path))
