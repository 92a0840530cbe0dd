"""Views: what a person sees of a line, and what the model is sent.

Rows in, messages out; nothing is read and nothing is changed. Both views start from the newest compaction on the
line: what lies before the message it names as the start of its tail is represented by its summary. Of a step that was
cut before its call ended, in a turn that went on after it, people see all and a model nothing (``Turn.unsent``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from clew.fit import fit
from clew.transcript.line import LineTurn, tail_place
from clew.transcript.message import Message, MessageRow, sent_message, shown_message
from clew.transcript.part import COMPACTION_PART, call_id_of, data_of, notice_part, output_text, text_part
from clew.transcript.pruned import Pruned, prune_part, pruned_through
from clew.transcript.turn import TOLD_OF_ERRORS, Turn
from clew.transcript.turn_state import OPEN

__all__ = [
    "Compaction",
    "Split",
    "annotate",
    "compaction_data",
    "compactions_of",
    "ending_of",
    "find_compaction",
    "model_view",
    "model_view_at",
    "read_compaction",
    "sent_parts",
    "summarised_messages",
    "summary_messages",
    "unsent_messages",
    "visible_slice",
    "visible_view",
]

_BOUNDARY = "What came before this point was condensed. The summary follows; what comes after it is kept word for word."
_FRAME = (
    "Earlier parts of this conversation have been condensed. What follows stands for them; "
    "the messages after it are kept word for word.\n\n<summary>\n{summary}\n</summary>"
)


_NONE: Final[Mapping[int, Pruned]] = {}


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
    paired: bool = False


def find_compaction(line: Sequence[LineTurn]) -> Compaction | None:
    """The newest compaction on the line."""
    return next(compactions_of(reversed(line)), None)


def compactions_of(line: Iterable[LineTurn]) -> Iterator[Compaction]:
    """The compactions among these turns, in the order given."""
    for entry in line:
        if entry.turn.kind != "compaction":
            continue
        compaction = next(filter(None, (read_compaction(row, entry.turn.id) for row in entry.messages)), None)
        if compaction is not None:
            yield compaction


def read_compaction(row: MessageRow, turn_id: str) -> Compaction | None:
    """What a marker message says; None for any other message."""
    data = compaction_data(row)
    if data is None:
        return None
    try:
        split = fit(data.get("split"), Split)
    except msgspec.ValidationError:
        # One that does not read as such leaves its message whole.
        split = None
    tail = data.get("tail_start_id")
    summary = str(data.get("summary", ""))
    return Compaction(
        row, turn_id, summary, tail if isinstance(tail, str) else None, split, data.get("frame") == "pair"
    )


def visible_view(line: Sequence[LineTurn]) -> list[Message]:
    """The conversation as a person sees it: the newest compaction's marker before the first message it kept."""
    compaction = find_compaction(line)
    kept = [shown_message(row, entry.turn.id) for entry, row in _kept(line, compaction)]
    if compaction is None:
        return kept
    return [shown_message(compaction.marker, compaction.turn_id), *kept]


def visible_slice(line: Sequence[LineTurn], compaction: Compaction | None, *, tail_on_line: bool) -> list[Message]:
    """Of a stretch of the line what a person sees of it, but for the newest compaction's marker.

    ``compaction`` is the line's newest, in the stretch or not; ``tail_on_line``: its tail begins on the line. The
    stretch does not end before what is seen begins.
    """
    start = None
    if compaction is not None and tail_on_line:
        held = {row.id for entry in line for row in entry.messages}
        start = 0 if compaction.tail_start_id not in held else None
    return [shown_message(row, entry.turn.id) for entry, row in _kept(line, compaction, start)]


def model_view(line: Sequence[LineTurn], pruned: Iterable[Pruned] = ()) -> list[Message]:
    """What the next call would send: the summary, then every message from the start of the tail on, pruned.

    Made anew, for whoever keeps it or hands it on.
    """
    return _model_view(line, find_compaction(line), pruned_through(pruned), _sent)


