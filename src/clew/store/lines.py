"""The end of a line, read as far back as a view needs it and no further. Used by every store, inside one read."""

from __future__ import annotations

from collections.abc import Callable

from clew.store.base import LineSlice
from clew.transcript.view import find_compaction

__all__ = ["HoldsMessage", "LoadLine", "view_line"]

LoadLine = Callable[[str | None, int | None, str | None], LineSlice]
"""(through a turn, at most so many turns, back to a message) as in ``Store.load_line``."""

HoldsMessage = Callable[[str], bool]
"""Whether a turn on the line holds this message."""


def view_line(load: LoadLine, holds: HoldsMessage, compaction_turn: str | None, turns: int | None) -> LineSlice:
    """Back to the tail of the newest compaction; where there is none, the last ``turns`` turns, or all."""
    if compaction_turn is None:
        return load(None, turns, None)
    compaction = find_compaction(load(compaction_turn, 1, None).turns)
    if compaction is None or compaction.tail_start_id is None:
        return LineSlice(load(None, None, None).turns, complete=True)
    # A tail that is on no turn of the line begins right below the compaction: nothing above it is needed.
    tail = compaction.tail_start_id
    line = load(None, None, tail if holds(tail) else compaction.marker.id)
    if all(entry.turn.id != compaction_turn for entry in line.turns):
        # A compaction made for an open turn keeps a tail that begins below it; the summary must be in the slice.
        line = load(None, None, compaction.marker.id)
    return LineSlice(line.turns, complete=True)
