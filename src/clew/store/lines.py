"""The end of a line, read only as far back as a view needs it. Used by every store, inside one read."""

from __future__ import annotations

from collections.abc import Callable

from clew.store.base import LineSlice
from clew.transcript.view import find_compaction

__all__ = ["HoldsMessage", "LoadLine", "view_line"]

LoadLine = Callable[[str | None, int | None, str | None], LineSlice]
"""(end turn, maximum number of turns, first message) as in ``Store.load_line``."""

HoldsMessage = Callable[[str], bool]
"""Return whether a turn on the line holds this message."""


def view_line(load: LoadLine, holds: HoldsMessage, compaction_turn: str | None, turns: int | None) -> LineSlice:
    """Load the line back to the tail of the newest compaction; without one, the last ``turns`` turns, or all."""
    if compaction_turn is None:
        return load(None, turns, None)
    compaction = find_compaction(load(compaction_turn, 1, None).turns)
    if compaction is None or compaction.tail_start_id is None:
        return LineSlice(load(None, None, None).turns, complete=True)
    # If no turn of the line holds the tail, it begins right below the compaction: nothing above that is needed.
    tail = compaction.tail_start_id
    line = load(None, None, tail if holds(tail) else compaction.marker.id)
    if all(entry.turn.id != compaction_turn for entry in line.turns):
        # The tail of a compaction made for an open turn begins below it; the slice must include the summary.
        line = load(None, None, compaction.marker.id)
    return LineSlice(line.turns, complete=True)
