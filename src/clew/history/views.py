"""A session's messages in one of its views, a page of them at a time. Only reads, and no more than the page needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from clew.errors import MessageNotFound, SessionNotFound
from clew.store.base import LineSlice, Store, get_session, get_turn
from clew.transcript.line import line_messages
from clew.transcript.message import Message, shown_message
from clew.transcript.view import annotate, model_view, visible_view

__all__ = ["View", "load_messages", "load_turn_messages"]

View = Literal["visible", "all", "model"]


async def load_messages(
    store: Store, session_id: str, view: View, limit: int | None, before: str | None
) -> list[Message]:
    """The newest ``limit`` messages of a view, or those before a message; all of them without a limit."""
    if view == "all":
        await get_session(store, session_id)
        rows = await store.load_messages(session_id, keep_damaged=True)
        tree = await store.load_tree(session_id)
        holder = {message_id: turn_id for turn_id, held in tree.links.items() for message_id in held}
        holder.update({message_id: turn.id for turn, message_id in line_messages(tree)})
        every = [shown_message(row, holder.get(row.id)) for row in rows]
        return _page(annotate(every, tree.turns, await store.load_pruned(session_id)), limit, before)
    if view == "model":
        line = await _line(store, session_id, None)
        return _page(model_view(line.turns, line.pruned), limit, before)
    # Most turns hold two messages; where they hold fewer, or the page lies further back, more are read.
    turns = None if limit is None else limit // 2 + 1
    while True:
        line = await _line(store, session_id, turns)
        messages = annotate(visible_view(line.turns), {entry.turn.id: entry.turn for entry in line.turns}, line.pruned)
        place = _place(messages, before)
        if turns is None or line.complete or (place is not None and place >= (limit or 0)):
            return _page(messages, limit, before)
        turns *= 2


async def load_turn_messages(store: Store, turn_id: str) -> list[Message]:
    """The messages of one turn, on the line or not."""
    turn = await get_turn(store, turn_id)
    line = await store.load_line(turn.session_id, through=turn.id, turns=1, keep_damaged=True)
    messages = [shown_message(row, turn.id) for row in line.turns[-1].messages]
    return annotate(messages, {turn.id: turn}, await store.load_pruned(turn.session_id))


async def _line(store: Store, session_id: str, turns: int | None) -> LineSlice:
    line = await store.find_view(session_id, turns=turns, keep_damaged=True)
    if line is None:
        raise SessionNotFound(f"there is no session {session_id}", session_id=session_id)
    return line


def _place(messages: Sequence[Message], before: str | None) -> int | None:
    """Where a page ends: before that message, found by the client's id first; at the end without one."""
    if before is None:
        return len(messages)
    for place, message in enumerate(messages):
        if message.client_message_id == before:
            return place
    return next((place for place, message in enumerate(messages) if message.id == before), None)


def _page(messages: list[Message], limit: int | None, before: str | None) -> list[Message]:
    end = _place(messages, before)
    if end is None:
        raise MessageNotFound(f"there is no message {before} in this view", message_id=before)
    return messages[max(end - limit, 0) if limit is not None else 0 : end]
