"""``ls``: the entries of a folder."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Annotated, Final

from msgspec import Meta

from clew.tools.base import ToolContext
from clew.tools.decorator import tool
from clew.tools.files.access import file_errors, open_folder, open_plain
from clew.tools.files.paths import ResolvedPath, judged_path, path_targets
from clew.tools.files.walk import Entry, StopCheck, line_of, list_folder
from clew.tools.output import fit_text
from clew.tools.thread import run_in_thread

__all__ = ["ls"]

MAX_SHOWN: Final = 1_000


@tool(needs_workspace=True, targets=path_targets("ls"), capabilities=["fs.read"])
async def ls(
    context: ToolContext,
    path: Annotated[str, Meta(description="The folder, relative to the workspace or absolute.", min_length=1)] = ".",
) -> str:
    """List a folder, hidden names included.

    Folders end in /, files come with their size, links with where they lead. At most 1,000 entries are shown.
    """
    resolved = await judged_path("ls", path, context)
    return await fit_text(await run_in_thread(_ls, resolved, StopCheck(context.signal, 30)), context, "ls")


def _ls(resolved: ResolvedPath, stop_check: StopCheck) -> str:
    with file_errors(resolved.shown):
        if not resolved.path.is_dir():
            with open_plain(resolved.path) as (_, status):
                return line_of(Entry("", "file", status.st_size), resolved, sizes=True)
        seen = 0
        stopped: str | None = None

        def entries() -> Iterator[Entry]:
            nonlocal seen, stopped
            for entry in list_folder(handle):
                if stopped := stop_check.stop_reason:
                    return
                seen += 1
                yield entry

        with open_folder(resolved.path) as handle:
            # Only the entries that are shown are held in memory.
            shown = heapq.nsmallest(MAX_SHOWN, entries(), key=lambda entry: entry.path)
        lines = [line_of(entry, resolved, sizes=True) for entry in shown]
    if seen > len(shown):
        lines.append(f"[{seen - len(shown):,} more of {seen:,} are not shown]")
    if stopped:
        lines.append(f"[stopped early: {stopped}]")
    return "\n".join(lines) or "[the folder is empty]"
