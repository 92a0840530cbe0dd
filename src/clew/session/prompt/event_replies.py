"""Replies to inbound events: when the turn of an inbound event settles, an outbound event is added to the ledger, once.

The inbound event is stored in one unit with its message, so neither exists without the other, and a further attempt in
one unit with the start of its turn. The outbound event follows the unit that settles the turn; ``recover`` closes what
a dead process left open. A user's prompt can be recorded as an event, too, if the host enables that.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from clew.failpoints import failpoint
from clew.session.host import Host
from clew.store.unit import AddEvent, EventIsNew, Unit, Write
from clew.transcript.message import MessageRow
from clew.transcript.part import file_name_of, media_type_of
from clew.transcript.turn import Turn
from clew.transcript.turn_state import OPEN
from clew.triggers.values.ledger import PERSON, LedgerEvent, digest_event

__all__ = ["EventReplies"]

log = logging.getLogger("clew.ledger")


class EventReplies:
    """The writer of outbound events. It tracks which sessions have open events, so that others cost nothing."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._open: set[str] = set()

    def expect(self, session_id: str) -> None:
        """Note that an event of this session is about to be stored."""
        self._open.add(session_id)

    def plan_prompt(self, row: MessageRow) -> Unit:
        """Return the ledger entry of a user's prompt, for the unit that stores it; empty unless enabled."""
        if not self._host.config.ledger_prompts:
            return Unit(row.session_id, ())
        self.expect(row.session_id)
        files = [file_name_of(part.data) or media_type_of(part.data) for part in row.parts if part.type == "file"]
        content = {"text": "\n".join(row.texts), **({"files": files} if files else {})}
        event = LedgerEvent(
            id=self._host.mint.event(),
            direction="in",
            source=PERSON,
            source_id=row.id,
            session_id=row.session_id,
            message_id=row.id,
            digest=digest_event(content),
            routing={"session_id": row.session_id},
            data=content,
            at=self._host.clock.now_ms(),
        )
        return Unit(row.session_id, (AddEvent(event),), (EventIsNew("in", event.source, event.source_id),))

    async def plan_attempt(self, turn: Turn, message_id: str, why: str) -> tuple[Write, ...]:
        """Return the ledger entry of a further attempt at an event's message, for the unit that starts its turn.

        Until there is a reply, it is the same attempt that continues.
        """
        store = self._host.store
        event = await store.find_event_of_message(turn.session_id, message_id)
        reply = await store.find_event("out", event.source, event.source_id) if event is not None else None
        if event is None or reply is None or reply.attempt < event.attempt:
            return ()
        self.expect(turn.session_id)
        attempt = msgspec.structs.replace(
            event,
            id=self._host.mint.event(),
            attempt=event.attempt + 1,
            turn_id=turn.id,
            data={"why": why},
            at=self._host.clock.now_ms(),
        )
        return (AddEvent(attempt),)

    async def plan_deletion(self, session_id: str) -> tuple[Write, ...]:
        """Return the replies to open events of a session that is deleted, for the unit that deletes it."""
        left = await self._host.store.open_events(session_id)
        return tuple(AddEvent(self._reply_event(event, "deleted", None, {})) for event in left)

    async def settle(self, session_id: str) -> None:
        """Add the replies of events whose turns have settled. Never raises: recovery adds what is missing."""
        # An event accepted by another replica may be answered here.
        if session_id in self._open or self._host.lease.shared:
            try:
                left = [
                    event for event in await self._host.store.open_events(session_id) if not await self._close(event)
                ]
            except Exception:
                log.exception("could not add the replies of session %s to the ledger", session_id)
                return
            if not left:
                self._open.discard(session_id)

    async def recover(self) -> tuple[str, ...]:
        """Close the events that a dead process left open; return the sessions that still have open ones."""
        left = [event for event in await self._host.store.open_events() if not await self._close(event)]
        self._open.update(event.session_id for event in left)
        return tuple(dict.fromkeys(event.session_id for event in left))

    async def _close(self, event: LedgerEvent) -> bool:
        """Add the reply to an event if its turn has settled; return whether it has."""
        answer = await self._make_reply(event)
        if answer is None:
            return False
        failpoint("ledger.before_outbound")
        guard = EventIsNew("out", event.source, event.source_id, event.attempt)
        # Refused if the session was deleted, which added a reply, or if it was closed twice: both are fine.
        await self._host.store.commit(Unit(event.session_id, (AddEvent(answer),), (guard,), sync="power"))
        return True

    async def _make_reply(self, event: LedgerEvent) -> LedgerEvent | None:
        """Return the reply, once the turn has settled or the queued message was cancelled."""
        store = self._host.store
        if event.turn_id is None:
            row = await store.find_message(event.session_id, event.message_id or "")
            if row is None or not row.is_cancelled:
                return None
            return self._reply_event(event, "cancelled", None, {"why": row.cancelled_why})
        line = await store.load_line(event.session_id, through=event.turn_id, turns=1, keep_damaged=True)
        if not line.turns or line.turns[-1].turn.status in (*OPEN, "unanswered"):
            return None
        turn = line.turns[-1].turn
        answers = [row for row in line.turns[-1].messages if row.role == "assistant"]
        texts = answers[-1].texts if answers else []
        data: dict[str, Any] = {"text": texts[-1] if texts else ""}
        data |= {name: turn.data[name] for name in ("error", "stopped") if turn.data.get(name)}
        return self._reply_event(event, turn.status, answers[-1].id if answers else None, data)

    def _reply_event(
        self, event: LedgerEvent, status: str, message_id: str | None, data: dict[str, Any]
    ) -> LedgerEvent:
        return msgspec.structs.replace(
            event,
            id=self._host.mint.event(),
            direction="out",
            message_id=message_id,
            status=status,
            digest=None,
            routing={},
            seq=0,
            data=data,
            at=self._host.clock.now_ms(),
        )
