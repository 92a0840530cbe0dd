"""The part of a session's tree that a move of the head affects.

A move changes the turns between the old end of the line and the new one, up to where both meet; further up only if
other summaries are in force afterwards. The plans are written for whole trees; they get a tree that is cut off there,
so the cost of a move depends on its distance and not on the length of the session.

Two simplifications of the tree save time. In a session of 2,000 turns, cutting it off makes a rewind by one turn take
0.9 ms of processor time instead of 4.3; joining runs of turns makes a rewind by 1,000 turns take 6 ms instead of 14.
The ids of the messages are read, and not updated by a statement that finds them itself, because the result of a rewind,
the event log, session files and the line cache name them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Coroutine, Iterable, Sequence
from typing import Any

import msgspec

from clew.errors import RowUndecodable
from clew.store.base import Moment
from clew.store.trees import PathTurn
from clew.transcript.line import LineTurn, end_of_line
from clew.transcript.message import MessageRow
from clew.transcript.projection import CompactionTail
from clew.transcript.session import SessionState
from clew.transcript.turn import HeadMove, Tree, Turn
from clew.transcript.view import Compaction, find_compaction

__all__ = ["AffectedTree", "load_affected", "load_affected_above", "load_deeper", "load_newest_turn"]

log = logging.getLogger("clew.session.history")


class AffectedTree(msgspec.Struct, frozen=True):
    """The part of a session's tree that a move of the head from the end of the line to ``to`` may change.

    ``tree`` holds the turns on the way from where both meet, each run of them as one (:func:`join_runs`). Where
    ``is_cut``, one turn stands for all above them, and holds the messages there that a tail begins with. The only move
    says that what leads to ``to`` is off the line.
    """

    session_id: str
    state: SessionState
    to: str | None
    tree: Tree
    compactions: tuple[Compaction, ...]
    tails: tuple[CompactionTail, ...]
    is_cut: bool


async def load_affected(store: Moment, session_id: str, to: str | None, now: int) -> AffectedTree:
    """Return the part of the tree that a move of the head to this turn may change; None is the empty beginning."""
    return await store.at_once(session_id, lambda held: _read(held, session_id, to, now))


async def load_affected_above(store: Moment, turn: Turn, now: int) -> AffectedTree:
    """Return the part for restarting a turn of the line: below its parent, or above the compactions there."""

    async def ask(held: Moment) -> AffectedTree:
        parent = turn
        while parent is turn or parent.kind == "compaction":
            above = await held.find_turn(parent.parent_turn_id) if parent.parent_turn_id is not None else None
            if above is None or above.depth >= parent.depth:
                return await _read(held, turn.session_id, parent.parent_turn_id, now, apart=turn.id)
            parent = above
        return await _read(held, turn.session_id, parent.id, now, apart=turn.id)

    return await store.at_once(turn.session_id, ask)


async def load_deeper(store: Moment, affected: AffectedTree, tails: Collection[str | None], now: int) -> AffectedTree:
    """The same, up to the first message that any of these tails, or the newest one above it, begins with."""

    def ask(held: Moment) -> Coroutine[Any, Any, AffectedTree]:
        return _read(held, affected.session_id, affected.to, now, tails_of=tails)

    return await store.at_once(affected.session_id, ask)


async def load_newest_turn(store: Moment, session_id: str) -> tuple[PathTurn | None, PathTurn | None]:
    """The newest turn of the line that is no compaction, and the last of the line."""

    async def ask(held: Moment) -> tuple[PathTurn | None, PathTurn | None]:
        state = await held.load_state(session_id)
        end = end_of_line(state.head_turn_id, state.open_turn_id)
        count = 1
        while True:
            path = await held.load_path(session_id, end, turns=count)
            newest = next((one for one in reversed(path) if one.turn.kind == "normal"), None)
            if newest is not None or len(path) < count:
                return newest, path[-1] if path else None
            count *= 8

    return await store.at_once(session_id, ask)


async def _read(
    held: Moment,
    session_id: str,
    to: str | None,
    now: int,
    *,
    tails_of: Collection[str | None] | None = None,
    apart: str | None = None,
) -> AffectedTree:
    state = await held.load_state(session_id)
    end = end_of_line(state.head_turn_id, state.open_turn_id)
    meeting = await held.find_meeting(session_id, end, to)
    top: Sequence[PathTurn] = ()
    if meeting is not None:
        floor = meeting.depth if tails_of is None else await _floor(held, session_id, meeting, tails_of)
        top = await held.load_runs(session_id, meeting.id, depth=floor)
    path = [*top]
    for turn_id in (end, to):
        depth = meeting.depth + 1 if meeting is not None else 0
        below = await held.load_runs(session_id, turn_id, depth=depth, apart=apart)
        if below and meeting is not None and below[0].turn.parent_turn_id != meeting.id:
            what = "a turn has the wrong parent"
            raise RowUndecodable(what, session_id=session_id, turn_id=below[0].turn.id)
        path += below
    compactions, tails = await _summaries(held, session_id, path)
    turns = {one.turn.id: one.turn for one in path}
    links = {one.turn.id: one.messages for one in path}
    is_cut = bool(top) and top[0].turn.parent_turn_id is not None
    if is_cut:
        first = top[0].turn
        above = first.parent_turn_id or ""
        links[above] = tuple(await _tails_above(held, session_id, first, links, tails))
        turns[above] = Turn(id=above, session_id=session_id, parent_turn_id=None, created_at=0, status="completed")
    for one in await held.load_refused(session_id, now):
        turns.setdefault(one.turn.id, one.turn)
        links.setdefault(one.turn.id, one.messages)
    left = HeadMove(0, session_id, to, state.head_turn_id, -1, "goto")
    tree = Tree(state.head_turn_id, state.open_turn_id, turns, links, (left,))
    return AffectedTree(session_id, state, to, tree, compactions, tails, is_cut)


async def _floor(held: Moment, session_id: str, meeting: Turn, tails: Collection[str | None]) -> int:
    """Return the depth above which no other summary can cover other messages."""
    above, depths = meeting.compaction_turn_id, [0]
    newest: tuple[CompactionTail, ...] = ()
    seen: set[str] = set()
    while above is not None and above not in seen and not newest:
        seen.add(above)
        path = await held.load_path(session_id, above, turns=2)
        depths, newest = [path[-1].turn.depth], (await _summaries(held, session_id, path[-1:]))[1]
        above = path[0].turn.compaction_turn_id if len(path) > 1 else None
    if not newest:
        return 0
    for tail in (newest[0].tail_start_id, *tails):
        holder = await held.find_on_path(session_id, tail, meeting.id) if tail is not None else None
        if tail is None or holder is not None:
            depths.append(holder.depth if holder is not None else 0)
    return min(depths)


async def _tails_above(
    held: Moment,
    session_id: str,
    first: Turn,
    links: dict[str, tuple[str, ...]],
    tails: Iterable[CompactionTail],
) -> list[str]:
    """Return the first messages of tails above the turns that were read, in the order of the line."""
    found: dict[str, int] = {}
    for tail in tails:
        tail_id = tail.tail_start_id
        if tail_id is not None and not any(tail_id in messages for messages in links.values()):
            holder = await held.find_on_path(session_id, tail_id, first.id)
            if holder is not None:
                found[tail_id] = holder.depth
    return sorted(found, key=found.__getitem__)


async def _summaries(
    held: Moment, session_id: str, path: Iterable[PathTurn]
) -> tuple[tuple[Compaction, ...], tuple[CompactionTail, ...]]:
    """The compactions among these turns, and what each kept."""
    compactions: list[Compaction] = []
    tails: list[CompactionTail] = []
    for turn, messages in path:
        if turn.kind != "compaction":
            continue
        rows = await _markers(held, session_id, turn, messages)
        found, at = find_compaction((LineTurn(turn, tuple(rows)),)), turn.settled_at or turn.created_at
        if found is not None:
            compactions.append(found)
            tails.append(CompactionTail(turn.id, found.tail_start_id, at))
        elif not rows and turn.tail_start_id is not None:
            tails.append(CompactionTail(turn.id, turn.tail_start_id, at))
    return tuple(compactions), tuple(tails)


async def _markers(held: Moment, session_id: str, turn: Turn, message_ids: Iterable[str]) -> list[MessageRow]:
    """Return the messages of a compaction turn. A damaged marker must not prevent the move."""
    rows: list[MessageRow] = []
    for message_id in message_ids:
        try:
            row = await held.find_message(session_id, message_id)
        except RowUndecodable as error:
            log.warning("the marker of compaction %s is not readable: %s", turn.id, error)
            row = None
        if row is not None:
            rows.append(row)
    return rows