def model_view_at(
    line: Sequence[LineTurn], compaction: Compaction | None, pruned: Mapping[tuple[str, int], Pruned]
) -> list[Message]:
    """The model view as it was, or would be, with that compaction and those prunes in force.

    The same rows give the same messages, with all that was worked out from them.
    """
    if compaction is None and not pruned:
        return [message for entry in line for message in entry.memo.get("whole") or _sent_whole(entry)]
    return _model_view(line, compaction, pruned, _sent_once)


def _model_view(
    line: Sequence[LineTurn],
    compaction: Compaction | None,
    pruned: Mapping[tuple[str, int], Pruned],
    send: Callable[[LineTurn, MessageRow, Split | None, Mapping[int, Pruned]], Message],
) -> list[Message]:
    split = compaction.split if compaction else None
    by_message: dict[str, dict[int, Pruned]] = {}
    for (message_id, index), one in pruned.items():
        by_message.setdefault(message_id, {})[index] = one
    sent = [send(entry, row, split, by_message.get(row.id, _NONE)) for entry, row in _kept(line, compaction)]
    # Of a message that was split behind its last part, or cut in its first step, nothing is left to send.
    sent = [message for message in sent if message.parts or message.role == "user"]
    return sent if compaction is None else [*summary_messages(compaction), *sent]


def summary_messages(compaction: Compaction) -> list[Message]:
    """The summary as the model reads it: a user message in clew's own frame, or a boundary and the summary."""
    metadata = {"turn_id": compaction.turn_id, "synthetic": True, "summary": True}
    if compaction.paired:
        return [
            Message(f"{compaction.marker.id}-boundary", "user", [text_part(_BOUNDARY)], metadata),
            Message(compaction.marker.id, "assistant", [text_part(compaction.summary)], metadata),
        ]
    text = _FRAME.format(summary=compaction.summary)
    return [Message(compaction.marker.id, "user", [text_part(text)], metadata)]


def _kept(
    line: Sequence[LineTurn], compaction: Compaction | None, start: int | None = None
) -> list[tuple[LineTurn, MessageRow]]:
    """Messages from the start of the tail on, or from ``start``, markers left out."""
    held = [(entry, row) for entry in line for row in entry.messages]
    if compaction is None:
        start = 0
        if all(entry.turn.kind == "normal" for entry in line):
            return held
    elif start is None:
        places = [(entry.turn.id, row.id) for entry, row in held]
        start = tail_place(places, compaction.turn_id, compaction.tail_start_id)
    return [
        (entry, row)
        for entry, row in held[start:]
        if not (entry.turn.kind == "compaction" and compaction_data(row) is not None)
    ]


def _sent(entry: LineTurn, row: MessageRow, split: Split | None, pruned: Mapping[int, Pruned]) -> Message:
    """The row as a model is sent it; ``pruned`` are its outputs that are, by their index."""
    turn = entry.turn
    # Of most turns nothing is noted.
    message = sent_message(row, turn.id, turn.unsent.get(row.id) if turn.data else None)
    if turn.data and turn.environment is not None and message.is_prompt:
        return msgspec.structs.replace(message, parts=[notice_part(turn.environment), *message.parts])
    # Asked in this order: a long view is read often, and seldom is anything of it pruned, split or damaged.
    if (not pruned and (split is None or split.message_id != row.id)) or row.damage is not None:
        return message
    prunes = {(row.id, index): one for index, one in pruned.items()}
    return msgspec.structs.replace(message, parts=sent_parts(row.id, message.parts, split, prunes))


def _sent_whole(entry: LineTurn) -> list[Message]:
    """What a turn sends where nothing of it is cut or pruned, made once too."""
    whole: list[Message] = entry.memo.setdefault("whole", _model_view([entry], None, {}, _sent_once))
    return whole


