"""Commands for files: the changes a session made in its workspace, and the bytes on disk."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final

from clew.errors import InvalidInput
from clew.fronts.cli.command import Json, Store, flag, open_store, option, show
from clew.fronts.cli.commands.history import restored_lines
from clew.fronts.cli.safe_text import plain

if TYPE_CHECKING:
    from clew.session.history.file_values import ChangedFile, ChangesReport, FileEffect, RestorePreview

__all__ = ["changes", "changes_lines", "du", "preview_lines"]

_MARKS: Final = {"added": "A", "modified": "M", "deleted": "D", "mode": "M"}
_UNITS: Final = ("B", "KB", "MB", "GB", "TB")


async def changes(
    session: str,
    /,
    *,
    turn: Annotated[str | None, option("Only the changes of this turn.")] = None,
    step: Annotated[int | None, option("Only the changes of this step of the turn, from 0.")] = None,
    path: Annotated[str | None, option("Show the differences of this file.")] = None,
    against: Annotated[str | None, option("Compare with the files of this branch, or of the session it is of.")] = None,
    revert: Annotated[str | None, option("Take the changes of this file back.")] = None,
    hunk: Annotated[str | None, option("Take only the hunk with this header back.")] = None,
    force: Annotated[bool, flag("Take them back even if the file was changed since.")] = False,
    store: Store = None,
    json: Json = False,
) -> None:
    """List the files that a session changed, or show or take back the changes of one.

    Example: clew changes ses_… --path src/app.py
    """
    if hunk is not None and revert is None:
        raise InvalidInput("--hunk needs --revert FILE")
    async with open_store(store, write=revert is not None) as engine:
        if revert is not None:
            done = await engine.revert_change(session, revert, hunk=hunk, turn_id=turn, step=step, force=force)
            show(json, done, restored_lines(done))
        elif against is not None:
            compared = await engine.compare_files(session, against, path=path)
            lines = [_line(file) for file in compared.files] if compared.diff is None else []
            show(json, compared, lines or (["no differences"] if not compared.files else []))
            _print_diff(compared.diff or "", json)
        elif path is not None:
            diff = await engine.change_diff(session, path, turn_id=turn, step=step)
            show(json, diff, ())
            _print_diff(diff.diff, json)
        else:
            report = await engine.changes(session, turn_id=turn, step=step)
            show(json, report, changes_lines(report))


async def du(*, store: Store = None, json: Json = False) -> None:
    """Show the bytes on disk by kind: database, blobs, snapshots of workspaces, long outputs of tools.

    Example: clew du
    """
    async with open_store(store) as engine:
        use = await engine.disk_use()
    kinds = [("database", use.database), ("blobs", use.blobs), ("snapshots", use.snapshots), ("outputs", use.outputs)]
    lines = [f"{_size(count):>9}  {name}" for name, count in kinds]
    lines += [f"{_size(count):>9}    {workspace}" for workspace, count in sorted(use.workspaces.items())]
    show(json, use, lines)


def _print_diff(diff: str, json: bool) -> None:
    if not json:
        sys.stdout.write(plain(diff) if sys.stdout.isatty() else diff)


def changes_lines(report: ChangesReport) -> list[str]:
    """Return the lines about changed files."""
    shared = "  (shared: changed by others, too)"
    lines = [f"{_line(file)}{shared if file.shared else ''}" for file in report.files]
    lines += [f"! not covered: {path} ({why})" for path, why in sorted(report.skipped.items())]
    lines += [f"! a snapshot is missing: {report.failed}"] if report.failed is not None else []
    return lines or ["no changes"]


def preview_lines(preview: RestorePreview) -> list[str]:
    """Return the lines about what a restore would do."""
    foreign = "  (changed by another hand: left alone)"
    lines = [f"{_line(file)}{foreign if file.conflict else ''}" for file in preview.files]
    lines += [f"! not covered: {path} ({why})" for path, why in sorted(preview.skipped.items())]
    return lines + [f"! uncertain, the snapshot was late: {path}" for path in preview.unsure]


def _line(file: ChangedFile | FileEffect) -> str:
    return f"{_MARKS[file.kind]} {_count('+', file.added)} {_count('-', file.removed)}  {file.path}"


def _count(sign: str, count: int | None) -> str:
    return f"{sign}{count if count is not None else '?'}"


def _size(count: int | None) -> str:
    if count is None:
        return "elsewhere"
    size, unit = float(count), 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{count} B" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"
