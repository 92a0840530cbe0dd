"""Views: a line as a person sees it, and as the model is sent it.

Turns rows into messages; reads nothing and changes nothing. Both views start from the newest compaction on the line:
its summary represents everything before the message it names as the start of its tail. If a step was interrupted and
its turn continued, people see all of the step and a model none of it (``Turn.unsent``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from clew.convert import convert
from clew.transcript.line import LineTurn, tail_place
from clew.transcript.message import Message, MessageRow, sent_message, shown_message
from clew.transcript.part import COMPACTION_PART, call_id_of, data_of, notice_part, output_text, text_part
from clew.transcript.pruned import Pruned, prune_part, pruned_through
from clew.transcript.turn import SHOWN_ERROR_KEYS, Turn
from clew.transcript.turn_state import OPEN

__all__ = [
    "Compaction",
    "Frame",
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

# Both are part of requests whose digests are stored: with another text those could not be verified.
_BOUNDARY = "What came before this point was condensed. The summary follows; what comes after it is kept word for word."
_FRAME = (
    "Earlier parts of this conversation have been condensed. What follows stands for them; "
    "the messages after it are kept word for word.\n\n<summary>\n{summary}\n</summary>"
)
_MARKED_FRAME = (
    "Everything said here before this point was compacted. This summary replaces it:\n<summary>\n{summary}\n</summary>"
)
_NONE: Final[Mapping[int, Pruned]] = {}
Frame = Literal["pair", "marked"]
"""How a summary is sent, if not in clew's own words: as a pair of messages, or only between markers."""


class Split(msgspec.Struct, frozen=True):
    """Only the parts of ``message_id`` from index ``from_part`` on are sent."""

    message_id: str
    from_part: Annotated[int, msgspec.Meta(ge=0)]


class Compaction(msgspec.Struct, frozen=True):
    """A compaction as views need it: its marker message and the content of its part."""

    marker: MessageRow
    turn_id: str
    summary: str
    tail_start_id: str | None
    split: Split | None
    frame: Frame | None = None


def find_compaction(line: Sequence[LineTurn]) -> Compaction | None:
    """Return the newest compaction on the line."""
    return next(compactions_of(reversed(line)), None)


def compactions_of(line: Iterable[LineTurn]) -> Iterator[Compaction]:
    """Yield the compactions among these turns, in the given order."""
    for entry in line:
        if entry.turn.kind != "compaction":
            continue
        compaction = next(filter(None, (read_compaction(row, entry.turn.id) for row in entry.messages)), None)
        if compaction is not None:
            yield compaction


def read_compaction(row: MessageRow, turn_id: str) -> Compaction | None:
    """Return the compaction in a marker message; None for any other message."""
    data = compaction_data(row)
    if data is None:
        return None
    try:
        split = convert(data.get("split"), Split)
    except msgspec.ValidationError:
        # With an unreadable split the whole message is sent.
        split = None
    tail = data.get("tail_start_id")
    summary, frame = str(data.get("summary", "")), data.get("frame")
    known: Frame | None = frame if frame in get_args(Frame) else None
    return Compaction(row, turn_id, summary, tail if isinstance(tail, str) else None, split, known)


def visible_view(line: Sequence[LineTurn]) -> list[Message]:
    """Return the conversation as a person sees it: the newest compaction's marker, then its tail."""
    compaction = find_compaction(line)
    tail = [shown_message(row, entry.turn.id) for entry, row in _tail(line, compaction)]
    if compaction is None:
        return tail
    return [shown_message(compaction.marker, compaction.turn_id), *tail]


def visible_slice(line: Sequence[LineTurn], compaction: Compaction | None, *, tail_on_line: bool) -> list[Message]:
    """Return the visible messages in a part of the line, without the newest compaction's marker.

    ``compaction`` is the line's newest, in the slice or not; ``tail_on_line`` means that its tail begins on the line.
    The slice must not end before the visible messages begin.
    """
    start = None
    if compaction is not None and tail_on_line:
        ids = {row.id for entry in line for row in entry.messages}
        start = 0 if compaction.tail_start_id not in ids else None
    return [shown_message(row, entry.turn.id) for entry, row in _tail(line, compaction, start)]


def model_view(line: Sequence[LineTurn], pruned: Iterable[Pruned] = ()) -> list[Message]:
    """Return what the next call would send: the summary, then the tail with prunes applied.

    The messages are new and share no cached state.
    """
    return _model_view(line, find_compaction(line), pruned_through(pruned), _sent)


