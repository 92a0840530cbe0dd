"""Project instructions: finds and reads the files from the project's outermost folder down to the workspace.

The project ends at its git repository. Without one, folders up to the user's home count, and for a workspace elsewhere
only its own folder, because anyone may have written the folders above. The files belong to the project's authors; they
are read with limits and cannot make clew read anything else.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

import msgspec

from clew.safe_read import (
    ContainedText,
    FileCache,
    Unreadable,
    read_contained,
    record_dependency,
    resolve_folder,
    shown,
)
from clew.system_prompt.inputs import Instruction
from clew.system_prompt.sections import MAX_INSTRUCTION_BYTES, MAX_INSTRUCTIONS_BYTES

__all__ = ["INSTRUCTION_NAMES", "Instructions", "load_instructions"]

INSTRUCTION_NAMES: Final = ("AGENTS.md", "CLAUDE.md", "CONTEXT.md")
_MAX_FOLDERS: Final = 64


class Instructions(msgspec.Struct, frozen=True):
    """The files, outermost first, and a sentence for each one that was skipped or cut."""

    files: tuple[Instruction, ...] = ()
    warnings: tuple[str, ...] = ()


class _Project(msgspec.Struct, frozen=True):
    """The folders to search, nearest first. ``root`` is the repository's, if there is one."""

    folders: tuple[Path, ...]
    root: Path | None


def load_instructions(workspace: Path, *, home: Path | None = None) -> Instructions:
    """Return the instruction files of a workspace, read again only if one has changed. Blocking.

    ``home`` is the user's home, or another folder above which nothing is read.
    """
    home = home or _home()
    real_home = _resolve(home) if home else None
    return _cache.get((workspace, real_home), lambda: _load(workspace, real_home))


_cache: Final[FileCache[Instructions]] = FileCache()


def _load(workspace: Path, real_home: Path | None) -> Instructions:
    project = _find_project(workspace, real_home)
    files: list[Instruction] = []
    warnings: list[str] = []
    included: set[Path] = set()
    for folder in project.folders:
        here: list[Instruction] = []
        for name in INSTRUCTION_NAMES:
            path = folder / name
            try:
                found = _read(path, project.root or folder)
            except Unreadable as error:
                warnings.append(f"{shown(path)}: ignored; it {error}")
                continue
            # The same file often has several names; include it once.
            if found is None or found.real in included or not found.text.strip():
                continue
            included.add(found.real)
            if found.cut:
                warnings.append(f"{shown(path)}: cut off after {MAX_INSTRUCTION_BYTES} of {found.size} bytes")
            here.append(Instruction(str(path), found.text, found.size if found.cut else None))
        files[:0] = here
    size = sum(len(file.text.encode()) for file in files)
    if size > MAX_INSTRUCTIONS_BYTES:
        warnings.append(f"{shown(workspace)}: its instruction files exceed the total limit; the nearest are used first")
    return Instructions(tuple(files), tuple(warnings))


def _read(path: Path, inside: Path) -> ContainedText | None:
    found = read_contained(path, inside, MAX_INSTRUCTION_BYTES)
    # A link could send a file to the model that was not meant to be sent: keys, tokens, git settings.
    if found is not None and found.real.suffix.lower() != ".md":
        raise Unreadable("is a link to something that is not Markdown")
    return found


def _resolve(folder: Path) -> Path:
    try:
        return resolve_folder(folder)
    except (OSError, Unreadable):
        return folder


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:
        return None


def _find_project(workspace: Path, real_home: Path | None) -> _Project:
    record_dependency(workspace)
    try:
        start = resolve_folder(workspace)
        if not start.is_dir():
            return _Project((), None)
    except (OSError, ValueError):
        return _Project((), None)
    folders: list[Path] = []
    for folder in [start, *start.parents][:_MAX_FOLDERS]:
        # Any user may have put files, or a .git, into a world-writable folder such as /tmp.
        if folders and _is_world_writable(folder):
            break
        folders.append(folder)
        record_dependency(folder / ".git")
        if os.path.lexists(folder / ".git"):
            return _Project(tuple(folders), folder)
        if folder == real_home:
            return _Project(tuple(folders), None)
    return _Project((start,), None)


def _is_world_writable(folder: Path) -> bool:
    record_dependency(folder)
    try:
        return bool(folder.stat().st_mode & stat.S_IWOTH)
    except OSError:
        return True
