"""Cuts: where the last complete step of a turn ends, and what of its messages lies behind that. Pure.

A step is complete when its model call has ended; it is booked then, before any of its tools runs. The steps of a
message are booked in the order in which they begin in it, so its first n steps are those of its n rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from clew.transcript.message import MessageRow
from clew.transcript.model_call import ModelCall
from clew.transcript.part import Part, is_call, steps_in
from clew.transcript.turn import Step

__all__ = ["ends_in_words", "find_cut", "find_cuts", "is_whole_answer", "unsent_data"]


def find_cuts(rows: Iterable[MessageRow], steps: Sequence[Step], calls: Iterable[ModelCall]) -> dict[str, int]:
    """The messages of a turn that end in a step that was cut, each with the index of its first part behind the cut.

    ``calls`` are those of its session. A message that none is noted for is of an older version, which booked a step
    only after its tools, or a copy: there a step with a call counts as complete, for that may have been run.
    """
    noted = {call.message_id for call in calls}
    cuts: dict[str, int] = {}
    for row in rows:
        if row.role == "assistant" and row.damage is None:
            parts = [part.data for part in row.parts]
            cut = find_cut(parts, sum(step.message_id == row.id for step in steps))
            if cut is not None and (row.id in noted or not any(map(is_call, parts[cut:]))):
                cuts[row.id] = cut
    return cuts


def find_cut(parts: Sequence[Part], booked: int) -> int | None:
    """Where in a message of which so many steps were booked the one begins that was cut; None when none was."""
    begun = steps_in(parts)
    return begun[booked] if booked < len(begun) else None


def unsent_data(cuts: Mapping[str, int]) -> list[dict[str, str | int]]:
    """The cuts as a turn keeps them (``Turn.unsent``). Ids are values in it: whoever copies a turn renames those."""
    return [{"message_id": message_id, "from_part": part} for message_id, part in cuts.items()]


def ends_in_words(rows: Sequence[MessageRow], cuts: Mapping[str, int]) -> bool:
    """Whether the last that a model is sent of these messages are words of its own, with nothing to answer."""
    for row in reversed(rows):
        parts = [part.data for part in row.parts][: cuts.get(row.id)]
        if row.role != "assistant":
            return False
        if parts:
            return not any(map(is_call, parts[(steps_in(parts) or [0])[-1] :]))
    return False


def is_whole_answer(rows: Sequence[MessageRow], steps: Sequence[Step]) -> bool:
    """Whether the turn was answered to its end: the model stopped by itself, and asked for nothing any more."""
    if not rows or not steps or rows[-1].damage is not None:
        return False
    parts = [part.data for part in rows[-1].parts]
    whole = find_cut(parts, sum(step.message_id == rows[-1].id for step in steps)) is None
    said = steps[-1].message_id == rows[-1].id and steps[-1].finish_reason == "stop"
    return whole and said and ends_in_words(rows, {})
