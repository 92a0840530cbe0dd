"""``write``: a whole file, made or replaced at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from clew.errors import ToolFailed
from clew.tools.base import Change, ToolContext, ToolOutput
from clew.tools.decorator import tool
from clew.tools.files.access import file_errors, replace
from clew.tools.files.change import change_between, change_details, may_show, text_at
from clew.tools.files.paths import ResolvedPath, changed_targets, judged_path, locate
from clew.tools.files.walk import count
from clew.tools.thread import run_in_thread

__all__ = ["write", "written_output"]


def _preview(args: Mapping[str, Any], workspace: Path | None) -> Change | None:
    resolved = locate(args["path"], workspace)
    before = text_at(resolved)
    if before is None and resolved.path.exists():
        return None
    return change_between(before or "", args["content"], "" if before is not None else "a new file")


@tool(needs_workspace=True, targets=changed_targets("write"), preview=_preview, capabilities=["fs.write"])
async def write(
    path: Annotated[str, Meta(description="The file, relative to the workspace or absolute.", min_length=1)],
    content: Annotated[str, Meta(description="The whole text of the file.")],
    context: ToolContext,
) -> ToolOutput:
    """Write a text file, replacing it if it is there; folders on the way are made.

    Use edit to change a part of a file.
    """
    if path.endswith(("/", "/.", "/..")):
        raise ToolFailed(f"{path} names a folder; give the name of a file")
    try:
        data = content.encode()
    except UnicodeEncodeError as error:
        raise ToolFailed("the content holds half of a surrogate pair and cannot be written") from error
    resolved = await judged_path("write", path, context)
    return await run_in_thread(_write, resolved, content, data, shown=await may_show(resolved, context))


def _write(resolved: ResolvedPath, content: str, data: bytes, *, shown: bool) -> ToolOutput:
    previous = text_at(resolved) if shown else None
    with file_errors(resolved.shown):
        before = replace(resolved.path, data, make_folders=True)
    return written_output(
        resolved, data, before, None if previous is None else change_details(change_between(previous, content))
    )


def written_output(resolved: ResolvedPath, data: bytes, before: int | None, about: dict[str, Any] | None) -> ToolOutput:
    """Return the output for a written file, which had ``before`` bytes; None for a new file."""
    if before is None:
        return ToolOutput(f"made {resolved.shown} with {count(len(data), 'byte')}")
    return ToolOutput(f"replaced {resolved.shown}: {count(len(data), 'byte')}, before {before:,}", about)
