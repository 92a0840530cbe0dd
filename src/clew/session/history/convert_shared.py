"""Conversion of data shared between sessions: the ledger, schedules, webhooks, project rules, detached model calls.

Each item is copied with the new session ids, or reported with the reason why not. Existing items of the target stay.
Converting twice changes nothing, so an interrupted conversion is completed by running it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from clew.errors import ClewError, RowUndecodable
from clew.store.base import Store
from clew.store.unit import (
    STORE_WIDE,
    AddEvent,
    EventIsNew,
    PutCall,
    PutProjectRules,
    PutSchedule,
    PutWebhook,
    Refused,
    Unit,
    Write,
)
from clew.triggers.values.ledger import PERSON, EventQuery, LedgerEvent
from clew.triggers.values.routing import Routing

__all__ = ["EVENT_LOG", "Skipped", "Tally", "carry_shared", "left_behind"]

EVENT_LOG: Final = "facts of the event log"
_PAGE_SIZE: Final = 10_000
_MAX_NAMED: Final = 20
replace = msgspec.structs.replace


class Skipped(msgspec.Struct, frozen=True):
    """Items of one kind that were skipped, with the reason; ``ids`` names the first of them."""

    kind: str
    count: int
    why: str
    ids: tuple[str, ...]


class Tally:
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


async def carry_shared(
    source: Store, target: Store, names: Mapping[str, str], lost: Collection[str], tally: Tally, now: int
) -> None:
    """Copy shared data. ``names`` maps old ids to those in the target; ``lost`` are sessions that were skipped."""
    had = await target.load_calls(None)
    await _carry_events(source, target, names, lost, tally)
    existing = {one.id for one in await target.list_schedules()}
    for schedule in await source.list_schedules():
        routed = replace(schedule, routing=_renamed(schedule.routing, names))
        if schedule.routing.session_id in lost:
            tally.leave("schedules", "their session was skipped", schedule.id)
        elif schedule.id in existing:
            tally.know("schedules")
        else:
            await _put(target, PutSchedule(routed), "schedules", schedule.id, tally)
    secrets = {one.key: one.secret for one in await target.list_webhooks()}
    for webhook in await source.list_webhooks():
        routed_hook = replace(webhook, routing=_renamed(webhook.routing, names))
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


async def left_behind(source: Store, spill: Path | None, renamed: Sequence[str], tally: Tally) -> None:
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
    source: Store, target: Store, names: Mapping[str, str], lost: Collection[str], tally: Tally
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


def _renamed(routing: Routing, names: Mapping[str, str]) -> Routing:
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


async def _carry_rules(source: Store, target: Store, project: str, tally: Tally, now: int) -> None:
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


async def _put(target: Store, write: Write, kind: str, id_: str, tally: Tally) -> None:
    try:
        await target.commit(Unit(STORE_WIDE, (write,), sync="power"))
        tally.carry(kind)
    except ClewError as error:
        tally.leave(kind, f"{error.code}: {error}", id_)
