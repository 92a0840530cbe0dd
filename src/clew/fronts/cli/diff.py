"""File changes as coloured diffs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rich.cells import cell_len

from clew.fronts.cli.render import Theme, indented
from clew.fronts.cli.safe_text import plain

__all__ = ["change_lines", "diff_line"]

_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}


def diff_line(line: str, theme: Theme) -> str:
    """Return a line of a unified diff with its colour."""
    shown, colour = plain(line.expandtabs(4)), _COLOURS.get(line[:1])
    return theme.style(shown, colour) if colour else shown


def change_lines(tool: str, given: object, descriptor: object, theme: Theme, width: int = 1_000) -> list[str] | None:
    """Return the change of a call as lines: a head with the counts, then the diff; None if the request has none."""
    change: Any = descriptor.get("change") if isinstance(descriptor, Mapping) else None
    if not isinstance(change, Mapping) or not isinstance(given, Mapping):
        return None
    added, removed, about = change.get("added"), change.get("removed"), change.get("note")
    counts = f"{theme.style(f'+{added}', 'green')} {theme.style(f'−{removed}', 'red')}"
    # The tool definitions of an MCP server have no path.
    path, note = plain(str(given.get("path", ""))), plain(str(about)) if about else ""
    head = f"{theme.style('?', 'yellow')} {theme.style(tool, 'bold')} {path}  {counts}"
    # After the counts if it fits there, else below them.
    if note and cell_len(f"? {tool} {path}  +{added} −{removed}  {note}") < width:
        heads = [head + theme.style(f"  {note}", "dim")]
    else:
        heads = [head, *(theme.style(line, "dim") for line in indented(note, width).splitlines())]
    return heads + [f"  {diff_line(line, theme)}" for line in str(change.get("diff") or "").splitlines()]
