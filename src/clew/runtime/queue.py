"""The queue: prompts that came while a session was busy, durable, fired one per turn: those that
interrupt first, then the others, each in their order.

Whether a message is cancelled or fired is decided by one conditional update in the store; whoever loses is told. What
is fired here is not run here: the session is taken, and who called starts the run.

A queue is paused by an abort, a failure or a restart until a person speaks, or by a person until one says go on. Why
stands in the session's metadata, and nowhere else; a turn that waits for a human holds it up too, and says so itself.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from clew.errors import ClewError, Conflict, ReplicaAway, SessionBusy, StoreError
from clew.live.base import Status
from clew.runtime.admission import PromptContent, admit
from clew.runtime.hooks import HookRefused
from clew.runtime.host import Host
from clew.runtime.live_sessions import LiveSessions
from clew.runtime.outbound import Outbound
from clew.runtime.ready import load_outset, make_ready
from clew.runtime.setting import resolve_for
from clew.runtime.standing import Standing
from clew.runtime.submission import Outcomes, Submission
from clew.runtime.take import plan_take
from clew.runtime.taken_session import TakenSession
from clew.runtime.waiting import present_status
from clew.store import unit as u
from clew.store.base import QueuedMessage, Store, get_session
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.metadata import PAUSED_KEY, PausedBy, cancelled
from clew.transcript.part import text_of, text_part
from clew.transcript.session import Session
from clew.transcript.turn import Turn

__all__ = ["Only", "Queue", "plan_fire", "plan_resume", "plan_wait", "with_pause"]

log = logging.getLogger("clew.queue")
Only = Literal["triggered", "ahead"]
"""Of a queue that is paused: what no human sent, or what somebody wants ahead of all else."""
_WEIGHT: Final[dict[PausedBy, int]] = {"restart": 0, "error": 0, "abort": 1, "person": 2}
"""Which pause stays when there are two: an abort holds back what triggers sent, too, and a person's own word lasts."""


