"""What a compaction summarised: the way back from a summary to the messages it stands for. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from clew.transcript.line import LineTurn, tail_place
from clew.transcript.message import Message, sent
from clew.transcript.view import Compaction, compaction_data

__all__ = ["summarised", "unsent"]


def summarised(line: Sequence[LineTurn], compaction: Compaction, previous: Compaction | None) -> list[Message]:
    """The messages between the tail of the compaction before and its own; of split ones only the parts meant."""
    held = [(entry.turn, row) for entry in line for row in entry.messages]
    places = [(turn.id, row.id) for turn, row in held]
    start = tail_place(places, previous.turn_id, previous.tail_start_id) if previous is not None else 0
    end = tail_place(places, compaction.turn_id, compaction.tail_start_id)
    found: list[Message] = []
    for place, (turn, row) in enumerate(held):
        cut = compaction.split.from_part if compaction.split and compaction.split.message_id == row.id else None
        # Beyond the start of the tail only the first parts of a split message are summarised.
        if place < start or (place >= end and cut is None):
            continue
        if turn.kind == "compaction" and compaction_data(row) is not None:
            continue
        told = previous.split.from_part if previous and previous.split and previous.split.message_id == row.id else 0
        message = sent(row, turn.id)
        parts = message.parts[told:cut] if row.damage is None else message.parts
        if parts:
            found.append(msgspec.structs.replace(message, parts=parts))
    return found


def unsent(line: Sequence[LineTurn], compaction: Compaction | None) -> list[Message]:
    """Everything of the line that the model is not sent any more, whole: what there is to recall."""
    if compaction is None:
        return []
    return summarised(line, compaction, None)
