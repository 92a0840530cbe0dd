"""Changes to files as a person reads them: what an edit or a write would make of a file, line by line."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from clew.errors import ClewError
from clew.fronts.cli.render import Look
from clew.fronts.cli.safe_text import plain
from clew.tools.builtin.edit import plan_edit

__all__ = ["change_lines", "diff_line"]

_MOST_BYTES: Final = 2 * 1024 * 1024
_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}


def diff_line(line: str, look: Look) -> str:
    """A line of a unified diff, coloured by what it says."""
    shown, colour = plain(line.expandtabs(4)), _COLOURS.get(line[:1])
    return look.style(shown, colour) if colour else shown


def change_lines(tool: str, given: object, folder: str | None, look: Look) -> list[str] | None:
    """What an ``edit`` or a ``write`` would change: a head with the counts, then the diff. None of any other call."""
    if not isinstance(given, Mapping) or not isinstance(path := given.get("path"), str):
        return None
    texts: dict[str, Any] = {name: given.get(name) for name in ("old", "new", "content")}
    wanted = {"edit": ("old", "new"), "write": ("content",)}.get(tool, ())
    if not wanted or any(not isinstance(texts[name], str) for name in wanted):
        return None
    known, missing = _read(folder, path)
    about = ""
    if tool == "write":
        before, after = known or "", texts["content"]
        about = "  a new file" if missing else "" if known is not None else "  the file cannot be shown"
    else:
        before, after = texts["old"], texts["new"]
        try:
            whole = before if known is None else known
            after = plan_edit(whole, before, after, every=given.get("all") is True).text
            before = whole
        except ClewError as error:
            about = f"  it will fail: {error}"
        if given.get("all") is True:
            about += "  every occurrence"
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=3))[2:]
    if before.splitlines() == after.splitlines() and before != after:
        about += "  line ends change"
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    counts = f"{look.style(f'+{added}', 'green')} {look.style(f'−{removed}', 'red')}"
    head = f"{look.style('?', 'yellow')} {look.style(tool, 'bold')} {plain(path)}  {counts}"
    return [head + look.style(plain(about), "dim"), *(f"  {diff_line(line, look)}" for line in lines)]


def _read(folder: str | None, path: str) -> tuple[str | None, bool]:
    """The text of a file, where it can be read as one; and whether there is none."""
    try:
        file = Path(folder or ".") / path
        if not file.is_file():
            return None, not file.exists()
        if file.stat().st_size > _MOST_BYTES:
            return None, False
        return file.read_bytes().decode(), False
    except (OSError, ValueError):
        return None, False
