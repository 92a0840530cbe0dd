"""Cuts: the end of the last complete step of a turn, and the parts of its messages after that. Pure.

A step is complete when its model call has ended; it is recorded then, before any of its tools runs. The steps of a
message are recorded in the order in which they begin in it, so its first n steps are those of its n rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from clew.transcript.message import MessageRow
from clew.transcript.model_call import ModelCall
from clew.transcript.part import Part, is_call, steps_in
from clew.transcript.turn import Step

__all__ = ["ends_with_text", "find_cut", "find_cuts", "is_whole_answer", "unsent_data"]


def find_cuts(rows: Iterable[MessageRow], steps: Sequence[Step], calls: Iterable[ModelCall]) -> dict[str, int]:
    """Return the messages of a turn that end in an interrupted step, each with the index of the first part after the
    cut.

    ``calls`` are those of its session. A message without any call in them was written by an older version, which
    recorded a step only after its tools, or is a copy: there a step with a tool call counts as complete, because the
    tool may have run.
    """
    recorded = {call.message_id for call in calls}
    cuts: dict[str, int] = {}
    for row in rows:
        if row.role == "assistant" and row.damage is None:
            parts = [part.data for part in row.parts]
            cut = find_cut(parts, sum(step.message_id == row.id for step in steps))
            if cut is not None and (row.id in recorded or not any(map(is_call, parts[cut:]))):
                cuts[row.id] = cut
    return cuts


def find_cut(parts: Sequence[Part], booked: int) -> int | None:
    """Return where the first unrecorded step of a message begins; None if all its steps are recorded."""
    starts = steps_in(parts)
    return starts[booked] if booked < len(starts) else None


def unsent_data(cuts: Mapping[str, int]) -> list[dict[str, str | int]]:
    """Return the cuts as stored in a turn (``Turn.unsent``). Ids are values, so that copying a turn renames them."""
    return [{"message_id": message_id, "from_part": part} for message_id, part in cuts.items()]


def ends_with_text(rows: Sequence[MessageRow], cuts: Mapping[str, int]) -> bool:
    """Return whether the last thing a model is sent of these messages is its own text, with no call to answer."""
    for row in reversed(rows):
        parts = [part.data for part in row.parts][: cuts.get(row.id)]
        if row.role != "assistant":
            return False
        if parts:
            return not any(map(is_call, parts[(steps_in(parts) or [0])[-1] :]))
    return False


def is_whole_answer(rows: Sequence[MessageRow], steps: Sequence[Step]) -> bool:
    """Return whether the turn is fully answered: the model stopped by itself and left no call open."""
    if not rows or not steps or rows[-1].damage is not None:
        return False
    parts = [part.data for part in rows[-1].parts]
    is_uncut = find_cut(parts, sum(step.message_id == rows[-1].id for step in steps)) is None
    has_stopped = steps[-1].message_id == rows[-1].id and steps[-1].finish_reason == "stop"
    return is_uncut and has_stopped and ends_with_text(rows, {})
