"""Values about the files of a workspace: what is asked, what a restore would do and did, and what a session changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, get_args

import msgspec

from clew.errors import InvalidInput
from clew.snapshots.base import ChangeKind

__all__ = [
    "FILES_MODES",
    "ChangedFile",
    "ChangesReport",
    "FileDiff",
    "FileEffect",
    "FilesCompared",
    "FilesMode",
    "FilesRequest",
    "FilesRestored",
    "RestorePreview",
]

FilesMode = Literal["keep", "restore", "only"]
"""Whether files are restored: not, together with the conversation, or they alone."""
FILES_MODES: Final[tuple[FilesMode, ...]] = get_args(FilesMode)


class FilesRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request about files. Those in ``paths``, or with ``force`` all, are overwritten even if another hand has
    changed them."""

    mode: FilesMode = "keep"
    force: bool = False
    paths: tuple[str, ...] = ()

    @classmethod
    def of(cls, mode: str, force: bool, paths: Sequence[str]) -> FilesRequest:
        if mode not in ("keep", "restore", "only"):
            raise InvalidInput(f"files must be keep, restore or only, not {mode!r}")
        if mode == "keep" and (force or paths):
            raise InvalidInput("force and paths are about restored files; set files to restore or only")
        return cls(mode=mode, force=force, paths=tuple(paths))  # type: ignore[arg-type]


class FileEffect(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a restore on one file: ``added`` and ``removed`` count lines, None for what is not text.

    ``conflict``: another hand has changed it since, so that it is left alone unless it is named.
    """

    path: str
    kind: ChangeKind
    added: int | None = None
    removed: int | None = None
    conflict: bool = False


class RestorePreview(msgspec.Struct, frozen=True, kw_only=True):
    """The effect that a restore would have. ``skipped`` are paths that the snapshot does not cover, with reasons;
    ``unsure`` those that a call may have changed before the snapshot was taken, which was late."""

    snapshot_id: str
    taken_at: int
    state: str
    files: tuple[FileEffect, ...]
    skipped: Mapping[str, str] = {}
    unsure: tuple[str, ...] = ()


class FilesRestored(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a restore. ``conflicts`` are files that were left alone since another hand has changed them."""

    snapshot_id: str
    restored: tuple[str, ...]
    conflicts: tuple[str, ...] = ()
    skipped: Mapping[str, str] = {}
    unsure: tuple[str, ...] = ()


class ChangedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a session changed. ``added`` and ``removed`` count lines, None for what is not text. ``shared``:
    another session or a person changed it meanwhile."""

    path: str
    kind: ChangeKind
    added: int | None = None
    removed: int | None = None
    shared: bool = False


class ChangesReport(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of a session, a turn or a step. ``skipped`` are paths that snapshots do not cover, with reasons;
    ``failed`` is the newest reason why a snapshot is missing, so that changes may be missing, too."""

    files: tuple[ChangedFile, ...]
    skipped: Mapping[str, str] = {}
    failed: str | None = None


class FileDiff(msgspec.Struct, frozen=True, kw_only=True):
    """The difference of one file as a unified diff. ``hunks`` are the headers by which one can be reverted."""

    path: str
    kind: ChangeKind
    diff: str
    hunks: tuple[str, ...] = ()


class FilesCompared(msgspec.Struct, frozen=True, kw_only=True):
    """The files that differ between the workspaces of a session and a branch of it, as last saved. ``diff`` is the
    unified diff of the one file that was asked for."""

    files: tuple[ChangedFile, ...]
    diff: str | None = None
