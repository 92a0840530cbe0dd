"""Events from other programs, received over the API, and queries of the event ledger."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from clew import ids
from clew.errors import InvalidInput
from clew.session.host import Host
from clew.transcript.part import text_part
from clew.transcript.value_check import check_value
from clew.triggers.router import MAX_CONTENT, Inbound, Received, Router, Scope, Trigger
from clew.triggers.values import ledger
from clew.triggers.values.routing import Routing, check_routing

__all__ = ["EventList", "Events"]


class EventList(msgspec.Struct, frozen=True):
    """A page of the events ledger, newest first. ``next_cursor`` is None on the last page."""

    events: tuple[ledger.LedgerEvent, ...]
    next_cursor: str | None


class Events:
    """``engine.events``: receive events, and list the ledger."""

    def __init__(self, host: Host, router: Router, scope: Scope) -> None:
        self._host = host
        self._router = router
        self._scope = scope

    async def receive(
        self,
        source: str,
        source_id: str,
        routing: Routing,
        *,
        text: str | None = None,
        payload: Any = None,
        type: str | None = None,
    ) -> Received:
        """Receive an event and start, or queue, its turn. A repeated event changes nothing and gets the same answer;
        with other content it raises ``DuplicateEvent``.

        ``routing`` names the session by its id, label or key; for the latter two it is created if needed, and
        ``RoutingConflict`` names several that match. The message is the ``text``, followed by the ``payload`` as JSON,
        1 MiB together. Its turn has no user to ask: calls that need approval are denied. When the turn settles, a reply
        is added to the ledger.
        """
        if text is None and payload is None:
            raise InvalidInput("an event needs a text or a payload")
        check_value([source, source_id, text, payload, type], "the event", max_bytes=MAX_CONTENT)
        ledger.check_type(type)
        message = text if text is not None else f"An event{f' of type {type}' if type else ''} came in from {source}."
        parts: list[dict[str, Any]] = [text_part(message)]
        if payload is not None:
            parts.append({"type": "text", "text": ledger.event_text(payload)})
        received, _ = await self._router.receive(
            Inbound(
                source=ledger.owned_source(self._scope.owner, ledger.check_source(source)),
                source_id=ledger.check_source_id(source_id),
                trigger=Trigger(source=source, fired_at=self._host.clock.now_ms(), auth_subject="local"),
                content={name: value for name, value in (("text", text), ("payload", payload)) if value is not None},
                parts=tuple(parts),
                routing=check_routing(routing, needed=True),
                type=type,
                tags={"source": "api"},
                owner=self._scope.owner,
            )
        )
        return received

    async def list(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        session_id: str | None = None,
        source: str | None = None,
        turn_id: str | None = None,
        direction: ledger.Direction | None = None,
    ) -> EventList:
        """Return the ledger, newest first: all of it, or the events of a session, a source or a turn."""
        if not 1 <= limit <= 200:
            raise InvalidInput(f"limit must be from 1 to 200, not {limit}")
        if direction not in (None, "in", "out"):
            raise InvalidInput(f"direction must be in or out, not {direction!r}")
        if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
            raise InvalidInput("this cursor was not made by clew; start again without one")
        check_value([source], "filter")
        owner = self._scope.owner
        if session_id is not None:
            session_id = await self._scope.resolve_session(session_id)
        if turn_id is not None:
            ids.check_turn_id(turn_id)
        if owner is not None and source is not None and ":" not in source:
            source = ledger.owned_source(owner, source)
        before = None if cursor is None else int(cursor)
        query = ledger.EventQuery(
            limit=limit,
            before=before,
            session_id=session_id,
            source=source,
            turn_id=turn_id,
            direction=direction,
            owner=owner,
        )
        page = await self._host.store.list_events(query)
        if turn_id is not None and not page.events:
            # The turn of a deleted session is only known from the reply to its event.
            await self._scope.resolve_turn(turn_id)
        prefix = ledger.owned_source(owner, "")
        events = (replace(event, source=event.source.removeprefix(prefix)) for event in page.events)
        return EventList(tuple(events), None if page.next is None else str(page.next))
