"""``glob``: the paths below a folder that match a pattern."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from clew.tools.base import ToolContext
from clew.tools.decorator import tool
from clew.tools.files.access import file_errors, open_folder
from clew.tools.files.paths import ResolvedPath, judged_path, path_targets
from clew.tools.files.pattern import Glob
from clew.tools.files.walk import Entry, LeftOut, StopCheck, line_of, permitted, walk
from clew.tools.output import fit_text
from clew.tools.thread import run_in_thread

__all__ = ["glob"]

MAX_SHOWN: Final = 1_000
MAX_FOUND: Final = 50_000


@tool(needs_workspace=True, targets=path_targets("glob"), capabilities=["fs.read"])
async def glob(
    pattern: Annotated[str, Meta(description="Such as **/*.py or src/*.{ts,tsx}.", min_length=1)],
    context: ToolContext,
    path: Annotated[str, Meta(description="The folder to start from; the workspace if left out.", min_length=1)] = ".",
) -> str:
    """Find files and folders by name.

    ** stands for any number of folders. Links are shown and not followed. At most 1,000 paths are shown, by name.
    """
    compiled = Glob(pattern)
    folder = await judged_path("glob", path, context)
    left_out = LeftOut()
    entries = await run_in_thread(_find, folder, compiled, StopCheck(context.signal, 30), left_out)
    answers = await permitted([entry.path for entry in entries], folder, "glob", context)
    shown = [entry for entry, allowed in zip(entries, answers, strict=True) if allowed]
    lines = [line_of(entry, folder, sizes=False) for entry in shown[:MAX_SHOWN]] or ["[nothing fits the pattern]"]
    if len(shown) > MAX_SHOWN:
        lines.append(f"[{len(shown) - MAX_SHOWN:,} more of {len(shown):,} are not shown]")
    if denied := answers.count(False):
        lines.append(f"[left out: {denied:,} × path that rules deny]")
    return await fit_text("\n".join(lines + [f"[{sentence}]" for sentence in left_out.sentences()]), context, "glob")


def _find(folder: ResolvedPath, pattern: Glob, stop_check: StopCheck, left_out: LeftOut) -> list[Entry]:
    found: list[Entry] = []
    with file_errors(folder.shown), open_folder(folder.path) as handle:
        for entry in walk(handle, stop_check, left_out, pattern.may_hold):
            if pattern.matches(entry.path) and (entry.kind == "folder" or not pattern.folders_only):
                found.append(entry)
                if len(found) > MAX_FOUND:
                    left_out.stopped = f"more than {MAX_FOUND:,} paths fit the pattern"
                    break
    return found