class Queue:
    """The queues of all sessions of one engine."""

    def __init__(self, host: Host, sessions: LiveSessions, outcomes: Outcomes, outbound: Outbound) -> None:
        self._host = host
        self._sessions = sessions
        self._outcomes = outcomes
        self._outbound = outbound

    async def find_pause(self, session_id: str) -> PausedBy | None:
        """Why what people queued waits for a person; None when it does not."""
        session = await self._host.store.find_session(session_id)
        return None if session is None else session.paused_by

    async def pause(self, session_id: str, why: PausedBy) -> None:
        """Let what waits stay until a person speaks, durably. A queue that is empty has nothing to pause."""
        paused = await self.find_pause(session_id)
        if paused is not None and _WEIGHT[why] <= _WEIGHT[paused]:
            return
        while queue := await self._host.store.load_queue(session_id):
            # What is fired at this moment is not paused any more: a queue that is empty then would stay so for ever.
            guards = (u.StillQueued(queue[-1].message.id),)
            unit = u.Unit(session_id, (u.PatchSession(metadata={PAUSED_KEY: why}),), guards, sync="power")
            if not isinstance(await self._host.store.commit(unit), u.Refused):
                await self.show(session_id)
                return

    async def resume(self, session_id: str) -> None:
        """End the pause. For whoever fires what waits; who takes the session joins :func:`plan_resume` to its unit."""
        if await self.find_pause(session_id) is not None:
            await self._sessions.commit(u.Unit(session_id, (_RESUMED,), sync="power"))
            await self.show(session_id)

    async def show(self, session_id: str) -> None:
        """Let everybody know what waits, and whether it is paused."""
        store = self._host.store
        session = await store.find_session(session_id)
        if session is not None:
            status = await present_status(self._host, self._sessions, session_id)
            self._sessions.show(session_id, await with_pause(store, session, status))
        self._sessions.publish("queue_changed", session_id)

    async def add(
        self, session: Session, row: MessageRow, content: PromptContent, *, interrupt: bool, also: u.Unit
    ) -> Submission:
        """Store a message that waits, in one unit with what belongs to it. A person's ends a pause."""
        resumed = () if row.is_triggered else plan_resume(session)
        writes = (*plan_wait(row, content, interrupt=interrupt), *resumed, *also.writes)
        await self._sessions.commit(u.Unit(row.session_id, writes, also.guards, sync="power"))
        await self.show(row.session_id)
        return Submission(row.id, self._outcomes.expect(row.session_id, row.id), queued=True)

    async def take_next(
        self, session_id: str, *, only: Only | None = None, resume: bool = False
    ) -> TakenSession | None:
        """Take the session for the next queued message; one per turn. Called under the session's lock.

        ``only`` some of them where the queue is paused. With ``resume`` a person has said go on.
        """
        left = list(queue := await self._host.store.load_queue(session_id))
        while left:
            queued = left.pop(0)
            if (only == "triggered" and not queued.message.is_triggered) or (only == "ahead" and not queued.interrupt):
                continue
            if queued.message.damage is not None:
                # It waits until somebody has looked at it: what it would ask for is not known for sure.
                log.warning("queued message %s is damaged and waits: %s", queued.message.id, queued.message.damage)
                continue
            try:
                taken, reason = await self.take(session_id, queued.message, resume=resume or len(queue) == 1)
            except StoreError:
                raise
            except (SessionBusy, ReplicaAway):
                # Another replica was quicker, or will be: it waits for that one as well.
                return None
            except ClewError as error:
                # A message that can no longer run (its model is gone) must not block those behind it.
                log.warning("queued message %s could not be fired: %s", queued.message.id, error)
                await self._cancel(session_id, queued.message.id, str(error))
                continue
            if reason == "queue_changed":
                # Somebody said it in other words meanwhile: those are fired.
                left = list(queue := await self._host.store.load_queue(session_id))
            # One that was cancelled at this moment makes way for the next; anything else means that others have it.
            elif reason != "not_queued":
                return taken
        return None

    async def take(
        self, session_id: str, queued: MessageRow, *, resume: bool
    ) -> tuple[TakenSession | None, str | None]:
        """Take the session for one message, or why that was refused. ``resume`` ends a pause with it."""
        host = self._host
        outset = await load_outset(host, self._sessions, session_id)
        setting = await resolve_for(host, outset.session, queued, outset.told)
        row = await host.hooks.change("message.user", queued, outset.session)
        # One that named no model is answered by the newest one that was picked before its turn came.
        row = msgspec.structs.replace(row, metadata={**row.metadata, "model": msgspec.to_builtins(setting.model)})
        if len(row.parts) < len(queued.parts):
            raise HookRefused("a message.user hook may not take parts from a queued message")
        standing = await make_ready(host, session_id, outset.standing)
        now = max(host.clock.now_ms(), outset.newest_at + 1)
        turn = Turn(id=host.mint.turn(), session_id=session_id, parent_turn_id=standing.head_turn_id, created_at=now)
        # A pause that came after the session was read ends with it, too.
        resumed = (_RESUMED,) if resume else ()
        outcome = await host.store.commit(
            plan_fire(standing, queued, row, turn, *resumed, runner=host.lease.replica_id)
        )
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
            raise _gone(message_id)

    async def edit(self, session_id: str, message_id: str, text: str) -> None:
        """Say it in other words; its files stay. It keeps its place, and is admitted as if it were sent now.
        Called under the session's lock."""
        host = self._host
        row = said = (await self._get(session_id, message_id)).message
        if row.is_triggered:
            raise Conflict("this is what a trigger sent; cancel it, and send words of your own", message_id=message_id)
        worded = [n for n, part in enumerate(row.parts) if text_of(part.data) is not None] or [len(row.parts)]
        given = dict(enumerate(part.data for part in row.parts)) | {n: text_part("") for n in worded}
        given[worded[0]] = text_part(text)
        model, agent, unattended = (row.metadata.get(key) for key in ("model", "agent", "unattended"))
        session = await get_session(host.store, session_id)
        _, content = await admit(host, session, list(given.values()), model=model, agent=agent, attended=not unattended)
        now = host.clock.now_ms()
        new = [PartRow(host.mint.part(), n, data, now, now) for n, data in enumerate(content.parts)]
        row = msgspec.structs.replace(row, parts=tuple(new))
        writes = (u.PutParts(row.id, row.parts), u.SealMessage(row.id, row.seal), u.PatchMessage(row.id, now))
        if not await self._change(session_id, writes, (u.StillQueued(message_id, seal=said.seal),)):
            raise _changed(session_id)

    async def move(self, session_id: str, message_id: str, before: str | None) -> None:
        """Put a message before another one, or last. Called under the session's lock."""
        await self._get(session_id, message_id)
        queue = await self._host.store.load_queue(session_id)
        order = [one.message.id for one in queue if one.message.id != message_id]
        if before is not None and before != message_id and before not in order:
            raise _gone(before)
        if before != message_id:
            order.insert(len(order) if before is None else order.index(before), message_id)
            if not await self._change(session_id, plan_order(queue, order), _places(queue)):
                raise _changed(session_id)

    async def put_ahead(self, session: Session, message_id: str) -> QueuedMessage:
        """Put a message ahead of all others, as one that interrupts; a person's word, so it may end a pause. Called
        under the session's lock."""
        found = await self._get(session.id, message_id)
        # The others stay as they are, those that were put ahead before it too.
        ahead = [one.queued_at for one in await self._host.store.load_queue(session.id) if one.interrupt]
        place = u.Enqueue(message_id, min([found.queued_at, *(at - 1 for at in ahead)]), interrupt=True)
        writes = (u.Dequeue(message_id), place, *plan_resume(session))
        if not await self._change(session.id, writes, (u.StillQueued(message_id),)):
            raise _gone(message_id)
        return found

    async def _get(self, session_id: str, message_id: str) -> QueuedMessage:
        """A message that waits, and may be touched."""
        for one in await self._host.store.load_queue(session_id):
            if one.message.id == message_id and one.message.damage is not None:
                raise Conflict(f"message {message_id} is damaged; cancel it, and send it anew", message_id=message_id)
            if one.message.id == message_id:
                return one
        raise _gone(message_id)

    async def _change(self, session_id: str, writes: Sequence[u.Write], waiting: Sequence[u.StillQueued]) -> bool:
        """One unit; False when one of those it is about does not wait any more as it was read."""
        unit = u.Unit(session_id, tuple(writes), tuple(waiting), sync="power")
        if isinstance(await self._host.store.commit(unit), u.Refused):
            return False
        await self.show(session_id)
        return True

    async def _cancel(self, session_id: str, message_id: str, why: str) -> bool:
        now = self._host.clock.now_ms()
        queue = await self._host.store.load_queue(session_id)
        noted = u.PatchMessage(message_id, now, cancelled(now, why))
        # A queue that is empty is not paused.
        resumed = (_RESUMED,) if [one.message.id for one in queue] == [message_id] else ()
        writes = (u.Dequeue(message_id), noted, *resumed)
        unit = u.Unit(session_id, writes, (u.StillQueued(message_id),), sync="power")
        if isinstance(await self._host.store.commit(unit), u.Refused):
            return False
        self._outcomes.cancel(message_id)
        if not resumed and not await self._host.store.load_queue(session_id):
            # Others have taken out the rest at this moment, who saw this one wait.
            await self.resume(session_id)
        await self.show(session_id)
        await self._outbound.settle(session_id)
        return True


