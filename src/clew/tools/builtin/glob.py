"""``glob``: the paths below a folder that fit a pattern."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta

from clew.errors import PermissionDenied
from clew.tools.base import ToolContext
from clew.tools.decorator import tool
from clew.tools.files.access import explained, open_folder
from clew.tools.files.paths import Place, judged_place, locate
from clew.tools.files.pattern import Glob
from clew.tools.files.walk import Brake, Entry, LeftOut, line_of, walk
from clew.tools.output import fit_text
from clew.tools.thread import run_in_thread
from clew.transcript.rule import Target

__all__ = ["glob"]

MAX_SHOWN: Final = 1_000
MAX_FOUND: Final = 50_000


def _targets(args: Mapping[str, Any], workspace: Path | None) -> Sequence[Target]:
    return [locate(args.get("path", "."), workspace).target("glob")]


@tool(needs_workspace=True, targets=_targets)
async def glob(
    pattern: Annotated[str, Meta(description="Such as **/*.py or src/*.{ts,tsx}.", min_length=1)],
    context: ToolContext,
    path: Annotated[str, Meta(description="The folder to start from; the workspace if left out.", min_length=1)] = ".",
) -> str:
    """Find files and folders by name.

    ** stands for any number of folders. Links are shown and not followed. At most 1,000 paths are shown, by name.
    """
    compiled = Glob(pattern)
    place = await judged_place("glob", path, context)
    left_out = LeftOut()
    found = await run_in_thread(_glob, place, compiled, context, left_out)
    shown: list[Entry] = []
    denied = 0
    for number, entry in enumerate(found, 1):
        try:
            await context.permit(Place(place.path / entry.path, place.root).target("glob"))
        except PermissionDenied:
            denied += 1
        else:
            shown.append(entry)
        if number % 256 == 0:
            await asyncio.sleep(0)  # The answers may come without a pause; others want the loop, too.
    return await fit_text(_told(shown, denied, place, left_out), context, "glob")


def _glob(place: Place, pattern: Glob, context: ToolContext, left_out: LeftOut) -> list[Entry]:
    found: list[Entry] = []
    with explained(place.shown):
        handle = open_folder(place.path)
        try:
            for entry in walk(handle, Brake(context.signal, 30), left_out, pattern.may_hold):
                if pattern.folders_only and entry.kind != "folder":
                    continue
                if pattern.matches(entry.path):
                    found.append(entry)
                    if len(found) > MAX_FOUND:
                        left_out.stopped = f"more than {MAX_FOUND:,} paths fit the pattern"
                        break
        finally:
            os.close(handle)
    return found


def _told(found: list[Entry], denied: int, place: Place, left_out: LeftOut) -> str:
    lines = [line_of(entry, place, sizes=False) for entry in found[:MAX_SHOWN]]
    if not lines:
        lines.append("[nothing fits the pattern]")
    if len(found) > MAX_SHOWN:
        lines.append(f"[{len(found) - MAX_SHOWN:,} more of {len(found):,} are not shown]")
    if denied:
        lines.append(f"[left out: {denied:,} × path that rules deny]")
    return "\n".join(lines + [f"[{sentence}]" for sentence in left_out.sentences()])
