"""Mending: what a lost line leaves behind is made to fit again, and said. Pure.

A message that is gone is in no turn, no queue and no prune any more. A turn that is gone is put back as an empty one
where the moves of the head say it was, so that what lay above and below it can still be reached.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from clew.store.session_value import SessionValue
from clew.transcript.turn import Turn, placed
from clew.transcript.turn_state import OPEN

__all__ = ["mend"]


def mend(value: SessionValue) -> list[str]:
    """Make the session readable; what had to be done for it."""
    return [*_mend_turns(value), *_mend_messages(value), *_mend_state(value)]


def _mend_turns(value: SessionValue) -> Iterator[str]:
    came_from = {move.to_turn_id: move.from_turn_id for move in reversed(value.moves.values())}
    missing = _missing(value)
    while missing:
        for turn_id in sorted(missing):
            parent = came_from.get(turn_id)
            session = value.row["session"]
            value.turns[turn_id] = Turn(
                id=turn_id,
                session_id=session.id,
                parent_turn_id=None if parent == turn_id else parent,
                created_at=session.created_at,
                status="failed",
                settled_at=session.created_at,
            )
            yield f"turn {turn_id} is lost"
        missing = _missing(value)
    _place(value)


def _missing(value: SessionValue) -> set[str]:
    named = {turn.parent_turn_id for turn in value.turns.values()} | set(value.links)
    named |= {value.state["state"].head_turn_id, *(move.to_turn_id for move in value.moves.values())}
    return {turn_id for turn_id in named if turn_id is not None and turn_id not in value.turns}


def _place(value: SessionValue) -> None:
    """Depths follow from the tree; a way up that leads in a circle is cut."""
    done: dict[str, Turn] = {}
    for start in list(value.turns):
        path: list[str] = []
        turn_id: str | None = start
        while turn_id is not None and turn_id not in done and turn_id not in path:
            path.append(turn_id)
            turn_id = value.turns[turn_id].parent_turn_id
        for one in reversed(path):
            parent = value.turns[one].parent_turn_id
            done[one] = placed(value.turns[one], done.get(parent or ""))
    for turn_id, turn in done.items():
        if value.turns[turn_id] != turn:
            value.turns[turn_id] = turn


def _mend_messages(value: SessionValue) -> Iterator[str]:
    lost = {id_ for held in value.links.values() for id_ in held if id_ not in value.messages}
    yield from (f"message {message_id} is lost" for message_id in sorted(lost))
    for turn_id, held in list(value.links.items()):
        if lost.intersection(held):
            value.links[turn_id] = tuple(message_id for message_id in held if message_id not in lost)
    tables = (value.queue, value.journal, value.marks, value.seals)
    for table in tables:
        for message_id in [id_ for id_ in table if id_ not in value.messages]:
            del table[message_id]
    for key in [key for key in value.pruned if key[1] not in value.messages]:
        del value.pruned[key]
    for row in list(value.messages.values()):
        indexes = [part.index for part in row.parts]
        if indexes != list(range(len(indexes))):
            parts = tuple(msgspec.structs.replace(part, index=index) for index, part in enumerate(row.parts))
            value.messages[row.id] = msgspec.structs.replace(row, parts=parts)
            yield f"parts of message {row.id} are lost"


def _mend_state(value: SessionValue) -> Iterator[str]:
    state = value.state["state"]
    newest = value.moves[max(value.moves)].to_turn_id if value.moves else state.head_turn_id
    opened = next((turn.id for turn in value.turns.values() if turn.status in OPEN), None)
    if (newest, opened) != (state.head_turn_id, state.open_turn_id):
        value.state["state"] = msgspec.structs.replace(state, head_turn_id=newest, open_turn_id=opened)
        yield "where the session stood was lost, and is worked out from its turns"
