"""The end of a line, read as far back as a view needs it and no further."""

from __future__ import annotations

from clew.store.base import LineSlice, Store
from clew.transcript.view import find_compaction

__all__ = ["load_view_line"]


async def load_view_line(
    store: Store, session_id: str, *, turns: int | None = None, keep_damaged: bool = False
) -> LineSlice:
    """Back to the tail of the newest compaction; where there is none, the last ``turns`` turns, or all.

    ``complete`` says that a view needs nothing before it.
    """
    end = await store.load_line(session_id, turns=1, keep_damaged=keep_damaged)
    if not end.turns:
        return LineSlice((), complete=True)
    compaction_turn = end.turns[-1].turn.compaction_turn_id
    if compaction_turn is None:
        return await store.load_line(session_id, turns=turns, keep_damaged=keep_damaged)
    marker = await store.load_line(session_id, through=compaction_turn, turns=1, keep_damaged=keep_damaged)
    compaction = find_compaction(marker.turns)
    tail = compaction.tail_start_id if compaction else None
    line = await store.load_line(session_id, back_to_message=tail, keep_damaged=keep_damaged)
    if compaction is not None and all(entry.turn.id != compaction_turn for entry in line.turns):
        # A compaction made for an open turn keeps a tail that begins below it; the summary must be in the slice.
        line = await store.load_line(session_id, back_to_message=compaction.marker.id, keep_damaged=keep_damaged)
    return LineSlice(line.turns, complete=True)
