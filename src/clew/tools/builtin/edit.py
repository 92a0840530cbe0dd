"""``edit``: replace one passage of a text file; everything else stays unchanged byte for byte."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from clew.errors import ToolFailed
from clew.tools.base import Change, ToolContext, ToolOutput
from clew.tools.decorator import tool
from clew.tools.files.access import file_errors, read_all, replace
from clew.tools.files.change import change_between, change_details, may_show, text_at
from clew.tools.files.paths import ResolvedPath, changed_targets, judged_path, locate
from clew.tools.files.walk import count
from clew.tools.output import looks_binary
from clew.tools.thread import run_in_thread

__all__ = ["EditPlan", "edit", "edited_output", "plan_edit"]

MAX_EDIT_BYTES: Final = 10 * 1024 * 1024


class EditPlan(msgspec.Struct, frozen=True):
    """The new text, with the lines where the replaced passages start."""

    text: str
    lines: tuple[int, ...]


def _preview(args: Mapping[str, Any], workspace: Path | None) -> Change | None:
    before = text_at(locate(args["path"], workspace))
    every = args.get("all") is True
    note = "every occurrence" if every else ""
    try:
        if before is not None:
            return change_between(before, plan_edit(before, args["old"], args["new"], every=every).text, note)
        note = "the file cannot be shown"
    except ToolFailed as error:
        note = f"it will fail: {error}"
    return change_between(args["old"], args["new"], note)


@tool(needs_workspace=True, targets=changed_targets("edit"), preview=_preview, capabilities=["fs.read", "fs.write"])
async def edit(
    path: Annotated[str, Meta(description="The file, relative to the workspace or absolute.", min_length=1)],
    old: Annotated[str, Meta(description="The text to replace, exactly as it stands in the file.", min_length=1)],
    new: Annotated[str, Meta(description="What to put in its place; empty to delete.")],
    context: ToolContext,
    all: Annotated[bool, Meta(description="Replace every occurrence.")] = False,
) -> ToolOutput:
    """Replace a passage of a text file.

    The passage must occur exactly once, unless all is true: give enough lines around it. Line endings are kept as the
    file has them.
    """
    resolved = await judged_path("edit", path, context)
    return await run_in_thread(_edit, resolved, old, new, every=all, shown=await may_show(resolved, context))


def _edit(resolved: ResolvedPath, old: str, new: str, *, every: bool, shown: bool) -> ToolOutput:
    with file_errors(resolved.shown):
        data, version = read_all(resolved.path, MAX_EDIT_BYTES)
        if looks_binary(data):
            raise ToolFailed(f"{resolved.shown} is not a text file and cannot be edited")
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise ToolFailed(
                f"{resolved.shown} is not UTF-8 text (byte {error.start:,}) and cannot be edited"
            ) from error
        edited = plan_edit(text, old, new, every=every)
        try:
            changed = edited.text.encode()
        except UnicodeEncodeError as error:
            raise ToolFailed("the new text holds half of a surrogate pair and cannot be written") from error
        replace(resolved.path, changed, expected=version)
    return edited_output(resolved, text, edited, shown=shown)


def edited_output(resolved: ResolvedPath, text: str, edited: EditPlan, *, shown: bool) -> ToolOutput:
    """Return the output of an edit."""
    lines = ", ".join(map(str, edited.lines[:10])) + (", …" if len(edited.lines) > 10 else "")
    where = "line" if len(edited.lines) == 1 else "lines"
    summary = f"replaced {count(len(edited.lines), 'passage')} in {resolved.shown}, {where} {lines}"
    return ToolOutput(summary, change_details(change_between(text, edited.text)) if shown else None)


def plan_edit(text: str, old: str, new: str, *, every: bool = False) -> EditPlan:
    """Return the text with ``old`` replaced. A line end in ``old`` matches either kind of line end."""
    old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    if not old:
        raise ToolFailed("old is empty; to make a file use write")
    if old == new:
        raise ToolFailed("old and new are the same; there is nothing to change")
    # A line end matches as a whole, so that no passage starts between its two characters.
    pattern = re.compile(r"(?:\r\n|(?<!\r)\n)".join(map(re.escape, old.split("\n"))))
    first = pattern.search(text)
    if first is None:
        raise ToolFailed("old does not occur in the file; read the file again and copy the passage exactly")
    # Search from the next character, so that overlapping occurrences count, too.
    if not every and (second := pattern.search(text, first.start() + 1)):
        line, other_line = (text.count("\n", 0, found.start()) + 1 for found in (first, second))
        raise ToolFailed(
            f"old occurs more than once, on lines {line} and {other_line}; give more lines around it, or all: true"
        )
    default_end = "\r\n" if text.count("\r\n") * 2 > text.count("\n") else "\n"
    pieces: list[str] = []
    lines: list[int] = []
    at = newlines = 0
    size = len(text)
    for match in pattern.finditer(text):
        size += len(new) - len(match[0])
        if every and size > MAX_EDIT_BYTES:
            raise ToolFailed(f"the file would have more than {MAX_EDIT_BYTES:,} bytes")
        before = text[at : match.start()]
        line_end = "\r\n" if "\r\n" in match[0] else "\n" if "\n" in match[0] else default_end
        replacement = new.replace("\n", line_end)
        newlines += before.count("\n")
        lines.append(newlines + 1)
        newlines += replacement.count("\n")
        pieces += [before, replacement]
        at = match.end()
    pieces.append(text[at:])
    return EditPlan("".join(pieces), tuple(lines))
