"""Outbound events: when the turn of an inbound event settles, an outbound one is added to the ledger, once.

The inbound event is stored in one unit with its message, so there is never one without the other. The outbound one
comes after the unit that settles the turn; whatever a dead process left open is found and closed by ``recover``.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from clew.failpoints import failpoint
from clew.runtime.host import Host
from clew.store.unit import AddEvent, EventIsNew, Unit
from clew.transcript.turn_state import OPEN
from clew.triggers.ledger import LedgerEvent

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

    async def settle(self, session_id: str) -> None:
        """Add what went out for events that are over. Never fails: a later opening makes it good."""
        if session_id in self._open:
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
        guard = EventIsNew("out", event.source, event.source_id)
        # A session deleted meanwhile took its events along, and one closed twice is closed: both are well.
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
        if not line.turns or line.turns[-1].turn.status in OPEN:
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
            seq=0,
            data=data,
            at=self._host.clock.now_ms(),
        )