def _sent_once(entry: LineTurn, row: MessageRow, split: Split | None, pruned: Mapping[int, Pruned]) -> Message:
    """The same, made once for each way a row is sent: a line that is kept is sent with every step."""
    start = split.from_part if split is not None and split.message_id == row.id else 0
    made: dict[str, tuple[int, Mapping[int, Pruned], Message]] = entry.memo.setdefault("sent", {})
    known = made.get(row.id)
    if known is not None and known[0] == start and known[1] == pruned:
        return known[2]
    message = _sent(entry, row, split, pruned)
    made[row.id] = start, pruned, message
    return message


def sent_parts(
    message_id: str, parts: Sequence[dict[str, Any]], split: Split | None, pruned: Mapping[tuple[str, int], Pruned]
) -> list[dict[str, Any]]:
    """Of a message's parts those that are sent, each as it is sent."""
    start = split.from_part if split is not None and split.message_id == message_id else 0
    if not pruned:
        return list(parts[start:])
    sent = []
    for index, part in enumerate(parts[start:], start):
        one = pruned.get((message_id, index))
        sent.append(part if one is None else prune_part(part, one))
    return sent


def compaction_data(row: MessageRow) -> dict[str, Any] | None:
    """What the compaction part of a marker message says; None for any other message, and for one that is damaged:

    what a summary that cannot be trusted stood for is shown and sent again.
    """
    if row.damage is not None:
        return None
    for part in row.parts:
        data = data_of(part.data, COMPACTION_PART)
        if data is not None:
            return data
    return None


def summarised_messages(line: Sequence[LineTurn], compaction: Compaction, previous: Compaction | None) -> list[Message]:
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
        message = sent_message(row, turn.id, turn.unsent.get(row.id))
        parts = message.parts[told:cut] if row.damage is None else message.parts
        if parts:
            found.append(msgspec.structs.replace(message, parts=parts))
    return found


def unsent_messages(line: Sequence[LineTurn], compaction: Compaction | None) -> list[Message]:
    """Everything of the line that the model is not sent any more, whole: what there is to recall."""
    return [] if compaction is None else summarised_messages(line, compaction, None)


def annotate(messages: Sequence[Message], turns: Mapping[str, Turn], pruned: Iterable[Pruned]) -> list[Message]:
    """The messages with what stands elsewhere: ``pruned`` where outputs are, ``unsent_from`` where the last step was
    cut and the turn went on without it, ``turn`` where one did not end well.

    The end of a turn is told on its last assistant message; of one that has none, on the message that led to it.
    """
    stubs = pruned_through(pruned)
    if not stubs and all(turn.status == "completed" and not turn.data for turn in turns.values()):
        # Of most there is nothing to say.
        return list(messages)
    # A later message of the same turn takes the place of an earlier one, a user's only where there is none.
    ends: dict[str, int] = {}
    for place, message in enumerate(messages):
        if message.role == "assistant" or str(message.turn_id) not in ends:
            ends[str(message.turn_id)] = place
    said: list[Message] = []
    for place, message in enumerate(messages):
        turn = turns.get(str(message.turn_id))
        added: dict[str, Any] = {}
        calls = [
            call_id_of(part)
            for n, part in enumerate(message.parts)
            if (message.id, n) in stubs and output_text(part) is not None
        ]
        if calls:
            added["pruned"] = calls
        unsent = turn.unsent.get(message.id) if turn is not None else None
        if unsent is not None:
            added["unsent_from"] = unsent
        ending = ending_of(turn) if turn is not None and ends.get(turn.id) == place else None
        if ending is not None:
            added["turn"] = ending
        said.append(msgspec.structs.replace(message, metadata={**message.metadata, **added}) if added else message)
    return said


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
        told = {key: str(turn.error[key]) for key in TOLD_OF_ERRORS if key in turn.error}
        ending["error"] = {**{key: str(turn.error.get(key, "")) for key in ("code", "message")}, **told}
    return ending
