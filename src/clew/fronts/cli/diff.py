"""Changes to files as a person reads them in a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rich.cells import cell_len

from clew.fronts.cli.render import Look, indented
from clew.fronts.cli.safe_text import plain

__all__ = ["change_lines", "diff_line"]

_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}


def diff_line(line: str, look: Look) -> str:
    """A line of a unified diff, coloured by what it says."""
    shown, colour = plain(line.expandtabs(4)), _COLOURS.get(line[:1])
    return look.style(shown, colour) if colour else shown


def change_lines(tool: str, given: object, descriptor: object, look: Look, width: int = 1_000) -> list[str] | None:
    """What a call would change, as its request says: a head with the counts, then the diff. None without one."""
    change: Any = descriptor.get("change") if isinstance(descriptor, Mapping) else None
    if not isinstance(change, Mapping) or not isinstance(given, Mapping):
        return None
    added, removed, about = change.get("added"), change.get("removed"), change.get("note")
    counts = f"{look.style(f'+{added}', 'green')} {look.style(f'−{removed}', 'red')}"
    # What is no file has no path: what a server says its tools are.
    path, note = plain(str(given.get("path", ""))), plain(str(about)) if about else ""
    head = f"{look.style('?', 'yellow')} {look.style(tool, 'bold')} {path}  {counts}"
    # Beside the counts where it fits there, else below them.
    if note and cell_len(f"? {tool} {path}  +{added} −{removed}  {note}") < width:
        heads = [head + look.style(f"  {note}", "dim")]
    else:
        heads = [head, *(look.style(line, "dim") for line in indented(note, width).splitlines())]
    return heads + [f"  {diff_line(line, look)}" for line in str(change.get("diff") or "").splitlines()]
