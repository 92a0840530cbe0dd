"""``ls``: what is in one folder."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta

from clew.tools.base import ToolContext
from clew.tools.decorator import tool
from clew.tools.files.access import explained, open_folder, open_plain
from clew.tools.files.paths import Place, judged_place, locate
from clew.tools.files.walk import Brake, Entry, line_of, list_folder
from clew.tools.output import fit_text
from clew.tools.thread import run_in_thread
from clew.transcript.rule import Target

__all__ = ["ls"]

MAX_SHOWN: Final = 1_000


def _targets(args: Mapping[str, Any], workspace: Path | None) -> Sequence[Target]:
    return [locate(args.get("path", "."), workspace).target("ls")]


@tool(needs_workspace=True, targets=_targets)
async def ls(
    context: ToolContext,
    path: Annotated[str, Meta(description="The folder, relative to the workspace or absolute.", min_length=1)] = ".",
) -> str:
    """List a folder, hidden names included.

    Folders end in /, files come with their size, links with where they lead. At most 1,000 entries are shown.
    """
    place = await judged_place("ls", path, context)
    return await fit_text(await run_in_thread(_ls, place, Brake(context.signal, 30)), context, "ls")


def _ls(place: Place, brake: Brake) -> str:
    with explained(place.shown):
        if not place.path.is_dir():
            with open_plain(place.path) as (_, status):
                return line_of(Entry("", "file", status.st_size), place, sizes=True)
        handle = open_folder(place.path)
        try:
            return _listing(handle, place, brake)
        finally:
            os.close(handle)


def _listing(handle: int, place: Place, brake: Brake) -> str:
    seen = 0
    stopped: str | None = None

    def entries() -> Iterator[Entry]:
        nonlocal seen, stopped
        for entry in list_folder(handle):
            if stopped := brake.pulled:
                return
            seen += 1
            yield entry

    # Only as many are held as are shown, however many there are.
    shown = heapq.nsmallest(MAX_SHOWN, entries(), key=lambda entry: entry.path)
    lines = [line_of(entry, place, sizes=True) for entry in shown]
    if seen > len(shown):
        lines.append(f"[{seen - len(shown):,} more of {seen:,} are not shown]")
    if stopped:
        lines.append(f"[stopped early: {stopped}]")
    return "\n".join(lines) or "[the folder is empty]"