_RESUMED: Final = u.PatchSession(drop=(PAUSED_KEY,))


def _gone(message_id: str) -> Conflict:
    return Conflict(f"message {message_id} is not in the queue any more", message_id=message_id)


def _changed(session_id: str) -> Conflict:
    return Conflict("the queue has changed meanwhile; look at it again", session_id=session_id)


def _places(queue: Sequence[QueuedMessage]) -> tuple[u.StillQueued, ...]:
    """Each where it was read: who puts them in order from an old look would undo what others did since."""
    return tuple(u.StillQueued(one.message.id, (one.interrupt, one.queued_at)) for one in queue)


def plan_order(queue: Sequence[QueuedMessage], order: Sequence[str]) -> tuple[u.Write, ...]:
    """Put what waits into another order: the first takes the place of the first, and so on. All of them are written,
    so of two who do this at once one is right."""
    writes: list[u.Write] = []
    later: tuple[bool, int] | None = None
    for n in reversed(range(len(order))):
        ahead, at = queue[n].interrupt, queue[n].queued_at
        if later is not None and later[0] == ahead:
            # Two of one millisecond went by their ids. Downwards: what comes now stays behind all of them.
            at = min(at, later[1] - 1)
        later = ahead, at
        writes += (u.Dequeue(order[n]), u.Enqueue(order[n], at, ahead))
    return tuple(writes)


def plan_wait(row: MessageRow, content: PromptContent, *, interrupt: bool = False) -> tuple[u.Write, ...]:
    """The writes of a message that waits for its turn."""
    return (
        u.InsertMessage(row),
        u.SealMessage(row.id, row.seal),
        u.Enqueue(row.id, row.created_at, interrupt),
        *content.blobs,
    )


def plan_resume(session: Session, *, speaks: bool = True) -> tuple[u.Write, ...]:
    """The write of whoever's word ends a pause, where there is one.

    Who only goes on with a turn does not speak: stop means stop, and what an abort holds back stays until a prompt or
    a word about the queue itself. What a person has paused waits for the latter.
    """
    stays: tuple[PausedBy | None, ...] = (None, "person") if speaks else (None, "person", "abort")
    return () if session.paused_by in stays else (_RESUMED,)


async def with_pause(store: Store, session: Session, status: Status) -> Status:
    """A status that says whether the queue is paused, and by what."""
    why: PausedBy | Literal["waiting"] | None = session.paused_by
    if status.waiting and await store.load_queue(session.id):
        why = "waiting"
    return msgspec.structs.replace(status, paused=why is not None, paused_by=why)


def plan_fire(
    standing: Standing, queued: MessageRow, row: MessageRow, turn: Turn, *also: u.Write, runner: str | None = None
) -> u.Unit:
    """The unit that takes the session for a queued message; ``row`` is the message as hooks have left it.

    Refused when it was cancelled meanwhile: it is in the queue, or in a turn, and never in both; and when it was said
    in other words, which hooks have not seen.
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
        *also,
    )
    return plan_take(standing, now, writes, guards=(u.StillQueued(row.id, seal=queued.seal),), runner=runner)