def model_view_at(
    line: Sequence[LineTurn], compaction: Compaction | None, pruned: Mapping[tuple[str, int], Pruned]
) -> list[Message]:
    """Return the model view with the given compaction and prunes in force.

    The same rows give the same message objects, with everything cached on them.
    """
    if compaction is None and not pruned:
        return [message for entry in line for message in entry.memo.get("whole") or _sent_whole(entry)]
    return _model_view(line, compaction, pruned, _sent_cached)


def _model_view(
    line: Sequence[LineTurn],
    compaction: Compaction | None,
    pruned: Mapping[tuple[str, int], Pruned],
    send: Callable[[LineTurn, MessageRow, Split | None, Mapping[int, Pruned]], Message],
) -> list[Message]:
    split = compaction.split if compaction else None
    by_message: dict[str, dict[int, Pruned]] = {}
    for (message_id, index), record in pruned.items():
        by_message.setdefault(message_id, {})[index] = record
    sent = [send(entry, row, split, by_message.get(row.id, _NONE)) for entry, row in _tail(line, compaction)]
    # A message split after its last part, or interrupted in its first step, has nothing left to send.
    sent = [message for message in sent if message.parts or message.role == "user"]
    return sent if compaction is None else [*summary_messages(compaction), *sent]


def summary_messages(compaction: Compaction) -> list[Message]:
    """Return the summary as the model reads it: a framed user message, or a boundary and the summary."""
    metadata = {"turn_id": compaction.turn_id, "synthetic": True, "summary": True}
    if compaction.frame == "pair":
        return [
            Message(f"{compaction.marker.id}-boundary", "user", [text_part(_BOUNDARY)], metadata),
            Message(compaction.marker.id, "assistant", [text_part(compaction.summary)], metadata),
        ]
    frame = _FRAME if compaction.frame is None else _MARKED_FRAME
    text = frame.format(summary=compaction.summary.rstrip() if compaction.frame else compaction.summary)
    return [Message(compaction.marker.id, "user", [text_part(text)], metadata)]


def _tail(
    line: Sequence[LineTurn], compaction: Compaction | None, start: int | None = None
) -> list[tuple[LineTurn, MessageRow]]:
    """Return the messages from the start of the tail on, or from ``start``, without markers."""
    entries = [(entry, row) for entry in line for row in entry.messages]
    if compaction is None:
        start = 0
        if all(entry.turn.kind == "normal" for entry in line):
            return entries
    elif start is None:
        ids = [(entry.turn.id, row.id) for entry, row in entries]
        start = tail_place(ids, compaction.turn_id, compaction.tail_start_id)
    return [
        (entry, row)
        for entry, row in entries[start:]
        if not (entry.turn.kind == "compaction" and compaction_data(row) is not None)
    ]


def _sent(entry: LineTurn, row: MessageRow, split: Split | None, pruned: Mapping[int, Pruned]) -> Message:
    """Return the row as a model is sent it; ``pruned`` are its pruned outputs by part index."""
    turn = entry.turn
    message = sent_message(row, turn.id, None if turn.is_bare else turn.unsent.get(row.id))
    if not turn.is_bare and turn.environment is not None and message.is_prompt:
        return msgspec.structs.replace(message, parts=[notice_part(turn.environment), *message.parts])
    # Check in this order: long views are built often, and few of their messages are pruned, split or damaged.
    if (not pruned and (split is None or split.message_id != row.id)) or row.damage is not None:
        return message
    prunes = {(row.id, index): record for index, record in pruned.items()}
    return msgspec.structs.replace(message, parts=sent_parts(row.id, message.parts, split, prunes))


def _sent_whole(entry: LineTurn) -> list[Message]:
    """Return what a turn without cuts or prunes sends, cached."""
    whole: list[Message] = entry.memo.setdefault("whole", _model_view([entry], None, {}, _sent_cached))
    return whole


def _sent_cached(entry: LineTurn, row: MessageRow, split: Split | None, pruned: Mapping[int, Pruned]) -> Message:
    """Return the row as a model is sent it, cached per variant: a loaded line is sent with every step."""
    start = split.from_part if split is not None and split.message_id == row.id else 0
    cache: dict[str, tuple[int, Mapping[int, Pruned], Message]] = entry.memo.setdefault("sent", {})
    known = cache.get(row.id)
    if known is not None and known[0] == start and known[1] == pruned:
        return known[2]
    message = _sent(entry, row, split, pruned)
    cache[row.id] = start, pruned, message
    return message


