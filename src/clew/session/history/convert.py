"""Conversion: copy everything of one store into another, with session ids valid there, and compare the result.

A session is one unit, so it arrives completely or not at all. Nothing is settled or left out: rewound turns, the queue,
rules, prunes and pending requests are copied. Only session ids change and, if the target already uses the others, those
too, with every reference to them. The source is only read.

Shared data follows: each item is copied with the new session ids, or reported with the reason why not. Existing items
of the target stay. Converting twice changes nothing, so an interrupted conversion is completed by running it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from math import fsum, isclose
from pathlib import Path
from typing import Any, Final

import msgspec

from clew.errors import ClewError, InternalError, RowUndecodable, StoreError
from clew.ids import Mint
from clew.session.acquire.recovery import recover
from clew.session.history.views import View, load_messages
from clew.store.base import Damage, Store
from clew.store.portable import load_portable, plan_insert
from clew.store.unit import (
    STORE_WIDE,
    AddEvent,
    DeleteSession,
    EventIsNew,
    PutCall,
    PutProjectRules,
    PutSchedule,
    PutWebhook,
    Refused,
    Unit,
    Write,
)
from clew.transcript.message import Message
from clew.transcript.model_call import with_usage
from clew.transcript.part import input_of
from clew.transcript.portable import PortableSession, Rename, rename_part, rename_session, rename_value
from clew.transcript.usage import Usage
from clew.transcript.wait import digest_call, waits_of
from clew.triggers.values.ledger import PERSON, EventQuery, LedgerEvent
from clew.triggers.values.routing import Routing

__all__ = ["EVENT_LOG", "ORIGIN_KEY", "Conversion", "ConvertedSession", "Skipped", "convert"]

ORIGIN_KEY: Final = "converted_from"
_VIEWS: Final[tuple[View, ...]] = ("visible", "model", "all")
replace, astuple = msgspec.structs.replace, msgspec.structs.astuple
EVENT_LOG: Final = "facts of the event log"
_PAGE_SIZE: Final = 10_000
_MAX_NAMED: Final = 20


class ConvertedSession(msgspec.Struct, frozen=True):
    """A session and its id in the target."""

    session_id: str
    as_id: str


class Conversion(msgspec.Struct, frozen=True):
    """The result of a conversion: sessions that were written, that had been written before, and that are damaged.

    ``carried`` counts shared data that was copied, by kind, ``there`` what the target already had; ``left`` lists what
    was skipped.
    """

    moved: tuple[ConvertedSession, ...]
    known: tuple[ConvertedSession, ...]
    damaged: tuple[Damage, ...] = ()
    carried: dict[str, int] = {}
    there: dict[str, int] = {}
    left: tuple[Skipped, ...] = ()


async def convert(source: Store, target: Store, mint: Mint, now: int, spill: Path | None = None) -> Conversion:
    """Copy everything of the source into the target, and compare the sessions of both.

    ``spill`` is the folder with stored tool outputs, by session id.
    """
    origin = source.url.partition(":")[0]
    known = await _known(target)
    rows = [session for id_ in await source.session_ids() if (session := await source.find_session(id_)) is not None]
    rows.sort(key=lambda session: (session.created_at, session.id))
    names: dict[str, str] = {}
    for session in rows:
        here = known.get(session.id)
        names[session.id] = here if here is not None else await _name(target, session.id, mint)
    moved: list[ConvertedSession] = []
    damaged: list[Damage] = []
    for session in rows:
        if session.id not in known:
            try:
                given = await load_portable(source, session.id)
            except RowUndecodable as error:
                id_ = error.ids.get("id")
                damaged.append(Damage(str(error), session.id, str(id_) if id_ is not None else None))
                continue
            # A branch comes after its parent and refers to it by its new id.
            names |= await _move(source, target, given, names, origin, mint, now)
            moved.append(ConvertedSession(session.id, names[session.id]))
    tally = _Tally()
    await _carry_shared(source, target, names, {one.session_id or "" for one in damaged}, tally, now)
    await _left_behind(source, spill, [one.session_id for one in moved if one.session_id != one.as_id], tally)
    # A turn that a dead process left open is settled there as it would have been here.
    await recover(target, mint, now)
    return Conversion(
        tuple(moved),
        tuple(ConvertedSession(old, new) for old, new in known.items() if old in names),
        tuple(damaged),
        tally.carried,
        tally.known,
        tally.left(),
    )


async def _known(target: Store) -> dict[str, str]:
    """Return the sessions of the target that came from another store, by their id there."""
    found: dict[str, str] = {}
    for id_ in await target.session_ids():
        session = await target.find_session(id_)
        origin_record = session.metadata.get(ORIGIN_KEY) if session is not None else None
        if isinstance(origin_record, dict) and isinstance(origin_record.get("session_id"), str):
            found[origin_record["session_id"]] = id_
    return found


async def _name(target: Store, session_id: str, mint: Mint) -> str:
    form = target.capabilities.session_ids
    if form.accepts_foreign_id(session_id) and await target.find_session(session_id) is None:
        return session_id
    return mint.session(form)


async def _move(
    source: Store, target: Store, given: PortableSession, names: Mapping[str, str], origin: str, mint: Mint, now: int
) -> dict[str, str]:
    """Write one session and compare; return the new ids of everything in it."""
    session_id = given.session.id
    is_taken = any([await target.find_turn(turn.id) is not None for turn in given.turns])
    new_ids = dict(names)
    if is_taken:
        new_ids |= {turn.id: mint.turn() for turn in given.turns}
        new_ids |= {row.id: mint.message() for row in given.messages}
        new_ids |= {call.id: mint.call() for call in given.calls}
    new_ids |= _digests(given, new_ids[session_id])

    def rename(old: str) -> str:
        return new_ids.get(old, old)

    origin_record: dict[str, Any] = {"store": origin, "session_id": session_id, "at": now}
    session, parent = given.session, given.session.parent_id
    if parent is not None and parent not in names and not target.capabilities.session_ids.value.fullmatch(parent):
        # Its parent is gone, and its id is not valid here.
        origin_record["parent_id"] = parent
        session = replace(session, parent_id=None, parent_message_id=None)
    if given.rules and session.project is not None:
        # The rules of the target stay; a difference is reported with the rules of projects.
        given = replace(given, rules=await target.load_project_rules(session.project) or given.rules)
    written = rename_session(replace(given, session=session), rename, mint, new_parts=is_taken)
    metadata = {**written.session.metadata, ORIGIN_KEY: origin_record}
    written = replace(written, session=replace(written.session, metadata=metadata))
    outcome = await target.commit(Unit(written.session.id, plan_insert(_without_steps(written), now), sync="power"))
    if isinstance(outcome, Refused):
        raise InternalError(f"a converted session was refused: {outcome.reason}", session_id=session_id)
    wrong = await _differences(source, target, session_id, written, rename)
    if wrong:
        await target.commit(Unit(written.session.id, (DeleteSession(),), sync="power"))
        raise StoreError(f"the copy of session {session_id} differs in {', '.join(wrong)}; it was deleted again")
    return new_ids


def _digests(given: PortableSession, session_id: str) -> dict[str, str]:
    """Return the new digests that answers to pending requests are bound to; they contain the session id."""
    inputs = {part.tool_call_id: input_of(part.data) for row in given.messages for part in row.parts}
    return {
        wait.digest: digest_call(
            session_id, wait.tool_call_id, wait.tool, inputs.get(wait.tool_call_id), given.session.workspace_root
        )
        for turn in given.turns
        for wait in waits_of(turn)
    }


def _without_steps(given: PortableSession) -> PortableSession:
    """Return the session before its steps are recorded, as their writes add to its sums."""
    session = given.session
    used = sum((step.usage for step in given.steps), Usage())
    before = (was - of_steps for was, of_steps in zip(astuple(session.usage), astuple(used), strict=True))
    cost = fsum(step.cost_usd for step in given.steps)
    session = replace(
        with_usage(session, Usage(*before)),
        total_tokens=session.total_tokens - used.total,
        cost_usd=0.0 if isclose(cost, session.cost_usd, abs_tol=1e-9) else session.cost_usd - cost,
    )
    return replace(given, session=session)


# Verification


async def _differences(
    source: Store, target: Store, session_id: str, written: PortableSession, rename: Rename
) -> list[str]:
    """Return what differs between source and target: view by view, then everything that no view shows."""
    wrong = []
    for view in _VIEWS:
        before = _renamed(await load_messages(source, session_id, view, None, None), rename)
        after = _renamed(await load_messages(target, written.session.id, view, None, None), str)
        if before != after:
            wrong.append(f"the view {view}")
    try:
        stored = await load_portable(target, written.session.id)
    except RowUndecodable as error:
        return [*wrong, f"readability: {error}"]
    # A sum of fractions depends on the order of addition.
    if isclose(written.session.cost_usd, stored.session.cost_usd, abs_tol=1e-9):
        stored = replace(stored, session=replace(stored.session, cost_usd=written.session.cost_usd))
    fields = PortableSession.__struct_fields__
    return wrong + [f"its {name}" for name in fields if getattr(written, name) != getattr(stored, name)]


def _renamed(messages: Sequence[Message], rename: Rename) -> list[Any]:
    return [
        (
            rename(message.id.removesuffix("-boundary")),
            message.role,
            [rename_part(part, rename) for part in message.parts],
            rename_value(message.metadata, rename),
        )
        for message in messages
    ]


class Skipped(msgspec.Struct, frozen=True):
    """Items of one kind that were skipped, with the reason; ``ids`` names the first of them."""

    kind: str
    count: int
    why: str
    ids: tuple[str, ...]


class _Tally:
    """Counters of what was copied, what already existed, and what was skipped for which reason."""

    def __init__(self) -> None:
        self.carried: dict[str, int] = {}
        self.known: dict[str, int] = {}
        self._left: dict[tuple[str, str], tuple[int, tuple[str, ...]]] = {}

    def carry(self, kind: str) -> None:
        self.carried[kind] = self.carried.get(kind, 0) + 1

    def know(self, kind: str) -> None:
        self.known[kind] = self.known.get(kind, 0) + 1

    def leave(self, kind: str, why: str, id_: str | None = None, *, count: int = 1) -> None:
        before, ids = self._left.get((kind, why), (0, ()))
        self._left[kind, why] = before + count, ids if id_ is None or len(ids) == _MAX_NAMED else (*ids, id_)

    def left(self) -> tuple[Skipped, ...]:
        return tuple(Skipped(kind, count, why, ids) for (kind, why), (count, ids) in self._left.items())


async def _carry_shared(
    source: Store, target: Store, names: Mapping[str, str], lost: Collection[str], tally: _Tally, now: int
) -> None:
    """Copy shared data. ``names`` maps old ids to those in the target; ``lost`` are sessions that were skipped."""
    had = await target.load_calls(None)
    await _carry_events(source, target, names, lost, tally)
    existing = {one.id for one in await target.list_schedules()}
    for schedule in await source.list_schedules():
        routed = replace(schedule, routing=_rename_session(schedule.routing, names))
        if schedule.routing.session_id in lost:
            tally.leave("schedules", "their session was skipped", schedule.id)
        elif schedule.id in existing:
            tally.know("schedules")
        else:
            await _put(target, PutSchedule(routed), "schedules", schedule.id, tally)
    secrets = {one.key: one.secret for one in await target.list_webhooks()}
    for webhook in await source.list_webhooks():
        routed_hook = replace(webhook, routing=_rename_session(webhook.routing, names))
        if webhook.routing.session_id in lost:
            tally.leave("webhooks", "their session was skipped", webhook.name)
        elif webhook.key not in secrets:
            await _put(target, PutWebhook(routed_hook), "webhooks", webhook.name, tally)
        elif secrets[webhook.key] == webhook.secret:
            tally.know("webhooks")
        else:
            tally.leave("webhooks", "another one with this name exists, with its own secret", webhook.name)
    for project in await source.list_projects():
        await _carry_rules(source, target, project, tally, now)
    # The cost of deleted sessions was still incurred.
    calls = await source.load_calls(None)
    await target.commit(Unit(STORE_WIDE, tuple(map(PutCall, calls)), sync="power"))
    known_ids = {call.id for call in had}
    for call in calls:
        (tally.know if call.id in known_ids else tally.carry)("model calls of deleted sessions")


async def _left_behind(source: Store, spill: Path | None, renamed: Sequence[str], tally: _Tally) -> None:
    """Report what is never copied: the source's log, stored outputs of sessions with a new id, and damaged or lost
    items."""
    for session_id in await asyncio.to_thread(_with_folder, spill, renamed):
        tally.leave("folders of outputs put aside", "they stay under the old id of their session", session_id)
    listed = await source.session_ids()
    saved = sum([len(await source.load_snapshots(session_id)) for session_id in listed])
    if saved:
        tally.leave("snapshots of workspaces", "they name saved states of the source", count=saved)
    facts = sum([len(await source.load_facts(session_id)) for session_id in listed])
    if facts:
        tally.leave(EVENT_LOG, "the target starts its own log", count=facts)
    for damage in (*await source.verify(), *await source.losses()):
        # Damage within a session is reported with it; a session that was never adopted is not listed.
        if damage.session_id not in listed or (damage.id or "").startswith("loss-"):
            tally.leave("damage", damage.what, damage.id or damage.session_id)


async def _carry_events(
    source: Store, target: Store, names: Mapping[str, str], lost: Collection[str], tally: _Tally
) -> None:
    """Copy events in the order of the source. An event belongs to its session, or stands alone if that is deleted."""
    existing = {_key(event): event for event in await _all_events(target)}
    present = frozenset(await target.session_ids())
    for event in await _all_events(source):
        name = f"{event.source} {event.source_id}"
        if event.session_id in lost:
            tally.leave("events", "their session was skipped", name)
            continue
        moved = _event_there(event, names)
        known = existing.get(_key(moved))
        if known is not None:
            if (known.session_id, known.digest, known.status) == (moved.session_id, moved.digest, moved.status):
                tally.know("events")
            else:
                tally.leave("events", "the target has an event with this source and id, with another result", name)
            continue
        is_there = moved.session_id in present
        message = (
            await target.find_message(moved.session_id, moved.message_id) if is_there and moved.message_id else None
        )
        if is_there and moved.message_id and message is None:
            tally.leave("events", "their message has another id there, or is missing", name)
            continue
        guard = EventIsNew(event.direction, moved.source, moved.source_id, moved.attempt)
        unit = Unit(moved.session_id if is_there else STORE_WIDE, (AddEvent(moved),), (guard,))
        outcome = await target.commit(unit)
        if isinstance(outcome, Refused):
            tally.leave("events", f"refused: {outcome.reason}", name)
        else:
            tally.carry("events")


async def _all_events(store: Store) -> list[LedgerEvent]:
    """Return all events, oldest first."""
    found: list[LedgerEvent] = []
    before: int | None = None
    while True:
        page = await store.list_events(EventQuery(limit=_PAGE_SIZE, before=before))
        found += page.events
        if page.next is None:
            return found[::-1]
        before = page.next


def _with_folder(spill: Path | None, session_ids: Sequence[str]) -> list[str]:
    return [session_id for session_id in session_ids if spill is not None and (spill / session_id).is_dir()]


def _rename_session(routing: Routing, names: Mapping[str, str]) -> Routing:
    return replace(routing, session_id=names.get(routing.session_id or "", routing.session_id))


def _key(event: LedgerEvent) -> tuple[str, str, str, int]:
    return event.direction, event.source, event.source_id, event.attempt


def _event_there(event: LedgerEvent, names: Mapping[str, str]) -> LedgerEvent:
    """Return the event with the ids of the target. Inbound content stays unchanged, whatever it contains."""
    is_first = event.direction == "in" and event.attempt == 1
    return replace(
        event,
        session_id=names.get(event.session_id, event.session_id),
        message_id=names.get(event.message_id or "", event.message_id),
        # The turn of a first attempt is found by its message and not stored.
        turn_id=None if is_first else names.get(event.turn_id or "", event.turn_id),
        source_id=names.get(event.source_id, event.source_id) if event.source == PERSON else event.source_id,
        routing={
            key: names.get(value, value) if key == "session_id" else value for key, value in event.routing.items()
        },
        seq=0,
    )


async def _carry_rules(source: Store, target: Store, project: str, tally: _Tally, now: int) -> None:
    try:
        wanted, existing = await source.load_project_rules(project), await target.load_project_rules(project)
    except RowUndecodable as error:
        tally.leave("rules of projects", str(error), project)
        return
    if wanted == existing:
        tally.know("rules of projects")
    elif existing:
        tally.leave("rules of projects", "the project has its own rules there, which stay", project)
    else:
        await _put(target, PutProjectRules(project, tuple(wanted), now), "rules of projects", project, tally)


async def _put(target: Store, write: Write, kind: str, id_: str, tally: _Tally) -> None:
    try:
        await target.commit(Unit(STORE_WIDE, (write,), sync="power"))
        tally.carry(kind)
    except ClewError as error:
        tally.leave(kind, f"{error.code}: {error}", id_)
