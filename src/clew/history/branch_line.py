"""The line that a branch copies, as far as it has to be looked at.

Most turns are copied as they are, and nothing of them is read: where no summary is in force, the line has only the
turns that a plan has to see, and says how many plain ones lie between them.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec

from clew.store.base import Moment
from clew.store.paths import PathTurn
from clew.transcript.line import end_of_line
from clew.transcript.message import MessageRow
from clew.transcript.portable import PortableSession, rename_value
from clew.transcript.session import Session
from clew.transcript.turn import Turn
from clew.transcript.view import read_compaction

__all__ = ["BranchLine", "find_start", "load_branch_line", "with_rows"]


class BranchLine(msgspec.Struct, frozen=True):
    """A line with the turns a plan has to see. ``runs`` says how many others lie right above a turn of it."""

    line: PortableSession
    runs: dict[str, int] = {}


async def load_branch_line(
    held: Moment, source: Session, turn: Turn, point_id: str, *, on_line: bool, start_message_id: str | None
) -> BranchLine:
    """The path to a turn, and what further down the line may be in force there too."""
    below = await _summaries_below(held, source.id, turn) if on_line else []
    runs: dict[str, int] = {}
    path = await _seen(held, source.id, turn, start_message_id) if turn.compaction_turn_id is None and not below else ()
    if path:
        for above, one in pairwise(path):
            runs[one.turn.id] = one.turn.depth - above.turn.depth - 1
    else:
        path = (*await held.load_path(source.id, turn.id), *below)
    line = PortableSession(
        session=source,
        turns=tuple(one.turn for one in path),
        links={one.turn.id: one.messages for one in path},
    )
    return BranchLine(await with_rows(held, line, point_id), {id_: count for id_, count in runs.items() if count})


async def _seen(held: Moment, session_id: str, turn: Turn, start: str | None) -> tuple[PathTurn, ...]:
    """The turns on the path that a plan has to see, root first; none where it has to see all."""
    found = {one.turn.id: one for one in await held.load_marked(session_id, turn.id)}
    named = [call.message_id for call in await held.open_calls(session_id)]
    if start is not None:
        named += [start, *(row.id for row in await held.load_client_messages(session_id, start))]
    for message_id in named:
        holder = await held.find_on_path(session_id, message_id, turn.id)
        if holder is not None and holder.id not in found:
            found[holder.id] = (await held.load_path(session_id, holder.id, turns=1))[-1]
    known = {*found, *(message_id for one in found.values() for message_id in one.messages)}
    names: set[str] = set()

    def note(text: str) -> str:
        names.update([text] if text.startswith(("msg_", "trn_")) else [])
        return text

    for one in found.values():
        rename_value(one.turn.data, note)
    # What they name must be seen under its new name.
    return tuple(sorted(found.values(), key=lambda one: one.turn.depth)) if names <= known else ()


async def _summaries_below(held: Moment, session_id: str, turn: Turn) -> list[PathTurn]:
    """The compactions of the line below a turn of it, with what they kept or split there, root side first."""
    state = await held.load_state(session_id)
    end = end_of_line(state.head_turn_id, state.open_turn_id)
    last = await held.find_turn(end) if end is not None else None
    above = last.compaction_turn_id if last is not None else None
    found: dict[str, PathTurn] = {}
    while above is not None:
        path = await held.load_path(session_id, above, turns=2)
        one = path[-1]
        if one.turn.depth <= turn.depth:
            break
        found[one.turn.id] = one
        for message_id in one.messages:
            row = await held.find_message(session_id, message_id)
            compaction = read_compaction(row, one.turn.id) if row is not None else None
            split = compaction.split.message_id if compaction is not None and compaction.split is not None else None
            for named in (compaction.tail_start_id if compaction is not None else None, split):
                holder = await held.find_on_path(session_id, named, end) if named is not None else None
                if holder is not None and holder.depth > turn.depth:
                    found.setdefault(holder.id, (await held.load_path(session_id, holder.id, turns=1))[-1])
        above = path[0].turn.compaction_turn_id if len(path) > 1 else None
    return sorted(found.values(), key=lambda one: one.turn.depth)


async def find_start(held: Moment, line: PortableSession, message_id: str) -> MessageRow | None:
    """The message of that name on this line, client id before own id."""
    session_id = line.session.id
    ids = [id_ for turn in line.turns for id_ in line.links[turn.id]]
    named = [row for row in await held.load_client_messages(session_id, message_id) if row.id in ids]
    if named:
        return min(named, key=lambda row: ids.index(row.id))
    return await held.find_message(session_id, message_id) if message_id in ids else None


async def with_rows(held: Moment, line: PortableSession, point_id: str) -> PortableSession:
    """The line with what has to be looked at: summaries, messages with calls that have no result, the point."""
    session_id = line.session.id
    waiting = {call.message_id for call in await held.open_calls(session_id)}
    rows = {row.id: row for row in line.messages}
    for turn in line.turns:
        for id_ in line.links[turn.id]:
            wanted = turn.kind == "compaction" or id_ in waiting or id_ == point_id
            if wanted and id_ not in rows and (row := await held.find_message(session_id, id_)) is not None:
                rows[id_] = row
    return msgspec.structs.replace(line, messages=tuple(rows.values()))
