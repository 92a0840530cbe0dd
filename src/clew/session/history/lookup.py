"""Lookup of messages and turns by id, with their position in the tree.

A message is named by the client's own id or by clew's. One id can name several rows, since an edit may use it again:
those on the line come before those off it, and within each group the newest first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from clew import ids
from clew.errors import MessageNotFound, TurnNotFound
from clew.store.base import Moment
from clew.transcript.line import line_turns
from clew.transcript.message import MessageRow
from clew.transcript.part import first_words
from clew.transcript.turn import Tree, Turn
from clew.transcript.view import compaction_data

__all__ = [
    "LocatedMessage",
    "begins_turn",
    "get_named",
    "get_turn_of",
    "holder_of",
    "locate_message",
    "words_of_turn",
]

_MAX_LABEL_CHARS: Final = 80


class LocatedMessage(msgspec.Struct, frozen=True):
    """A message and the turn that contains it, which is None while it is queued or if it was cancelled.

    ``turn_messages`` are the ids of all messages of that turn.
    """

    row: MessageRow
    turn: Turn | None
    on_line: bool
    turn_messages: tuple[str, ...] = ()


async def get_named(store: Moment, session_id: str, message_id: str) -> list[MessageRow]:
    """Return the messages a client's id may mean, the likeliest first; raise :class:`MessageNotFound` if there is none.

    No turn is read, so a message can be named even if a turn is damaged.
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
    # The id of a cancelled message may be used again.
    return sorted(rows, key=lambda row: row.is_cancelled)


async def locate_message(store: Moment, session_id: str, message_id: str) -> LocatedMessage:
    """Return the message with that id and its position; raise :class:`MessageNotFound` if the session has none."""

    async def ask(moment: Moment) -> LocatedMessage:
        found: list[LocatedMessage] = []
        for row in await get_named(moment, session_id, message_id):
            holder = await moment.find_holder(session_id, row.id)
            if holder is None:
                found.append(LocatedMessage(row, None, False))
                continue
            messages = (await moment.load_path(session_id, holder.turn.id, turns=1))[-1].messages
            found.append(LocatedMessage(row, holder.turn, holder.on_line, messages))
        return next((message for message in found if message.on_line), found[0])

    return await store.at_once(session_id, ask)


def holder_of(tree: Tree, message_id: str) -> Turn | None:
    """Return the turn through which a message is reached: the one on the line, else the newest that contains it."""
    for turn in line_turns(tree):
        if message_id in tree.links.get(turn.id, ()):
            return turn
    holders = [turn for turn in tree.turns.values() if message_id in tree.links.get(turn.id, ())]
    return max(holders, key=lambda turn: (turn.created_at, turn.id), default=None)


async def get_turn_of(store: Moment, session_id: str, turn_id: str) -> Turn:
    """Return the turn with that id; raise :class:`TurnNotFound` if the session has none."""
    turn = await store.find_turn(ids.check_turn_id(turn_id))
    if turn is None or turn.session_id != session_id:
        raise TurnNotFound(f"there is no turn {turn_id} in this session", turn_id=turn_id)
    return turn


def begins_turn(message: LocatedMessage) -> bool:
    """Return whether this is the user message that starts its turn."""
    row = message.row
    return row.role == "user" and not row.is_synthetic and message.turn_messages[:1] == (row.id,)


def words_of_turn(turn: Turn, message_ids: Iterable[str], rows: Mapping[str, MessageRow]) -> str:
    """Return the label of a turn: the first words of its user message, or of its summary."""
    for message_id in message_ids:
        row = rows.get(message_id)
        if row is None:
            continue
        data = compaction_data(row) if turn.kind == "compaction" else None
        if data is not None:
            return first_words(str(data.get("summary", "")), _MAX_LABEL_CHARS)
        if row.role == "user" and not row.is_synthetic:
            text = "\n".join(row.texts)
            return first_words(text if row.damage is None else f"[damaged] {text}", _MAX_LABEL_CHARS)
    return ""
