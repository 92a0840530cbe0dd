"""The end of a line, read as far back as a view needs it and no further. Used by every store, inside one read."""

from __future__ import annotations

from collections.abc import Callable

from clew.store.base import LineSlice
from clew.transcript.view import find_compaction

__all__ = ["LoadLine", "view_line"]

LoadLine = Callable[[str | None, int | None, str | None], LineSlice]
"""(through a turn, at most so many turns, back to a message) as in ``Store.load_line``."""


def view_line(load: LoadLine, turns: int | None) -> LineSlice:
    """Back to the tail of the newest compaction; where there is none, the last ``turns`` turns, or all."""
    line = load(None, turns, None)
    compaction_turn = line.turns[-1].turn.compaction_turn_id if line.turns else None
    if compaction_turn is None:
        return line
    compaction = find_compaction(load(compaction_turn, 1, None).turns)
    tail = compaction.tail_start_id if compaction else None
    line = load(None, None, tail)
    if compaction is not None and all(entry.turn.id != compaction_turn for entry in line.turns):
        # A compaction made for an open turn keeps a tail that begins below it; the summary must be in the slice.
        line = load(None, None, compaction.marker.id)
    return LineSlice(line.turns, complete=True)
