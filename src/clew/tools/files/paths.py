"""Path resolution: the only module that turns a model's path into a path to act on.

``targets()`` uses it to name what a call would touch; execution uses it again and compares, so that a link swapped in
between is detected. A path is relative to the workspace, links and ``..`` are followed as the kernel does, ``~`` is a
name like any other. Permissions are decided elsewhere: a path outside the workspace is resolved like any other, and
marked.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from clew.errors import ToolFailed
from clew.escape import escape_invisible
from clew.tools.base import TargetsOf, ToolContext
from clew.tools.thread import run_in_thread
from clew.transcript.rule import Target

__all__ = ["MAX_PATH_BYTES", "ResolvedPath", "changed_targets", "judged_path", "locate", "path_targets", "show_name"]

MAX_PATH_BYTES: Final = 4096
_MAX_LINKS: Final = 40


class ResolvedPath(msgspec.Struct, frozen=True):
    """A path with no link left in it. ``root`` is the workspace, resolved too."""

    path: Path
    root: Path

    @property
    def inside(self) -> bool:
        return self.path.is_relative_to(self.root)

    @property
    def shown(self) -> str:
        """Return the path as shown to the model: usable as an argument, relative if possible."""
        if self.path == self.root:
            return "."
        return show_name(self.path.relative_to(self.root) if self.inside else self.path)

    def below(self, relative: str) -> ResolvedPath:
        return ResolvedPath(self.path / relative, self.root)

    def target(self, permission: str) -> Target:
        return Target(permission, "path", str(self.path), self.inside)


def locate(text: str, workspace: Path | None) -> ResolvedPath:
    """Resolve ``text`` now. Raises ``ToolFailed`` for an invalid path; the path need not exist."""
    if workspace is None:
        raise ToolFailed("this session has no workspace, so there are no files to work with")
    _check(text)
    try:
        root = os.path.realpath(workspace)
        real = os.path.realpath(os.path.join(root, text))
    except OSError as error:
        raise ToolFailed(f"{show_name(text)} changed while it was resolved: {error.strerror}") from error
    # A loop of links stays in the path, unresolved: there is no real path to judge.
    if any(os.path.islink(step) for step in (real, *map(str, Path(real).parents))):
        raise ToolFailed(f"{show_name(text)} cannot be resolved: its links form a loop")
    _check(real)
    return ResolvedPath(Path(real), Path(root))


def path_targets(permission: str) -> TargetsOf:
    """Return the targets of a tool with the argument ``path``; the workspace by default."""
    return lambda args, workspace: [locate(args.get("path", "."), workspace).target(permission)]


def changed_targets(permission: str) -> TargetsOf:
    """Return the targets of a tool that changes ``path``: the file, and the links in the workspace that lead to it.

    A file may get its meaning from the name of the link: the target of `.envrc` is run as `.envrc`.
    """

    def targets(args: Mapping[str, Any], workspace: Path | None) -> list[Target]:
        found = locate(args.get("path", "."), workspace)
        names = _link_paths(args.get("path", "."), found) if found.inside else []
        return [found.target(permission), *(Target(permission, "path", name, inside=True) for name in names)]

    return targets


def _link_paths(text: str, found: ResolvedPath) -> list[str]:
    """Return the paths in the workspace that lead to ``found``, without ``found`` itself."""
    path, names = os.path.join(found.root, text), dict[str, None]()
    for _ in range(_MAX_LINKS):
        folder, name = os.path.split(os.path.normpath(path))
        real = os.path.join(os.path.realpath(folder), name)
        names |= {os.path.normpath(path): None, real: None}
        try:
            path = os.path.join(os.path.dirname(real), os.readlink(real))
        except OSError:
            break
    return [name for name in names if name != str(found.path) and Path(name).is_relative_to(found.root)]


async def judged_path(permission: str, text: str, context: ToolContext) -> ResolvedPath:
    """Resolve ``text`` at execution. Raises ``ToolFailed`` if it leads elsewhere than when the call was judged."""
    found = await run_in_thread(locate, text, context.workspace)
    target = found.target(permission)

    def has_hard_links() -> bool:
        try:
            status = found.path.lstat()
        except OSError:
            return False
        return stat.S_ISREG(status.st_mode) and status.st_nlink > 1

    # A link may have been created since the call was judged; only judged paths are touched.
    if context.judged is not None and target not in context.judged:
        raise ToolFailed(
            f"{show_name(text)} leads to {show_name(target.value)} now, which is not what was judged; no change made"
        )
    # A hard link may have made it a name of a protected file.
    if context.judged is None or await run_in_thread(has_hard_links):
        await context.permit(target)
    return found


def show_name(name: str | Path) -> str:
    """Return a name for use in a line of text: characters that break the line or cannot be stored are escaped."""
    return escape_invisible(str(name))


def _check(text: str) -> None:
    if not text:
        raise ToolFailed("the path is empty; use . for the workspace")
    if "\x00" in text:
        raise ToolFailed("the path contains a NUL character")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        # Half a surrogate pair would become a raw byte in a file name, which no rule could match.
        raise ToolFailed("the path is not valid Unicode text") from error
    if size > MAX_PATH_BYTES:
        raise ToolFailed(f"the path is {size} bytes long; at most {MAX_PATH_BYTES} are allowed")
