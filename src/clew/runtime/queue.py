"""The queue: prompts that came while a session was busy, durable, fired one per turn in their order.

Whether a message is cancelled or fired is decided by one conditional update in the store; whoever loses is told.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from clew.errors import ClewError, Conflict, StoreError
from clew.runtime.admission import Prompted
from clew.runtime.hooks import HookRefused
from clew.runtime.host import Host
from clew.runtime.setting import resolve
from clew.store.base import QueuedMessage, get_session
from clew.store.unit import (
    Dequeue,
    Enqueue,
    EpochIs,
    Guard,
    InsertMessage,
    LinkMessage,
    NoOpenTurn,
    OpenTurn,
    PatchMessage,
    PatchSession,
    PutParts,
    Refused,
    SealMessage,
    SetEpoch,
    StillQueued,
    Unit,
    Write,
    joined,
)
from clew.transcript.message import MessageRow
from clew.transcript.seal import seal_of
from clew.transcript.turn import Turn

if TYPE_CHECKING:
    from clew.runtime.desk import Desk, Noting, Submission

__all__ = ["Queue"]

log = logging.getLogger("clew.queue")


class Queue:
    """The queues of all sessions of one engine. ``fire`` is called under the session's lock."""

    def __init__(self, host: Host, desk: Desk) -> None:
        self._host = host
        self._desk = desk

    async def add(
        self, row: MessageRow, prompted: Prompted, *, interrupt: bool, noting: Noting | None = None
    ) -> Submission:
        seal = SealMessage(row.id, seal_of(part.data for part in row.parts))
        writes: tuple[Write, ...] = (
            InsertMessage(row),
            seal,
            Enqueue(row.id, row.created_at, interrupt),
            *prompted.blobs,
        )
        unit = Unit(row.session_id, writes, sync="power")
        await self._desk.commit(joined(unit, noting(row)) if noting else unit)
        self._desk.publish("queue_changed", row.session_id)
        return self._desk.submission(row.id, queued=True)

    async def fire(self, session_id: str, *, triggered: bool = False) -> None:
        """Fire the next queued message; one per turn. Held under the session's lock.

        With ``triggered`` only what no human sent: where a queue stands still until somebody says go on, nobody will.
        """
        queue = await self._host.store.load_queue(session_id)
        for queued in queue:
            if triggered and "trigger" not in queued.message.metadata:
                continue
            if queued.message.damage is not None:
                # It waits until somebody has looked at it: what it would ask for is not known for sure.
                log.warning("queued message %s is damaged and waits: %s", queued.message.id, queued.message.damage)
                continue
            try:
                if await self._fire_one(session_id, queued):
                    return
            except StoreError:
                raise
            except ClewError as error:
                # A message that can no longer run (its model is gone) must not block those behind it.
                log.warning("queued message %s could not be fired: %s", queued.message.id, error)
                await self._cancel(session_id, queued.message.id, str(error))

    async def _fire_one(self, session_id: str, queued: QueuedMessage) -> bool:
        host = self._host
        session = await get_session(host.store, session_id)
        row = queued.message
        setting = await resolve(
            host,
            session,
            model=row.asked_model,
            agent=row.asked_agent,
            attended=row.is_attended,
        )
        before, row = row, await host.hooks.change("message.user", row)
        changed: list[Write] = []
        if row.parts != before.parts:
            if len(row.parts) < len(before.parts):
                raise HookRefused("a message.user hook may not take parts from a queued message")
            changed = [PutParts(row.id, row.parts), SealMessage(row.id, seal_of(part.data for part in row.parts))]
        state = await host.store.load_state(session_id)
        now = max(host.clock.now_ms(), await host.store.newest_message_at(session_id) + 1)
        turn_id = host.mint.turn()
        turn = Turn(id=turn_id, session_id=session_id, parent_turn_id=state.head_turn_id, created_at=now)
        writes: tuple[Write, ...] = (
            SetEpoch(state.epoch + 1),
            Dequeue(row.id),
            PatchMessage(
                row.id, now, {k: v for k, v in row.metadata.items() if before.metadata.get(k) != v}, created_at=now
            ),
            *changed,
            OpenTurn(turn),
            LinkMessage(turn_id, row.id),
            PatchSession(updated_at=now, model=setting.model),
        )
        guards: tuple[Guard, ...] = (EpochIs(state.epoch), NoOpenTurn(), StillQueued(row.id))
        outcome = await host.store.commit(Unit(session_id, writes, guards, sync="power"))
        if isinstance(outcome, Refused):
            return outcome.reason != "not_queued"
        self._desk.publish("queue_changed", session_id)
        self._desk.start(setting, turn_id, state.epoch + 1, row.id)
        return True

    async def load(self, session_id: str) -> tuple[QueuedMessage, ...]:
        await get_session(self._host.store, session_id)
        return await self._host.store.load_queue(session_id)

    async def cancel(self, session_id: str, message_id: str) -> None:
        """Take a message out of the queue. One that was fired meanwhile is a conflict."""
        if not await self._cancel(session_id, message_id, "cancelled"):
            raise Conflict(f"message {message_id} is not in the queue any more", message_id=message_id)

    async def _cancel(self, session_id: str, message_id: str, why: str) -> bool:
        now = self._host.clock.now_ms()
        writes = (Dequeue(message_id), PatchMessage(message_id, now, {"cancelled_at": now, "cancelled_why": why}))
        unit = Unit(session_id, writes, (StillQueued(message_id),), sync="power")
        outcome = await self._host.store.commit(unit)
        if isinstance(outcome, Refused):
            return False
        future = self._desk.take_outcome(message_id)
        if future is not None and not future.done():
            future.cancel()
        self._desk.publish("queue_changed", session_id)
        await self._desk.ledger.settle(session_id)
        return True
