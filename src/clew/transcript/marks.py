"""Marks: what a view says of a message beside what is stored with it.

Two things decide how a message is to be read and stand elsewhere: which of its tool outputs the model is shown only a
stub of, and how the turn it ends has ended. A view for people puts both into the message's metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from clew.transcript.message import Message
from clew.transcript.part import call_id_of, output_text
from clew.transcript.pruned import Pruned, pruned_through
from clew.transcript.turn import Turn
from clew.transcript.turn_state import OPEN

__all__ = ["ending_of", "marked"]


def marked(messages: Sequence[Message], turns: Mapping[str, Turn], pruned: Iterable[Pruned]) -> list[Message]:
    """The messages with their marks: ``pruned`` where outputs are, ``turn`` where one ended otherwise than well.

    The end of a turn is told on its last assistant message; of one that has none, on the message that led to it.
    """
    stubs = pruned_through(pruned)
    ends = _ends(messages)
    told: list[Message] = []
    for place, message in enumerate(messages):
        marks: dict[str, Any] = {}
        calls = [
            call_id_of(part)
            for n, part in enumerate(message.parts)
            if (message.id, n) in stubs and output_text(part) is not None
        ]
        if calls:
            marks["pruned"] = calls
        turn = turns.get(str(message.turn_id))
        ending = ending_of(turn) if turn is not None and ends.get(turn.id) == place else None
        if ending is not None:
            marks["turn"] = ending
        told.append(
            msgspec.structs.replace(message, metadata={**message.metadata, **marks}) if marks else message,
        )
    return told


def ending_of(turn: Turn) -> dict[str, Any] | None:
    """How a turn ended, where there is something to say: failed, aborted, refused, or stopped before it was done."""
    if turn.status in OPEN or (turn.status in ("completed", "unanswered") and not (turn.stopped or turn.error)):
        return None
    ending: dict[str, Any] = {"status": turn.status}
    if turn.stopped:
        ending["stopped"] = turn.stopped
    if turn.stopped == "step_limit" and turn.max_steps is not None:
        ending["max_steps"] = turn.max_steps
    if turn.error:
        ending["error"] = {key: str(turn.error.get(key, "")) for key in ("code", "message")}
    return ending


def _ends(messages: Sequence[Message]) -> dict[str, int]:
    """Where each turn's end is told."""
    places: dict[str, int] = {}
    for place, message in enumerate(messages):
        turn_id = str(message.turn_id)
        if message.role == "assistant":
            places[turn_id] = place
        else:
            places.setdefault(turn_id, place)
    return places
