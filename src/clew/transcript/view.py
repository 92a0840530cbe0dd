"""Views: what a person sees of a line, and what the model is sent.

Rows in, messages out; nothing is read and nothing is changed. Both views start from the newest compaction on the
line: what lies before the message it names as the start of its tail is represented by its summary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import msgspec

from clew.transcript.line import LineTurn, tail_place
from clew.transcript.message import Message, MessageRow, shown

__all__ = [
    "COMPACTION_PART",
    "Compaction",
    "compaction_data",
    "find_compaction",
    "model_view",
    "summary_message",
    "visible_view",
]

COMPACTION_PART = "data-compaction"

_FRAME = (
    "Earlier parts of this conversation have been condensed. What follows stands for them; "
    "the messages after it are kept word for word.\n\n<summary>\n{summary}\n</summary>"
)


class Split(msgspec.Struct, frozen=True):
    """Of ``message_id`` only the parts from index ``from_part`` on are sent."""

    message_id: str
    from_part: Annotated[int, msgspec.Meta(ge=0)]


class Compaction(msgspec.Struct, frozen=True):
    """A compaction as the view needs it: its marker message and what its part says."""

    marker: MessageRow
    turn_id: str
    summary: str
    tail_start_id: str | None
    split: Split | None


def find_compaction(line: Sequence[LineTurn]) -> Compaction | None:
    """The newest compaction on the line."""
    for entry in reversed(line):
        if entry.turn.kind != "compaction":
            continue
        for row in entry.messages:
            data = compaction_data(row)
            if data is not None:
                return Compaction(
                    row, entry.turn.id, str(data.get("summary", "")), _text(data.get("tail_start_id")), _split(data)
                )
    return None


def visible_view(line: Sequence[LineTurn]) -> list[Message]:
    """The conversation as a person sees it: the newest compaction's marker before the first message it kept."""
    compaction = find_compaction(line)
    kept = [shown(row, turn_id) for turn_id, row in _kept(line, compaction)]
    if compaction is None:
        return kept
    return [shown(compaction.marker, compaction.turn_id), *kept]


def model_view(line: Sequence[LineTurn]) -> list[Message]:
    """What the next call would send: the summary, then every message from the start of the tail on."""
    compaction = find_compaction(line)
    sent = [_sent(row, turn_id, compaction) for turn_id, row in _kept(line, compaction)]
    if compaction is None:
        return sent
    return [summary_message(compaction), *sent]


def summary_message(compaction: Compaction) -> Message:
    """The summary as the model reads it: a user message in clew's own frame."""
    text = _FRAME.format(summary=compaction.summary)
    metadata = {"turn_id": compaction.turn_id, "synthetic": True, "summary": True}
    return Message(compaction.marker.id, "user", [{"type": "text", "text": text}], metadata)


def _kept(line: Sequence[LineTurn], compaction: Compaction | None) -> Iterator[tuple[str, MessageRow]]:
    """Messages from the start of the tail on, markers left out."""
    held = [(entry.turn, row) for entry in line for row in entry.messages]
    start = 0
    if compaction is not None:
        places = [(turn.id, row.id) for turn, row in held]
        start = tail_place(places, compaction.turn_id, compaction.tail_start_id)
    for turn, row in held[start:]:
        if not (turn.kind == "compaction" and compaction_data(row) is not None):
            yield turn.id, row


def _sent(row: MessageRow, turn_id: str, compaction: Compaction | None) -> Message:
    message = shown(row, turn_id)
    split = compaction.split if compaction else None
    if split is not None and split.message_id == row.id:
        return msgspec.structs.replace(message, parts=message.parts[split.from_part :])
    return message


def compaction_data(row: MessageRow) -> dict[str, Any] | None:
    """What the compaction part of a marker message says; None for any other message."""
    for part in row.parts:
        if part.data.get("type") == COMPACTION_PART and isinstance(part.data.get("data"), dict):
            return part.data["data"]  # type: ignore[no-any-return]
    return None


def _split(data: dict[str, Any]) -> Split | None:
    """What the part says of a split; one that does not read as such leaves its message whole."""
    try:
        return msgspec.convert(data.get("split"), Split)
    except msgspec.ValidationError:
        return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
