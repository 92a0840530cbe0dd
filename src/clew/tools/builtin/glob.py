"""``glob``: the paths below a folder that fit a pattern."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta

from clew.tools.base import ToolContext
from clew.tools.decorator import tool
from clew.tools.files import explained, open_folder
from clew.tools.output import fit_text
from clew.tools.paths import Place, judged_place, locate
from clew.tools.pattern import Glob
from clew.tools.thread import run_in_thread
from clew.tools.walk import Brake, LeftOut, line_of, walk
from clew.transcript.rule import Target

__all__ = ["glob"]

MAX_SHOWN: Final = 1_000


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
    return await fit_text(await run_in_thread(partial(_glob, place, compiled, context)), context, "glob")


def _glob(place: Place, pattern: Glob, context: ToolContext) -> str:
    left_out = LeftOut()
    lines: list[str] = []
    found = 0
    with explained(place.shown):
        handle = open_folder(place.path)
        try:
            for entry in walk(handle, Brake(context.signal, 30), left_out, pattern.may_hold):
                if pattern.folders_only and entry.kind != "folder":
                    continue
                if pattern.matches(entry.path):
                    found += 1
                    if found <= MAX_SHOWN:
                        lines.append(line_of(entry, place, sizes=False))
        finally:
            os.close(handle)
    if not lines:
        lines.append("[nothing fits the pattern]")
    if found > MAX_SHOWN:
        lines.append(f"[{found - MAX_SHOWN:,} more of {found:,} are not shown]")
    return "\n".join(lines + [f"[{sentence}]" for sentence in left_out.sentences()])
