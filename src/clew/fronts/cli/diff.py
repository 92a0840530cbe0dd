"""Changes to files as a person reads them in a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from clew.fronts.cli.render import Look
from clew.fronts.cli.safe_text import plain

__all__ = ["change_lines", "diff_line"]

_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}


def diff_line(line: str, look: Look) -> str:
    """A line of a unified diff, coloured by what it says."""
    shown, colour = plain(line.expandtabs(4)), _COLOURS.get(line[:1])
    return look.style(shown, colour) if colour else shown


def change_lines(tool: str, given: object, descriptor: object, look: Look) -> list[str] | None:
    """What a call would change, as its request says: a head with the counts, then the diff. None without one."""
    change: Any = descriptor.get("change") if isinstance(descriptor, Mapping) else None
    if not isinstance(change, Mapping) or not isinstance(given, Mapping):
        return None
    added, removed, about = change.get("added"), change.get("removed"), change.get("note")
    counts = f"{look.style(f'+{added}', 'green')} {look.style(f'−{removed}', 'red')}"
    note = f"  {about}" if about else ""
    head = f"{look.style('?', 'yellow')} {look.style(tool, 'bold')} {plain(str(given.get('path')))}  {counts}"
    lines = str(change.get("diff") or "").splitlines()
    return [head + look.style(plain(note), "dim"), *(f"  {diff_line(line, look)}" for line in lines)]