def sent_parts(
    message_id: str, parts: Sequence[dict[str, Any]], split: Split | None, pruned: Mapping[tuple[str, int], Pruned]
) -> list[dict[str, Any]]:
    """Return the parts of a message that are sent, with prunes applied."""
    start = split.from_part if split is not None and split.message_id == message_id else 0
    if not pruned:
        return list(parts[start:])
    sent = []
    for index, part in enumerate(parts[start:], start):
        record = pruned.get((message_id, index))
        sent.append(part if record is None else prune_part(part, record))
    return sent


def compaction_data(row: MessageRow) -> dict[str, Any] | None:
    """Return the data of the compaction part in a marker message; None for any other message.

    Also None for a damaged one: what an unreliable summary covers is shown and sent again.
    """
    if row.damage is not None:
        return None
    for part in row.parts:
        data = data_of(part.data, COMPACTION_PART)
        if data is not None:
            return data
    return None


def summarised_messages(line: Sequence[LineTurn], compaction: Compaction, previous: Compaction | None) -> list[Message]:
    """Return the messages between the previous compaction's tail and this one's; split ones only in part."""
    entries = [(entry.turn, row) for entry in line for row in entry.messages]
    ids = [(turn.id, row.id) for turn, row in entries]
    start = tail_place(ids, previous.turn_id, previous.tail_start_id) if previous is not None else 0
    end = tail_place(ids, compaction.turn_id, compaction.tail_start_id)
    found: list[Message] = []
    for index, (turn, row) in enumerate(entries):
        cut = compaction.split.from_part if compaction.split and compaction.split.message_id == row.id else None
        # In the tail, only the first parts of a split message are summarised.
        if index < start or (index >= end and cut is None):
            continue
        if turn.kind == "compaction" and compaction_data(row) is not None:
            continue
        summarised_before = (
            previous.split.from_part if previous and previous.split and previous.split.message_id == row.id else 0
        )
        message = sent_message(row, turn.id, turn.unsent.get(row.id))
        parts = message.parts[summarised_before:cut] if row.damage is None else message.parts
        if parts:
            found.append(msgspec.structs.replace(message, parts=parts))
    return found


def unsent_messages(line: Sequence[LineTurn], compaction: Compaction | None) -> list[Message]:
    """Return everything on the line that the model is no longer sent, unpruned: what it can recall."""
    return [] if compaction is None else summarised_messages(line, compaction, None)


def annotate(messages: Sequence[Message], turns: Mapping[str, Turn], pruned: Iterable[Pruned]) -> list[Message]:
    """Add what is recorded elsewhere to the metadata of messages.

    ``pruned`` lists pruned calls, ``unsent_from`` marks an interrupted step that the turn continued without, and
    ``turn`` tells how a turn ended if it did not end normally. The last is set on the turn's last assistant message or,
    without one, on the message that started it.
    """
    stubs = pruned_through(pruned)
    if not stubs and all(turn.status == "completed" and turn.is_bare for turn in turns.values()):
        # The common case: nothing to add.
        return list(messages)
    # The last assistant message of a turn counts; a user message only if there is none.
    ends: dict[str, int] = {}
    for index, message in enumerate(messages):
        if message.role == "assistant" or str(message.turn_id) not in ends:
            ends[str(message.turn_id)] = index
    annotated: list[Message] = []
    for index, message in enumerate(messages):
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
        ending = ending_of(turn) if turn is not None and ends.get(turn.id) == index else None
        if ending is not None:
            added["turn"] = ending
        annotated.append(msgspec.structs.replace(message, metadata={**message.metadata, **added}) if added else message)
    return annotated


def ending_of(turn: Turn) -> dict[str, Any] | None:
    """Return how a turn ended, if there is anything to report: failed, aborted, refused, or stopped early."""
    if turn.status in OPEN or (turn.status in ("completed", "unanswered") and not (turn.stopped or turn.error)):
        return None
    ending: dict[str, Any] = {"status": turn.status}
    if turn.stopped:
        ending["stopped"] = turn.stopped
    if turn.stopped == "step_limit" and turn.max_steps is not None:
        ending["max_steps"] = turn.max_steps
    if turn.error:
        details = {key: str(turn.error[key]) for key in SHOWN_ERROR_KEYS if key in turn.error}
        ending["error"] = {**{key: str(turn.error.get(key, "")) for key in ("code", "message")}, **details}
    return ending
