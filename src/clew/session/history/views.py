"""Pages of a session's history: its messages in one of its views, and the files its line has touched. Only reads."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from typing import Literal

import msgspec

from clew.compaction.files import TouchedFile, touched_files
from clew.errors import MessageNotFound, SessionNotFound
from clew.long_work import run_long
from clew.session.history.lookup import get_turn_of
from clew.store.base import Conversations, LineSlice, Moment, Store, get_session, get_turn
from clew.transcript.line import LineTurn, line_messages
from clew.transcript.message import Message, MessageRow, shown_message
from clew.transcript.pruned import Pruned
from clew.transcript.session import Session
from clew.transcript.turn import Tree, Turn
from clew.transcript.view import annotate, find_compaction, model_view, visible_slice, visible_view

__all__ = ["FileList", "View", "load_files", "load_messages", "load_turn_messages"]

View = Literal["visible", "all", "model"]


async def load_messages(
    store: Store, session_id: str, view: View, limit: int | None, before: str | None
) -> list[Message]:
    """Return the newest ``limit`` messages of a view, or those before a message; all of them without a limit."""
    if view == "all":
        await get_session(store, session_id)
        rows = await store.load_messages(session_id, keep_damaged=True)
        tree = await store.load_tree(session_id)
        pruned = await store.load_pruned(session_id)
        return _page(await run_long(_every_message, rows, tree, pruned), limit, before)
    if view == "visible" and limit is not None:
        max_messages = limit
        # As of one moment: the head may move between two reads.
        return await store.at_once(session_id, lambda moment: _visible_page(moment, session_id, max_messages, before))
    return await run_long(_shown_page, await _whole_line(store, session_id), view, limit, before)


def _every_message(rows: Sequence[MessageRow], tree: Tree, pruned: Sequence[Pruned]) -> list[Message]:
    holder = {message_id: turn_id for turn_id, ids in tree.links.items() for message_id in ids}
    holder.update({message_id: turn.id for turn, message_id in line_messages(tree)})
    return annotate([shown_message(row, holder.get(row.id)) for row in rows], tree.turns, pruned)


async def load_turn_messages(store: Store, turn_id: str) -> list[Message]:
    """Return the messages of one turn, on the line or not."""
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
    """Return a page of :func:`visible_view` of the whole line, reading only that page."""
    # Most turns have two messages; if they have fewer, more are read.
    page_turns = (limit + 1) // 2
    load = functools.partial(store.load_line, session_id, keep_damaged=True, viewed=True)
    last = await load(turns=page_turns if before is None else 1)
    if not last.turns:
        return _shown_page(await _whole_line(store, session_id), "visible", limit, before)
    compaction_id = last.turns[-1].turn.compaction_turn_id
    marker_turns: Sequence[LineTurn] = ()
    if compaction_id is not None:
        marker_turns = (await load(through=compaction_id, turns=1)).turns
    compaction = find_compaction(marker_turns)
    if marker_turns and compaction is None:
        # Its marker is unreadable. Which older one applies follows from the whole line.
        return _shown_page(await _whole_line(store, session_id), "visible", limit, before)
    tail_id = compaction.tail_start_id if compaction is not None else None
    tail = await store.find_holder(session_id, tail_id) if tail_id is not None else None
    # The turn in which the visible messages begin; None shows all.
    first: Turn | None = tail.turn if tail is not None and tail.on_line else marker_turns[0].turn if tail_id else None

    async def page_ending_in(stretch: LineSlice) -> list[Message] | None:
        """Return the page that ends in this slice; None if ``before`` is not in it."""
        turns, size = list(stretch.turns), page_turns
        while True:
            messages = visible_slice(turns, compaction, tail_on_line=tail is not None and tail.on_line)
            begins = turns[0].turn.parent_turn_id is None or any(entry.turn == first for entry in turns)
            if begins and compaction is not None:
                messages.insert(0, shown_message(compaction.marker, compaction.turn_id))
            index = _page_end(messages, before)
            if index is None:
                return None
            if begins or index >= limit:
                pruned = await store.load_pruned(session_id, {message.id for message in messages})
                known = {entry.turn.id: entry.turn for entry in (*marker_turns, *turns)}
                return annotate(messages, known, pruned)[max(index - limit, 0) : index]
            above = turns[0].turn.parent_turn_id
            turns[:0] = (await load(through=above, turns=size)).turns
            size *= 2

    if before is None:
        return await page_ending_in(last) or []
    if compaction is not None and before == compaction.marker.id:
        return []
    for turn in await _holding(store, session_id, before):
        if first is None or turn.depth >= first.depth:
            stretch = await load(through=turn.id, turns=page_turns)
            page = await page_ending_in(stretch)
            if page is not None:
                return page
    raise _no_message(before)


async def _holding(store: Moment, session_id: str, named: str) -> list[Turn]:
    """Return the turns of the line with a message of that id, those with the client's id first."""
    rows = await store.load_client_messages(session_id, named)
    found = [await store.find_holder(session_id, id_) for id_ in (*(row.id for row in rows), named)]
    client, own = (
        [one.turn for one in page_turns if one is not None and one.on_line] for page_turns in (found[:-1], found[-1:])
    )
    return [*sorted(client, key=lambda turn: turn.depth), *own]


def _page_end(messages: Sequence[Message], before: str | None) -> int | None:
    """Return the index where a page ends: before that message, by the client's id first, or at the end."""
    if before is None:
        return len(messages)
    for index, message in enumerate(messages):
        if message.client_message_id == before:
            return index
    return next((index for index, message in enumerate(messages) if message.id == before), None)


def _page(messages: list[Message], limit: int | None, before: str | None) -> list[Message]:
    end = _page_end(messages, before)
    if end is None:
        raise _no_message(before)
    return messages[max(end - limit, 0) if limit is not None else 0 : end]


def _no_message(before: str | None) -> MessageNotFound:
    return MessageNotFound(f"there is no message {before} in this view", message_id=before)


class FileList(msgspec.Struct, frozen=True):
    """Files that the conversation has read or changed, the most recently touched first.

    Of all turns of the line, or of one page of them: then ``count`` and the actions are those of this page, and
    ``next_cursor`` leads to the page before it. A file touched on several pages is listed on each.
    """

    files: list[TouchedFile]
    next_cursor: str | None = None


async def load_files(store: Store, session: Session, limit: int | None, through: str | None) -> FileList:
    """Return the files of the line, of its last ``limit`` turns, or of as many up to the turn ``through``.

    A cursor follows the line of the first page, even after the head has moved.
    """
    if through is not None:
        await get_turn_of(store, session.id, through)
    line = await store.load_line(session.id, through=through, turns=limit, keep_damaged=True)
    files = await asyncio.to_thread(touched_files, line.turns, session.workspace_root)
    return FileList(files, None if line.complete else line.turns[0].turn.parent_turn_id)
