"""Triggers of a store that holds them in tables."""

from __future__ import annotations

from msgspec.structs import replace

from clew.store.memory.tables import MemoryTables
from clew.transcript.session import Session
from clew.triggers.values.ledger import Direction, EventPage, EventQuery, LedgerEvent
from clew.triggers.values.routing import RouteKind
from clew.triggers.values.schedule import Schedule
from clew.triggers.values.webhook import Webhook

__all__ = ["MemoryTriggers"]


class MemoryTriggers(MemoryTables):
    """See :class:`clew.store.base.Triggers` for what each method promises."""

    async def find_named(self, name: str, owner: str | None) -> str | None:
        await self._list_all()
        return self._named(name, owner)

    async def load_routed(self, kind: RouteKind, name: str, owner: str | None = None) -> tuple[Session, ...]:
        return self._routed(kind, name, owner)

    def _routed(self, kind: RouteKind, name: str, owner: str | None) -> tuple[Session, ...]:
        own = (session for session in self._sessions() if session.owner == owner)
        found = [session for session in own if session.metadata.get(kind) == name]
        named = [session for session in found if session.archived_at is None and session.kind == "chat"]
        return tuple(sorted(named, key=lambda session: (session.created_at, session.id))[:20])

    async def find_event(self, direction: Direction, source: str, source_id: str) -> LedgerEvent | None:
        name = (direction, source, source_id)
        found = sorted((event for key, event in self._shared.events.items() if key[:3] == name), key=_attempt)
        return await self._with_turn(found[0 if direction == "in" else -1]) if found else None

    async def find_repeated(self, source: str, digest: str, since: int) -> LedgerEvent | None:
        return self._repeated(source, digest, since)

    def _repeated(self, source: str, digest: str, since: int) -> LedgerEvent | None:
        taken = (event for event in self._shared.events.values() if event.is_taken and event.at >= since)
        return next((event for event in taken if (event.source, event.digest) == (source, digest)), None)

    async def find_event_of_message(self, session_id: str, message_id: str) -> LedgerEvent | None:
        of_message = (event for event in self._shared.events.values() if event.message_id == message_id)
        came = [event for event in of_message if event.direction == "in" and event.session_id == session_id]
        return await self._with_turn(max(came, key=_attempt)) if came else None

    async def list_events(self, query: EventQuery) -> EventPage:
        # A copy: looking for a turn waits, and an event may be booked meanwhile.
        held = [await self._with_turn(event) for event in tuple(self._shared.events.values())]
        wanted = [event for event in sorted(held, key=lambda one: -one.seq) if _is_asked_for(event, query)]
        page = tuple(wanted[: query.limit])
        return EventPage(page, page[-1].seq if len(wanted) > query.limit else None)

    async def open_events(self, session_id: str | None = None) -> tuple[LedgerEvent, ...]:
        events = sorted(self._shared.events.values(), key=lambda event: event.seq)
        told = {(event.source, event.source_id, event.attempt) for event in events if event.direction == "out"}
        there = {session.id for session in self._sessions()}
        return tuple(
            [
                await self._with_turn(event)
                for event in events
                if event.direction == "in"
                and (event.source, event.source_id, event.attempt) not in told
                and event.session_id in there
                and session_id in (None, event.session_id)
            ]
        )

    async def _with_turn(self, event: LedgerEvent) -> LedgerEvent:
        value = None if event.turn_id is not None else await self._find(event.session_id)
        if value is None:
            return event
        holders = [turn_id for turn_id, held in value.links.items() if event.message_id in held]
        return replace(event, turn_id=min(holders, default=None))

    async def list_schedules(self) -> tuple[Schedule, ...]:
        return tuple(schedule for _, schedule in sorted(self._shared.schedules.items()))

    async def list_webhooks(self) -> tuple[Webhook, ...]:
        return tuple(webhook for _, webhook in sorted(self._shared.webhooks.items()))


def _attempt(event: LedgerEvent) -> int:
    return event.attempt


def _is_asked_for(event: LedgerEvent, query: EventQuery) -> bool:
    return (
        (query.before is None or event.seq < query.before)
        and query.session_id in (None, event.session_id)
        and query.source in (None, event.source)
        and query.turn_id in (None, event.turn_id)
        and query.direction in (None, event.direction)
        and query.owner in (None, event.owner)
    )
