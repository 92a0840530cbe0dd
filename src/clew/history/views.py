"""A session's messages in one of its views, a page of them at a time. Only reads, and no more than the page needs."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal

from clew.errors import MessageNotFound, SessionNotFound
from clew.long_work import giving_way, run_long
from clew.store.base import Conversations, LineSlice, Moment, Store, get_session, get_turn
from clew.transcript.line import LineTurn, line_messages
from clew.transcript.message import Message, MessageRow, shown_message
from clew.transcript.pruned import Pruned
from clew.transcript.turn import Tree, Turn
from clew.transcript.view import annotate, find_compaction, model_view, visible_slice, visible_view

__all__ = ["View", "load_messages", "load_turn_messages"]

View = Literal["visible", "all", "model"]


async def load_messages(
    store: Store, session_id: str, view: View, limit: int | None, before: str | None
) -> list[Message]:
    """The newest ``limit`` messages of a view, or those before a message; all of them without a limit."""
    if view == "all":
        await get_session(store, session_id)
        with giving_way():
            rows = await store.load_messages(session_id, keep_damaged=True)
            tree = await store.load_tree(session_id)
            pruned = await store.load_pruned(session_id)
            return _page(await run_long(_every_message, rows, tree, pruned), limit, before)
    if view == "visible" and limit is not None:
        most = limit
        # At one moment: the head may move between two reads.
        again = f"last {limit}" if before is None else None
        return await store.at_once(
            session_id, lambda moment: _visible_page(moment, session_id, most, before), again=again
        )
    with giving_way():
        return await run_long(_shown_page, await _whole_line(store, session_id), view, limit, before)


def _every_message(rows: Sequence[MessageRow], tree: Tree, pruned: Sequence[Pruned]) -> list[Message]:
    holder = {message_id: turn_id for turn_id, held in tree.links.items() for message_id in held}
    holder.update({message_id: turn.id for turn, message_id in line_messages(tree)})
    return annotate([shown_message(row, holder.get(row.id)) for row in rows], tree.turns, pruned)


async def load_turn_messages(store: Store, turn_id: str) -> list[Message]:
    """The messages of one turn, on the line or not."""
    turn = await get_turn(store, turn_id)
    line = await store.load_line(turn.session_id, through=turn.id, turns=1, keep_damaged=True, viewed=True)
    messages = [shown_message(row, turn.id) for row in line.turns[-1].messages]
    pruned = await store.load_pruned(turn.session_id, {message.id for message in messages})
    return annotate(messages, {turn.id: turn}, pruned)


async def _whole_line(store: Conversations, session_id: str) -> LineSlice:
    line = await store.find_view(session_id, keep_damaged=True)
    if line is None:
        raise SessionNotFound(f"there is no session {session_id}", session_id=session_id)
    return line


def _shown_page(line: LineSlice, view: View, limit: int | None, before: str | None) -> list[Message]:
    if view == "model":
        return _page(model_view(line.turns, line.pruned), limit, before)
    turns = {entry.turn.id: entry.turn for entry in line.turns}
    return _page(annotate(visible_view(line.turns), turns, line.pruned), limit, before)


async def _visible_page(store: Moment, session_id: str, limit: int, before: str | None) -> list[Message]:
    """What :func:`visible_view` shows there of the whole line, of which the page alone is read."""
    # Most turns hold two messages; where they hold fewer, more are read.
    some = (limit + 1) // 2
    load = functools.partial(store.load_line, session_id, keep_damaged=True, viewed=True)
    last = await load(turns=some if before is None else 1)
    if not last.turns:
        return _shown_page(await _whole_line(store, session_id), "visible", limit, before)
    compaction_id = last.turns[-1].turn.compaction_turn_id
    made: Sequence[LineTurn] = ()
    if compaction_id is not None:
        made = (await load(through=compaction_id, turns=1)).turns
    compaction = find_compaction(made)
    if made and compaction is None:
        # Its marker does not read. Then an older one holds, and which, the whole line says.
        return _shown_page(await _whole_line(store, session_id), "visible", limit, before)
    tail_id = compaction.tail_start_id if compaction is not None else None
    tail = await store.find_holder(session_id, tail_id) if tail_id is not None else None
    # The turn in which what people see begins: all of it when there is none.
    first: Turn | None = tail.turn if tail is not None and tail.on_line else made[0].turn if tail_id else None

    async def back_from(stretch: LineSlice) -> list[Message] | None:
        """The page that ends in this stretch; None when ``before`` is not seen there."""
        turns, size = list(stretch.turns), some
        while True:
            seen = visible_slice(turns, compaction, tail_on_line=tail is not None and tail.on_line)
            begins = turns[0].turn.parent_turn_id is None or any(entry.turn == first for entry in turns)
            if begins and compaction is not None:
                seen.insert(0, shown_message(compaction.marker, compaction.turn_id))
            place = _place(seen, before)
            if place is None:
                return None
            if begins or place >= limit:
                pruned = await store.load_pruned(session_id, {message.id for message in seen})
                known = {entry.turn.id: entry.turn for entry in (*made, *turns)}
                return annotate(seen, known, pruned)[max(place - limit, 0) : place]
            above = turns[0].turn.parent_turn_id
            turns[:0] = (await load(through=above, turns=size)).turns
            size *= 2

    if before is None:
        return await back_from(last) or []
    if compaction is not None and before == compaction.marker.id:
        return []
    for turn in await _holding(store, session_id, before):
        if first is None or turn.depth >= first.depth:
            stretch = await load(through=turn.id, turns=some)
            page = await back_from(stretch)
            if page is not None:
                return page
    raise _no_message(before)


async def _holding(store: Moment, session_id: str, named: str) -> list[Turn]:
    """The turns of the line that hold a message of that name, those of the client's own first."""
    rows = await store.load_client_messages(session_id, named)
    found = [await store.find_holder(session_id, id_) for id_ in (*(row.id for row in rows), named)]
    client, own = ([one.turn for one in some if one is not None and one.on_line] for some in (found[:-1], found[-1:]))
    return [*sorted(client, key=lambda turn: turn.depth), *own]


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
        raise _no_message(before)
    return messages[max(end - limit, 0) if limit is not None else 0 : end]


def _no_message(before: str | None) -> MessageNotFound:
    return MessageNotFound(f"there is no message {before} in this view", message_id=before)
