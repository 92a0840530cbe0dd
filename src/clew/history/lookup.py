"""Lookup: how callers name a message or a turn, and where in the tree it is.

A message is named by the client's own id or by clew's. One id can name several rows, since an edit may use it again:
what is on the line comes before what is off it, and there the newest before the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from clew import ids
from clew.errors import MessageNotFound, TurnNotFound
from clew.store.base import Store
from clew.transcript.line import line_turns
from clew.transcript.message import MessageRow
from clew.transcript.part import first_words
from clew.transcript.turn import Tree, Turn
from clew.transcript.view import compaction_data

__all__ = ["MessagePlace", "begins_turn", "get_named", "get_place", "holder_of", "turn_of", "words_of_turn"]

_LENGTH: Final = 80


class MessagePlace(msgspec.Struct, frozen=True):
    """A message somebody named, and the turn that holds it: none while it waits in the queue, or was cancelled."""

    row: MessageRow
    turn: Turn | None
    on_line: bool


async def get_named(store: Store, session_id: str, message_id: str) -> list[MessageRow]:
    """The messages an id from outside may mean, the likeliest first; :class:`MessageNotFound` when there is none.

    It reads no turn, so that a message can be named also where one of those is damaged.
    """
    ids.check_named_message_id(message_id)
    rows = list(reversed(await store.load_client_messages(session_id, message_id)))
    own = await store.find_message(session_id, message_id)
    if own is not None:
        rows.append(own)
    if not rows:
        raise MessageNotFound(
            f"there is no message {message_id} in this session; `clew show SESSION --ids` lists them",
            message_id=message_id,
        )
    # An id whose message was cancelled may be used again.
    return sorted(rows, key=lambda row: row.is_cancelled)


async def get_place(store: Store, session_id: str, message_id: str, tree: Tree | None = None) -> MessagePlace:
    """The message of that id, and where it is; :class:`MessageNotFound` when the session has none."""
    rows = await get_named(store, session_id, message_id)
    tree = tree if tree is not None else await store.load_tree(session_id)
    line = line_turns(tree)
    for row in rows:
        turn = next((turn for turn in line if row.id in tree.links.get(turn.id, ())), None)
        if turn is not None:
            return MessagePlace(row, turn, True)
    return MessagePlace(rows[0], holder_of(tree, rows[0].id), False)


def holder_of(tree: Tree, message_id: str) -> Turn | None:
    """The turn through which a message is reached: the one on the line, else the newest that holds it."""
    for turn in line_turns(tree):
        if message_id in tree.links.get(turn.id, ()):
            return turn
    holders = [turn for turn in tree.turns.values() if message_id in tree.links.get(turn.id, ())]
    return max(holders, key=lambda turn: (turn.created_at, turn.id), default=None)


def turn_of(tree: Tree, turn_id: str) -> Turn:
    """The turn of that id; :class:`TurnNotFound` when the session has none."""
    turn = tree.turns.get(ids.check_turn_id(turn_id))
    if turn is None:
        raise TurnNotFound(f"there is no turn {turn_id} in this session", turn_id=turn_id)
    return turn


def begins_turn(tree: Tree, turn: Turn, row: MessageRow) -> bool:
    """Whether this is the user message a turn begins with."""
    return row.role == "user" and not row.is_synthetic and tree.links.get(turn.id, ())[:1] == (row.id,)


def words_of_turn(turn: Turn, held: Iterable[str], rows: Mapping[str, MessageRow]) -> str:
    """What a turn is known by: the first words of its user message, or of its summary."""
    for message_id in held:
        row = rows.get(message_id)
        if row is None:
            continue
        data = compaction_data(row) if turn.kind == "compaction" else None
        if data is not None:
            return first_words(str(data.get("summary", "")), _LENGTH)
        if row.role == "user" and not row.is_synthetic:
            text = "\n".join(row.texts)
            return first_words(text if row.damage is None else f"[damaged] {text}", _LENGTH)
    return ""
