"""Import of sessions of other programs, each written once. If the original grew since, the new part is added if safe.

A session is identified by its program and its id there, which is its alias here; ids of its turns and messages are
derived from the program's own. What is new in the file is added, as one unit, unless the session was continued here;
then that is reported and nothing is changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from clew.errors import AliasTaken, InvalidInput
from clew.interop.programs.foreign import ForeignSession
from clew.interop.programs.import_report import Arrival, Moved, Remark
from clew.interop.programs.import_session import ImportTarget, alias_of, import_foreign
from clew.interop.validate_import import check_portable
from clew.live.base import Event
from clew.long_work import run_long
from clew.providers.base import ProviderFailure
from clew.session.acquire.live_sessions import LiveSessions
from clew.session.acquire.prepare import locked_idle_session
from clew.session.history.transfer import close_open, import_session
from clew.session.host import Host
from clew.store import unit as u
from clew.store.base import get_session
from clew.store.portable import load_portable, plan_rows
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.metadata import MODEL_WAS_KEY, projection_of
from clew.transcript.part import PRESERVED_PART
from clew.transcript.portable import PortableSession, tree_of
from clew.transcript.projection import Hidden, compaction_tails, hidden_messages
from clew.transcript.session import Model, Session
from clew.transcript.turn import Turn

__all__ = ["write_foreign"]

replace = msgspec.structs.replace


async def write_foreign(
    host: Host, sessions: LiveSessions, found: Iterable[ForeignSession], target: ImportTarget, workspace: Path | None
) -> Arrival:
    """Write the first session and its subagents, which follow it; return a report."""
    first: Arrival | None = None
    for foreign in found:
        portable = await asyncio.to_thread(
            _with_usable_model, host, await run_long(import_foreign, foreign, target), foreign, target.model
        )
        # The rows have all its content now, and a file may be large.
        foreign.entries.clear()
        session, outcome, turns, why = await _import_one(
            host, sessions, portable, alias_of(foreign.program, foreign.id), workspace, target.owner
        )
        if first is None:
            remarks = tuple(foreign.remarks)
            first = Arrival(
                session_id=session.id,
                title=session.title,
                outcome=outcome,
                turns=turns,
                subagents=0,
                why=why,
                remarks=remarks,
            )
        else:
            moved = first.outcome if outcome == "same" or first.outcome != "same" else "grown"
            remarks = _merge_remarks([*first.remarks, *foreign.remarks])
            added = first.subagents + (outcome == "new")
            first = replace(first, outcome=moved, subagents=added, why=first.why or why, remarks=remarks)
    assert first is not None
    return first


def _with_usable_model(
    host: Host, portable: PortableSession, foreign: ForeignSession, default: Model
) -> PortableSession:
    """Return the session with a model available here. The original one is stored, so reading it needs no API key."""
    model = portable.session.model
    try:
        host.providers.get(model.provider_id)
    except (InvalidInput, ProviderFailure):
        foreign.remarks.append(
            Remark(f"{model} is not available here; the next prompt goes to {default}", "changed", 1, None)
        )
        metadata = {**portable.session.metadata, MODEL_WAS_KEY: str(model)}
        return replace(portable, session=replace(portable.session, model=default, metadata=metadata))
    return portable


async def _import_one(
    host: Host,
    sessions: LiveSessions,
    portable: PortableSession,
    alias: str,
    workspace: Path | None,
    owner: str | None,
) -> tuple[Session, Moved, int, str | None]:
    known = await host.store.find_named(alias, owner)
    if known is None:
        try:
            session = await import_session(host, portable, workspace, owner, alias=alias)
        except AliasTaken:
            # Another process imported it concurrently.
            known = await host.store.find_named(alias, owner)
            if known is None:
                raise
        else:
            return session, "new", sum(row.is_prompt for row in portable.messages), None
    await run_long(check_portable, portable)
    now = host.clock.now_ms()
    arriving = await run_long(lambda: close_open(portable, now, host.mint))
    plan = await _plan(host, known, arriving, now)
    if isinstance(plan, str) or not plan.writes:
        session = await get_session(host.store, known)
        return session, "apart" if isinstance(plan, str) else "same", 0, plan if isinstance(plan, str) else None
    async with locked_idle_session(host, sessions, known) as session:
        plan = await _plan(host, known, arriving, now)
        if isinstance(plan, str):
            return session, "apart", 0, plan
        await sessions.commit(u.Unit(known, plan.writes, plan.guards, sync="power"))
    host.live.publish(Event("session_updated", {"session_id": known}))
    return await get_session(host.store, known), "grown", plan.turns, None


class _Growth(msgspec.Struct, frozen=True):
    writes: tuple[u.Write, ...] = ()
    guards: tuple[u.Guard, ...] = ()
    turns: int = 0


async def _plan(host: Host, session_id: str, arriving: PortableSession, now: int) -> _Growth | str:
    stored = await load_portable(host.store, session_id, keep_damaged=True)
    return await run_long(_plan_growth, stored, arriving, now)


def _plan_growth(stored: PortableSession, arriving: PortableSession, now: int) -> _Growth | str:
    """Return the writes that update the session to the current file, or the reason why that is not possible."""
    rows = {row.id: row for row in stored.messages}
    turns = {turn.id: turn for turn in stored.turns}
    known_steps = {(step.turn_id, step.index) for step in stored.steps}
    here = replace(arriving, session=stored.session)
    changed = {
        row.id: tuple(part for part in row.parts if part.data != _data_at(rows[row.id], part.index))
        for row in arriving.messages
        if row.id in rows and any(part.data != _data_at(rows[row.id], part.index) for part in row.parts)
    }
    new_rows = tuple(row for row in arriving.messages if row.id not in rows)
    new_turns = tuple(turn for turn in arriving.turns if turn.id not in turns)
    has_changed = any(
        part.type != PRESERVED_PART for row in arriving.messages for part in _removed_parts(rows.get(row.id), row)
    )
    ended = [] if has_changed else list(_changed_ends(turns, arriving.turns))
    if not changed and not new_rows and not new_turns and not ended:
        return _Growth()
    if set(turns) - {turn.id for turn in arriving.turns}:
        return "it was continued here: new content of the file was not imported"
    if has_changed:
        return "existing messages have changed in the file: they were not imported again"
    moves = [move.to_turn_id for move in stored.moves]
    if moves != [move.to_turn_id for move in arriving.moves][: len(moves)]:
        return "it was rewound, here or in the other program: new content of the file was not imported"
    rest = replace(
        here,
        turns=new_turns,
        links={turn.id: arriving.links.get(turn.id, ()) for turn in new_turns},
        messages=tuple(
            # Foreign data stored with it stays: parts are never removed.
            replace(row, parts=(*row.parts, *_removed_parts(rows.get(row.id), row)))
            for row in arriving.messages
            if row.id not in rows or row.id in changed
        ),
        steps=tuple(step for step in arriving.steps if (step.turn_id, step.index) not in known_steps),
        moves=arriving.moves[len(moves) :],
    )
    writes: list[u.Write] = []
    writes += [u.PutParts(id_, parts) for id_, parts in changed.items() if parts]
    was = {key: value for key, value in arriving.session.metadata.items() if key == MODEL_WAS_KEY}
    # A model picked by the user stays; otherwise the session gets the last one used in the file.
    model = None if stored.session.has_chosen_model else arriving.session.model
    writes.append(u.PatchSession(metadata=was, model=model))
    for write in plan_rows(rest, now):
        if isinstance(write, u.InsertMessage) and write.message.id in rows:
            continue
        writes.append(write)
        if isinstance(write, u.InsertMessage):
            # Existing turns may contain it now, too.
            holders = [id_ for id_ in turns if write.message.id in arriving.links.get(id_, ())]
            writes += [u.LinkMessage(id_, write.message.id) for id_ in holders]
    for turn, data in ended:
        writes.append(u.SetTurn(turn.id, "running"))
        writes.append(u.SetTurn(turn.id, turn.status, turn.settled_at, data))
    # The times of earlier head moves come from this store, so what they hid stays hidden since then.
    tree = tree_of(replace(arriving, moves=(*stored.moves, *rest.moves)))
    tails = compaction_tails(tree, {row.id: row for row in arriving.messages})
    hidden: dict[str, Hidden | None] = dict(hidden_messages(tree, tails))
    hidden |= {
        id_: None for id_, row in rows.items() if projection_of(row.metadata)[0] is not None and id_ not in hidden
    }
    writes += [u.SetHidden(hidden)] if hidden else []
    added = sum(row.is_prompt for row in new_rows)
    return _Growth(tuple(writes), (u.HeadIs(stored.session.head_turn_id), u.NoOpenTurn()), added)


def _data_at(row: MessageRow, index: int) -> object:
    return row.parts[index].data if index < len(row.parts) else None


def _changed_ends(before: Mapping[str, Turn], now: Iterable[Turn]) -> Iterator[tuple[Turn, dict[str, Any]]]:
    """Yield the existing turns whose end has changed, each with the data to store."""
    for turn in now:
        if (known := before.get(turn.id)) is not None:
            data = {**{key: None for key in known.data if key not in turn.data}, **turn.data}
            if (known.status, known.settled_at, known.data) != (turn.status, turn.settled_at, data):
                yield turn, data


def _removed_parts(before: MessageRow | None, now: MessageRow) -> tuple[PartRow, ...]:
    """Return the parts at the end of a stored message that are no longer in the file."""
    return before.parts[len(now.parts) :] if before is not None else ()


def _merge_remarks(remarks: Iterable[Remark]) -> tuple[Remark, ...]:
    """Merge remarks: the same remark about several sessions is listed once."""
    found: dict[tuple[str, str], Remark] = {}
    for remark in remarks:
        known = found.get((remark.what, remark.fate))
        found[remark.what, remark.fate] = remark if known is None else replace(known, count=known.count + remark.count)
    return tuple(found.values())
