"""The part of a line that must be read to copy it.

Most turns are copied without being read: if no summary is in force, only the turns that the plan needs are loaded, with
the number of plain turns between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec

from clew.store.base import Moment
from clew.store.trees import PathTurn
from clew.transcript.line import end_of_line
from clew.transcript.message import MessageRow
from clew.transcript.portable import PortableSession, rename_value
from clew.transcript.session import Session
from clew.transcript.turn import Turn
from clew.transcript.view import read_compaction

__all__ = ["MAX_TURNS_PER_UNIT", "BranchLine", "find_start", "load_branch_line", "with_rows"]


MAX_TURNS_PER_UNIT: Final = 200
"""The number of turns that one unit copies: other writes wait for it."""


class BranchLine(msgspec.Struct, frozen=True):
    """The turns of a line that a plan needs. ``runs`` are the other turns directly above one of them: in portions, each
    with the last turn and the number of turns."""

    line: PortableSession
    runs: dict[str, tuple[tuple[str, int], ...]] = {}


async def load_branch_line(
    moment: Moment, source: Session, turn: Turn, point_id: str, *, on_line: bool, start_message_id: str | None
) -> BranchLine:
    """Load the path to a turn, and the summaries further down the line that may apply there too."""
    below = await _summaries_below(moment, source.id, turn) if on_line else []
    runs: dict[str, tuple[tuple[str, int], ...]] = {}
    path = (
        await _needed_turns(moment, source.id, turn, start_message_id)
        if turn.compaction_turn_id is None and not below
        else ()
    )
    if path:
        stops = (
            await moment.path_every(source.id, turn.id, MAX_TURNS_PER_UNIT) if turn.depth > MAX_TURNS_PER_UNIT else ()
        )
        for above, entry in pairwise(path):
            runs[entry.turn.id] = _portions(above.turn.depth, entry.turn, stops)
    else:
        path = (*await moment.load_path(source.id, turn.id), *below)
    line = PortableSession(
        session=source,
        turns=tuple(entry.turn for entry in path),
        links={entry.turn.id: entry.messages for entry in path},
    )
    return BranchLine(await with_rows(moment, line, point_id), {id_: run for id_, run in runs.items() if run})


def _portions(above: int, turn: Turn, stops: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Return the run between the turn at depth ``above`` and this one. ``stops`` are the turns between portions."""
    found: list[tuple[str, int]] = []
    for place in range(above // MAX_TURNS_PER_UNIT + 1, len(stops)):
        if place * MAX_TURNS_PER_UNIT < turn.depth - 1:
            found.append((stops[place], place * MAX_TURNS_PER_UNIT - above))
            above = place * MAX_TURNS_PER_UNIT
    if count := turn.depth - above - 1:
        found.append((turn.parent_turn_id or "", count))
    return tuple(found)


async def _needed_turns(moment: Moment, session_id: str, turn: Turn, start: str | None) -> tuple[PathTurn, ...]:
    """Return the turns on the path that a plan needs, root first; empty if it needs all."""
    found = {entry.turn.id: entry for entry in await moment.load_marked(session_id, turn.id)}
    referenced = [call.message_id for call in await moment.open_calls(session_id)]
    if start is not None:
        referenced += [start, *(row.id for row in await moment.load_client_messages(session_id, start))]
    for message_id in referenced:
        holder = await moment.find_on_path(session_id, message_id, turn.id)
        if holder is not None and holder.id not in found:
            found[holder.id] = (await moment.load_path(session_id, holder.id, turns=1))[-1]
    known = {*found, *(message_id for entry in found.values() for message_id in entry.messages)}
    names: set[str] = set()

    def collect(text: str) -> str:
        names.update([text] if text.startswith(("msg_", "trn_")) else [])
        return text

    for entry in found.values():
        rename_value(entry.turn.data, collect)
    # Turns and messages that they name must be loaded, to get their new ids.
    return tuple(sorted(found.values(), key=lambda entry: entry.turn.depth)) if names <= known else ()


async def _summaries_below(moment: Moment, session_id: str, turn: Turn) -> list[PathTurn]:
    """Return the compactions of the line below a turn, with the turns they kept or split there, root side first."""
    state = await moment.load_state(session_id)
    end = end_of_line(state.head_turn_id, state.open_turn_id)
    last = await moment.find_turn(end) if end is not None else None
    above = last.compaction_turn_id if last is not None else None
    found: dict[str, PathTurn] = {}
    while above is not None:
        path = await moment.load_path(session_id, above, turns=2)
        entry = path[-1]
        if entry.turn.depth <= turn.depth:
            break
        found[entry.turn.id] = entry
        for message_id in entry.messages:
            row = await moment.find_message(session_id, message_id)
            compaction = read_compaction(row, entry.turn.id) if row is not None else None
            split = compaction.split.message_id if compaction is not None and compaction.split is not None else None
            for referenced in (compaction.tail_start_id if compaction is not None else None, split):
                holder = await moment.find_on_path(session_id, referenced, end) if referenced is not None else None
                if holder is not None and holder.depth > turn.depth:
                    found.setdefault(holder.id, (await moment.load_path(session_id, holder.id, turns=1))[-1])
        above = path[0].turn.compaction_turn_id if len(path) > 1 else None
    return sorted(found.values(), key=lambda entry: entry.turn.depth)


async def find_start(moment: Moment, line: PortableSession, message_id: str) -> MessageRow | None:
    """Return the message with that id on this line, the client's id before clew's own."""
    session_id = line.session.id
    ids = [id_ for turn in line.turns for id_ in line.links[turn.id]]
    referenced = [row for row in await moment.load_client_messages(session_id, message_id) if row.id in ids]
    if referenced:
        return min(referenced, key=lambda row: ids.index(row.id))
    return await moment.find_message(session_id, message_id) if message_id in ids else None


async def with_rows(moment: Moment, line: PortableSession, point_id: str) -> PortableSession:
    """Return the line with the messages that must be read: summaries, messages with open calls, and the point."""
    session_id = line.session.id
    waiting = {call.message_id for call in await moment.open_calls(session_id)}
    rows = {row.id: row for row in line.messages}
    for turn in line.turns:
        for id_ in line.links[turn.id]:
            wanted = turn.kind == "compaction" or id_ in waiting or id_ == point_id
            if wanted and id_ not in rows and (row := await moment.find_message(session_id, id_)) is not None:
                rows[id_] = row
    return msgspec.structs.replace(line, messages=tuple(rows.values()))
