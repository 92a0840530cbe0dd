"""Outbound events: when the turn of an inbound event settles, an outbound one is added to the ledger, once.

The inbound event is stored in one unit with its message, so there is never one without the other, and another attempt
at it with what begins that. The outbound one comes after the unit that settles the turn; whatever a dead process left
open is found and closed by ``recover``. A person's prompt is an event like any other, where a host wants it so.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from clew.failpoints import failpoint
from clew.runtime.host import Host
from clew.store.unit import AddEvent, EventIsNew, Unit, Write
from clew.transcript.message import MessageRow
from clew.transcript.part import file_name_of, media_type_of
from clew.transcript.turn import Turn
from clew.transcript.turn_state import OPEN
from clew.triggers.ledger import PERSON, LedgerEvent, digest_event

__all__ = ["Outbound"]

log = logging.getLogger("clew.ledger")


class Outbound:
    """Closes inbound events. It remembers which sessions have open ones, so that the others cost nothing."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._open: set[str] = set()

    def expect(self, session_id: str) -> None:
        """An event of this session is about to be stored."""
        self._open.add(session_id)

    def plan_prompt(self, row: MessageRow) -> Unit:
        """What the ledger notes of a person's prompt, for the unit that stores it; nothing unless switched on."""
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
        """What the ledger notes when a turn of an event's message is begun once more, for the unit that begins it.

        As long as nothing went out for it, it is the same attempt that goes on.
        """
        store = self._host.store
        event = await store.find_event_of_message(turn.session_id, message_id)
        told = await store.find_event("out", event.source, event.source_id) if event is not None else None
        if event is None or told is None or told.attempt < event.attempt:
            return ()
        self.expect(turn.session_id)
        again = msgspec.structs.replace(
            event,
            id=self._host.mint.event(),
            attempt=event.attempt + 1,
            turn_id=turn.id,
            data={"why": why},
            at=self._host.clock.now_ms(),
        )
        return (AddEvent(again),)

    async def plan_deletion(self, session_id: str) -> tuple[Write, ...]:
        """What goes out for events whose session is deleted before they were answered, for the unit that deletes it."""
        left = await self._host.store.open_events(session_id)
        return tuple(AddEvent(self._outbound(event, "deleted", None, {})) for event in left)

    async def settle(self, session_id: str) -> None:
        """Add what went out for events that are over. Never fails: a later opening makes it good."""
        # An event that another replica took in may be answered here.
        if session_id in self._open or self._host.lease.shared:
            try:
                left = [
                    event for event in await self._host.store.open_events(session_id) if not await self._close(event)
                ]
            except Exception:
                log.exception("what went out of %s is not in the ledger yet", session_id)
                return
            if not left:
                self._open.discard(session_id)

    async def recover(self) -> tuple[str, ...]:
        """Close what a process that died left open; the sessions in which something is still to come."""
        left = [event for event in await self._host.store.open_events() if not await self._close(event)]
        self._open.update(event.session_id for event in left)
        return tuple(dict.fromkeys(event.session_id for event in left))

    async def _close(self, event: LedgerEvent) -> bool:
        """Whether the event is over; if so, what went out for it is in the ledger."""
        answer = await self._answer(event)
        if answer is None:
            return False
        failpoint("ledger.before_outbound")
        guard = EventIsNew("out", event.source, event.source_id, event.attempt)
        # A session deleted meanwhile has said so, and one closed twice is closed: both are well.
        await self._host.store.commit(Unit(event.session_id, (AddEvent(answer),), (guard,), sync="power"))
        return True

    async def _answer(self, event: LedgerEvent) -> LedgerEvent | None:
        """The outbound event, once the inbound one's turn has settled or its message was taken out of the queue."""
        store = self._host.store
        if event.turn_id is None:
            row = await store.find_message(event.session_id, event.message_id or "")
            if row is None or not row.is_cancelled:
                return None
            return self._outbound(event, "cancelled", None, {"why": row.cancelled_why})
        line = await store.load_line(event.session_id, through=event.turn_id, turns=1, keep_damaged=True)
        if not line.turns or line.turns[-1].turn.status in (*OPEN, "unanswered"):
            return None
        turn = line.turns[-1].turn
        said = [row for row in line.turns[-1].messages if row.role == "assistant"]
        texts = said[-1].texts if said else []
        data: dict[str, Any] = {"text": texts[-1] if texts else ""}
        data |= {name: turn.data[name] for name in ("error", "stopped") if turn.data.get(name)}
        return self._outbound(event, turn.status, said[-1].id if said else None, data)

    def _outbound(self, event: LedgerEvent, status: str, message_id: str | None, data: dict[str, Any]) -> LedgerEvent:
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
