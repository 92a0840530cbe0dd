"""Where a path really leads. The one place that turns a path as a model writes it into a path that is acted on.

``targets()`` uses it to say what a call would touch; execution uses it again and compares, so that a link swapped in
between is noticed. A path is relative to the workspace, links and ``..`` are followed as the kernel would, ``~`` is
a name like any other. Whether a path may be touched is not known here: one outside the workspace is located like
any other and only says so.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from clew.errors import ToolFailed
from clew.escape import escape_unseen
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
        """How the path is told to the model: usable as an argument, short where it can be."""
        if self.path == self.root:
            return "."
        return show_name(self.path.relative_to(self.root) if self.inside else self.path)

    def below(self, relative: str) -> ResolvedPath:
        return ResolvedPath(self.path / relative, self.root)

    def target(self, permission: str) -> Target:
        return Target(permission, "path", str(self.path), self.inside)


def locate(text: str, workspace: Path | None) -> ResolvedPath:
    """Where ``text`` leads now. Raises ``ToolFailed`` for what cannot be a path; the path need not exist."""
    if workspace is None:
        raise ToolFailed("this session has no workspace, so there are no files to work with")
    _check(text)
    try:
        root = os.path.realpath(workspace)
        real = os.path.realpath(os.path.join(root, text))
    except OSError as error:
        raise ToolFailed(f"{show_name(text)} changes while it is looked for: {error.strerror}") from error
    # A circle of links is left in the path, unresolved: there is no real path to judge.
    if any(os.path.islink(step) for step in (real, *map(str, Path(real).parents))):
        raise ToolFailed(f"{show_name(text)} cannot be resolved: its links lead in a circle")
    _check(real)
    return ResolvedPath(Path(real), Path(root))


def path_targets(permission: str) -> TargetsOf:
    """What a tool with the argument ``path`` would touch; without it, the workspace."""
    return lambda args, workspace: [locate(args.get("path", "."), workspace).target(permission)]


def changed_targets(permission: str) -> TargetsOf:
    """What a tool that changes ``path`` would touch: the file, and the names of the workspace that lead to it.

    A file in the workspace may have its meaning from the link: what `.envrc` leads to is run as `.envrc`.
    """

    def targets(args: Mapping[str, Any], workspace: Path | None) -> list[Target]:
        found = locate(args.get("path", "."), workspace)
        names = _names_on_the_way(args.get("path", "."), found) if found.inside else []
        return [found.target(permission), *(Target(permission, "path", name, inside=True) for name in names)]

    return targets


def _names_on_the_way(text: str, found: ResolvedPath) -> list[str]:
    """The paths in the workspace, but for the last, that are passed on the way to ``found``."""
    at, names = os.path.join(found.root, text), dict[str, None]()
    for _ in range(_MAX_LINKS):
        folder, name = os.path.split(os.path.normpath(at))
        real = os.path.join(os.path.realpath(folder), name)
        names |= {os.path.normpath(at): None, real: None}
        try:
            at = os.path.join(os.path.dirname(real), os.readlink(real))
        except OSError:
            break
    return [name for name in names if name != str(found.path) and Path(name).is_relative_to(found.root)]


async def judged_path(permission: str, text: str, context: ToolContext) -> ResolvedPath:
    """Where ``text`` leads at execution, when that is what was judged; ``ToolFailed`` when it leads elsewhere now."""
    found = await run_in_thread(locate, text, context.workspace)
    target = found.target(permission)

    def has_other_names() -> bool:
        try:
            status = found.path.lstat()
        except OSError:
            return False
        return stat.S_ISREG(status.st_mode) and status.st_nlink > 1

    # Between the judgement and now somebody may have put a link in the way; what was not judged is not touched.
    if context.judged is not None and target not in context.judged:
        raise ToolFailed(
            f"{show_name(text)} leads to {show_name(target.value)} now, which is not what was judged; nothing was done"
        )
    # By a second hard link it may have become a name of a file that nobody may touch.
    if context.judged is None or await run_in_thread(has_other_names):
        await context.permit(target)
    return found


def show_name(name: str | Path) -> str:
    """A name that can stand in one line of text: what would break the line or could not be stored is escaped."""
    return escape_unseen(str(name))


def _check(text: str) -> None:
    if not text:
        raise ToolFailed("the path is empty; use . for the workspace")
    if "\x00" in text:
        raise ToolFailed("the path holds a NUL character")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        # Half a surrogate pair would become a raw byte in a file name, which no rule could be written for.
        raise ToolFailed("the path is not valid Unicode text") from error
    if size > MAX_PATH_BYTES:
        raise ToolFailed(f"the path is {size} bytes long; at most {MAX_PATH_BYTES} are possible")
