"""The queue: prompts that came while a session was busy, durable, fired one per turn: those that
interrupt first, then the others, each in their order.

Whether a message is cancelled or fired is decided by one conditional update in the store; whoever loses is told. What
is fired here is not run here: the session is taken, and who called starts the run.
"""

from __future__ import annotations

import logging

import msgspec

from clew.errors import ClewError, Conflict, StoreError
from clew.runtime.admission import PromptContent
from clew.runtime.hooks import HookRefused
from clew.runtime.host import Host
from clew.runtime.live_sessions import LiveSessions
from clew.runtime.outbound import Outbound
from clew.runtime.ready import make_ready
from clew.runtime.run import TakenSession
from clew.runtime.setting import resolve_for
from clew.runtime.standing import Standing
from clew.runtime.submission import Outcomes, Submission
from clew.runtime.take import plan_take
from clew.store import unit as u
from clew.store.base import QueuedMessage, get_session
from clew.transcript.message import MessageRow
from clew.transcript.turn import Turn

__all__ = ["Queue", "plan_fire"]

log = logging.getLogger("clew.queue")


class Queue:
    """The queues of all sessions of one engine."""

    def __init__(self, host: Host, sessions: LiveSessions, outcomes: Outcomes, outbound: Outbound) -> None:
        self._host = host
        self._sessions = sessions
        self._outcomes = outcomes
        self._outbound = outbound
        # Sessions of which a person has spoken since the store was opened or a turn failed; all others are paused.
        self._unpaused: set[str] = set()

    def is_paused(self, session_id: str) -> bool:
        """Whether what people queued waits for a person; it does after a restart and after a failure."""
        return session_id not in self._unpaused

    def unpause(self, session_id: str) -> None:
        """A person has spoken: what waits behind goes on when this has ended well."""
        self._unpaused.add(session_id)

    def pause(self, session_id: str) -> None:
        self._unpaused.discard(session_id)

    async def add(self, row: MessageRow, content: PromptContent, *, interrupt: bool, also: u.Unit) -> Submission:
        """Store a message that waits, in one unit with what belongs to it."""
        writes: tuple[u.Write, ...] = (
            u.InsertMessage(row),
            u.SealMessage(row.id, row.seal),
            u.Enqueue(row.id, row.created_at, interrupt),
            *content.blobs,
            *also.writes,
        )
        await self._sessions.commit(u.Unit(row.session_id, writes, also.guards, sync="power"))
        self._sessions.publish("queue_changed", row.session_id)
        return Submission(row.id, self._outcomes.expect(row.session_id, row.id), queued=True)

    async def take_next(self, session_id: str, *, triggered: bool = False) -> TakenSession | None:
        """Take the session for the next queued message; one per turn. Called under the session's lock.

        With ``triggered`` only what no human sent: where a queue is paused until somebody says go on, nobody will.
        """
        for queued in await self._host.store.load_queue(session_id):
            if triggered and not queued.message.is_triggered:
                continue
            if queued.message.damage is not None:
                # It waits until somebody has looked at it: what it would ask for is not known for sure.
                log.warning("queued message %s is damaged and waits: %s", queued.message.id, queued.message.damage)
                continue
            try:
                taken, reason = await self._take(session_id, queued.message)
            except StoreError:
                raise
            except ClewError as error:
                # A message that can no longer run (its model is gone) must not block those behind it.
                log.warning("queued message %s could not be fired: %s", queued.message.id, error)
                await self._cancel(session_id, queued.message.id, str(error))
                continue
            # One that was cancelled at this moment makes way for the next; anything else means that others have it.
            if reason != "not_queued":
                return taken
        return None

    async def _take(self, session_id: str, queued: MessageRow) -> tuple[TakenSession | None, str | None]:
        """Take the session for one message, or why that was refused."""
        host = self._host
        setting = await resolve_for(host, await get_session(host.store, session_id), queued)
        row = await host.hooks.change("message.user", queued)
        # One that named no model is answered by the newest one that was picked before its turn came.
        row = msgspec.structs.replace(row, metadata={**row.metadata, "model": msgspec.to_builtins(setting.model)})
        if len(row.parts) < len(queued.parts):
            raise HookRefused("a message.user hook may not take parts from a queued message")
        standing = await make_ready(host, session_id)
        now = max(host.clock.now_ms(), await host.store.newest_message_at(session_id) + 1)
        turn = Turn(id=host.mint.turn(), session_id=session_id, parent_turn_id=standing.head_turn_id, created_at=now)
        outcome = await host.store.commit(plan_fire(standing, queued, row, turn))
        if isinstance(outcome, u.Refused):
            return None, outcome.reason
        self._sessions.publish("queue_changed", session_id)
        return TakenSession(setting, turn, standing.next_epoch, row.id), None

    async def load(self, session_id: str) -> tuple[QueuedMessage, ...]:
        await get_session(self._host.store, session_id)
        return await self._host.store.load_queue(session_id)

    async def cancel(self, session_id: str, message_id: str) -> None:
        """Take a message out of the queue. One that was fired meanwhile is a conflict."""
        if not await self._cancel(session_id, message_id, "cancelled"):
            raise Conflict(f"message {message_id} is not in the queue any more", message_id=message_id)

    async def _cancel(self, session_id: str, message_id: str, why: str) -> bool:
        now = self._host.clock.now_ms()
        writes = (u.Dequeue(message_id), u.PatchMessage(message_id, now, {"cancelled_at": now, "cancelled_why": why}))
        unit = u.Unit(session_id, writes, (u.StillQueued(message_id),), sync="power")
        if isinstance(await self._host.store.commit(unit), u.Refused):
            return False
        self._outcomes.cancel(message_id)
        self._sessions.publish("queue_changed", session_id)
        await self._outbound.settle(session_id)
        return True


def plan_fire(standing: Standing, queued: MessageRow, row: MessageRow, turn: Turn) -> u.Unit:
    """The unit that takes the session for a queued message; ``row`` is the message as hooks have left it.

    Refused when it was cancelled meanwhile: it is in the queue, or in a turn, and never in both.
    """
    now = turn.created_at
    changed: tuple[u.Write, ...] = ()
    if row.parts != queued.parts:
        changed = (u.PutParts(row.id, row.parts), u.SealMessage(row.id, row.seal))
    metadata = {key: value for key, value in row.metadata.items() if queued.metadata.get(key) != value}
    writes: tuple[u.Write, ...] = (
        u.Dequeue(row.id),
        u.PatchMessage(row.id, now, metadata, created_at=now),
        *changed,
        u.OpenTurn(turn),
        u.LinkMessage(turn.id, row.id),
        u.PatchSession(updated_at=now),
    )
    return plan_take(standing, now, writes, guards=(u.StillQueued(row.id),))
