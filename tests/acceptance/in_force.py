"""Which compaction must be in force once the line ends at another message, in the words of rule CP-13."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from clew.store.base import Store
from clew.store.files.record import is_marker
from clew.transcript.line import LineTurn
from clew.transcript.part import is_open_call, steps_in
from clew.transcript.view import Compaction, compactions_of, summarised_messages


def in_force_then(line: Sequence[LineTurn], turn_id: str, point: str) -> Compaction | None:
    """The newest one that kept the message and summarised nothing of what comes after it."""
    held = [(entry.turn.id, row.id) for entry in line for row in entry.messages]
    end = held.index((turn_id, point))
    behind = {message_id for _, message_id in held[end + 1 :]}
    for compaction in reversed(list(compactions_of(line))):
        told = {message.id for message in summarised_messages(line, compaction, None)}
        if _first_kept(held, compaction) <= end and not told & behind:
            return compaction
    return None


def _first_kept(held: Sequence[tuple[str, str]], compaction: Compaction) -> int:
    ids = [message_id for _, message_id in held]
    if compaction.tail_start_id is None:
        return 0
    if compaction.tail_start_id in ids:
        return ids.index(compaction.tail_start_id)
    return ids.index(compaction.marker.id) + 1


def cuts_of(line: Sequence[LineTurn]) -> list[tuple[str, int]]:
    """Where a compaction may cut: from the last cut on, at a message without open calls, or at a step of an answer."""
    held = [(entry.turn.id, row) for entry in line for row in entry.messages]
    ids = [(turn_id, row.id) for turn_id, row in held]
    newest = next(compactions_of(reversed(line)), None)
    start = _first_kept(ids, newest) if newest is not None else 0
    split = newest.split if newest is not None else None
    if split is not None:
        # What a cut went through stays cut from there on.
        start = max(start, next((place for place, (_, id_) in enumerate(ids) if id_ == split.message_id), 0))
    cuts: list[tuple[str, int]] = []
    for _, row in held[start:]:
        parts = [part.data for part in row.parts]
        if is_marker(row) or any(map(is_open_call, parts)):
            continue
        told = split.from_part if split is not None and split.message_id == row.id else 0
        steps = [n for n in steps_in(parts) if n > told] if row.role == "assistant" else []
        cuts += [(row.id, n) for n in (*([] if told else [0]), *steps)]
    return cuts


async def holds(store: Store, session_id: str, target: str, go_back: Callable[[], Coroutine[Any, Any, None]]) -> bool:
    """Whatever goes back to a message, the compaction that holds there is in force, and no other; was it carried?"""
    before = (await store.load_line(session_id)).turns
    turn_id = next(entry.turn.id for entry in before if any(row.id == target for row in entry.messages))
    expected, known = in_force_then(before, turn_id, target), {one.marker.id for one in compactions_of(before)}
    await go_back()
    after = (await store.load_line(session_id)).turns
    # A run may have added others since.
    found = next((one for one in compactions_of(reversed(after)) if one.marker.id in known), None)
    assert (found.marker.id if found else None) == (expected.marker.id if expected else None)
    return found is not None and found.turn_id not in {entry.turn.id for entry in before}
