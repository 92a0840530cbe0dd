"""The queue: durable prompts that arrived while a session was busy, run one per turn. Interrupting ones run first,
then the others, each group in its order.

One conditional update in the store decides whether a message is cancelled or started; the loser gets an error. Messages
are not run here: the session is acquired, and the caller starts the run.

An abort, a failure or a restart pauses a queue until the user sends something; a user's own pause lasts until they
resume it. The reason is stored only in the session's metadata. A turn that waits for a human also delays the queue, and
shows that itself.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from clew.errors import ClewError, Conflict, ReplicaAway, SessionBusy, StoreError
from clew.session.acquire.acquire import plan_acquire
from clew.session.acquire.live_sessions import LiveSessions
from clew.session.acquire.loaded_session import LoadedSession
from clew.session.acquire.prepare import load_prompt_start, prepare_session
from clew.session.acquire.waiting import status_in, with_pause
from clew.session.hooks import HookRefused
from clew.session.host import Host
from clew.session.prompt.admission import PromptContent, admit
from clew.session.prompt.event_replies import EventReplies
from clew.session.prompt.submission import Outcomes, Submission
from clew.session.prompt.turn_config import resolve_for
from clew.session.snapshots import Snapshots
from clew.session.turn.run import AcquiredSession
from clew.store import unit as u
from clew.store.base import QueuedMessage, get_session
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.metadata import PAUSED_KEY, PausedBy, cancelled
from clew.transcript.part import text_of, text_part
from clew.transcript.session import Session
from clew.transcript.turn import Turn

__all__ = ["Only", "Queue", "plan_fire", "plan_resume", "plan_wait"]

log = logging.getLogger("clew.queue")
Only = Literal["triggered", "ahead"]
"""The messages to start from a paused queue: those sent by triggers, or those put ahead of all others."""
_PRIORITY: Final[dict[PausedBy, int]] = {"restart": 0, "error": 0, "abort": 1, "person": 2}
"""Priority of pauses: an abort also holds back messages of triggers, and a user's own pause outlasts all others."""


class Queue:
    """The queues of all sessions of one engine."""

    def __init__(
        self,
        host: Host,
        sessions: LiveSessions,
        outcomes: Outcomes,
        event_replies: EventReplies,
        snapshots: Snapshots,
    ) -> None:
        self._host = host
        self._sessions = sessions
        self._outcomes = outcomes
        self._event_replies = event_replies
        self._snapshots = snapshots

    async def find_pause(self, session_id: str) -> PausedBy | None:
        """Return why the user's queued messages are paused; None if they are not."""
        session = await self._host.store.find_session(session_id)
        return None if session is None else session.paused_by

    async def pause(self, session_id: str, why: PausedBy) -> None:
        """Pause the queue durably until the user sends something. An empty queue is not paused."""
        paused = await self.find_pause(session_id)
        if paused is not None and _PRIORITY[why] <= _PRIORITY[paused]:
            return
        while queue := await self._host.store.load_queue(session_id):
            # A message started concurrently must not leave an empty queue paused.
            guards = (u.StillQueued(queue[-1].message.id),)
            unit = u.Unit(session_id, (u.PatchSession(metadata={PAUSED_KEY: why}),), guards, sync="power")
            if not isinstance(await self._host.store.commit(unit), u.Refused):
                await self.show(session_id)
                return

    async def resume(self, session_id: str) -> None:
        """End the pause. A caller that acquires the session adds :func:`plan_resume` to its unit instead."""
        if await self.find_pause(session_id) is not None:
            await self._sessions.commit(u.Unit(session_id, (_END_PAUSE,), sync="power"))
            await self.show(session_id)

    async def show(self, session_id: str) -> None:
        """Publish the session's status with the state of the queue."""
        store = self._host.store
        session = await store.find_session(session_id)
        if session is not None:
            status = await status_in(self._host, self._sessions, session_id)
            self._sessions.show(session_id, await with_pause(store, session, status))
        self._sessions.publish("queue_changed", session_id)

    async def add(
        self, session: Session, row: MessageRow, content: PromptContent, *, interrupt: bool, also: u.Unit
    ) -> Submission:
        """Store a queued message in one unit with ``also``. A user's message ends a pause."""
        resumed = () if row.is_triggered else plan_resume(session)
        writes = (*plan_wait(row, content, interrupt=interrupt), *resumed, *also.writes)
        await self._sessions.commit(u.Unit(row.session_id, writes, also.guards, sync="power"))
        await self.show(row.session_id)
        return Submission(row.id, self._outcomes.expect(row.session_id, row.id), queued=True)

    async def take_next(
        self, session_id: str, *, only: Only | None = None, resume: bool = False
    ) -> AcquiredSession | None:
        """Acquire the session for the next queued message. The caller holds the session's lock.

        ``only`` limits the messages while the queue is paused. ``resume`` is set when the user resumed the queue.
        """
        left = list(queue := await self._host.store.load_queue(session_id))
        while left:
            queued = left.pop(0)
            if (only == "triggered" and not queued.message.is_triggered) or (only == "ahead" and not queued.interrupt):
                continue
            if queued.message.damage is not None:
                # It waits until a user has checked it: what it asks for is uncertain.
                log.warning("queued message %s is damaged and waits: %s", queued.message.id, queued.message.damage)
                continue
            try:
                acquired, reason = await self.take(session_id, queued.message, resume=resume or len(queue) == 1)
            except StoreError:
                raise
            except (SessionBusy, ReplicaAway):
                # Another replica was faster, or will be: the message waits for that one as well.
                return None
            except ClewError as error:
                # A message that can no longer run, for example for lack of its model, must not block those behind it.
                log.warning("queued message %s could not be started: %s", queued.message.id, error)
                await self._cancel(session_id, queued.message.id, str(error))
                continue
            if reason == "queue_changed":
                # A message was edited meanwhile: start the new version.
                left = list(queue := await self._host.store.load_queue(session_id))
            # After a concurrent cancellation the next one is tried; any other refusal means another replica has them.
            elif reason != "not_queued":
                return acquired
        return None

    async def take(
        self, session_id: str, queued: MessageRow, *, resume: bool
    ) -> tuple[AcquiredSession | None, str | None]:
        """Acquire the session for one message, or return why that was refused. ``resume`` also ends a pause."""
        host = self._host
        start = await load_prompt_start(host, self._sessions, session_id)
        config = await resolve_for(host, start.session, queued, start.last_environment)
        row = await host.hooks.change("message.user", queued, start.session)
        # Without a model of its own, it uses the session's model at the time its turn starts.
        row = msgspec.structs.replace(row, metadata={**row.metadata, "model": msgspec.to_builtins(config.model)})
        if len(row.parts) < len(queued.parts):
            raise HookRefused("a message.user hook may not remove parts from a queued message")
        loaded = await prepare_session(host, session_id, start.loaded)
        now = max(host.clock.now_ms(), start.newest_at + 1)
        turn = Turn(id=host.mint.turn(), session_id=session_id, parent_turn_id=loaded.head_turn_id, created_at=now)
        # Also ends a pause that was set after the session was read.
        resumed = (_END_PAUSE,) if resume else ()
        row, saving = self._snapshots.plan(start.session, row, turn.id)
        runner = host.lease.replica_id
        outcome = await host.store.commit(plan_fire(loaded, queued, row, turn, *resumed, *saving, runner=runner))
        if isinstance(outcome, u.Refused):
            return None, outcome.reason
        self._snapshots.start(saving)
        self._sessions.publish("queue_changed", session_id)
        return AcquiredSession(config, turn, loaded.next_epoch, row.id), None

    async def cancel(self, session_id: str, message_id: str) -> None:
        """Remove a message from the queue. Raise ``Conflict`` if it was started meanwhile."""
        if not await self._cancel(session_id, message_id, "cancelled"):
            raise _not_queued(message_id)

    async def edit(self, session_id: str, message_id: str, text: str) -> None:
        """Replace the text of a queued message; its files stay. It keeps its position and is checked as if sent now.
        The caller holds the session's lock."""
        host = self._host
        row = original = (await self._get(session_id, message_id)).message
        if row.is_triggered:
            raise Conflict("this message was sent by a trigger; cancel it and send your own", message_id=message_id)
        text_indexes = [n for n, part in enumerate(row.parts) if text_of(part.data) is not None] or [len(row.parts)]
        new_parts = dict(enumerate(part.data for part in row.parts)) | {n: text_part("") for n in text_indexes}
        new_parts[text_indexes[0]] = text_part(text)
        model, agent, unattended = (row.metadata.get(key) for key in ("model", "agent", "unattended"))
        session = await get_session(host.store, session_id)
        _, content = await admit(
            host, session, list(new_parts.values()), model=model, agent=agent, attended=not unattended
        )
        now = host.clock.now_ms()
        new = [PartRow(host.mint.part(), n, data, now, now) for n, data in enumerate(content.parts)]
        row = msgspec.structs.replace(row, parts=tuple(new))
        writes = (u.PutParts(row.id, row.parts), u.SealMessage(row.id, row.seal), u.PatchMessage(row.id, now))
        if not await self._change(session_id, writes, (u.StillQueued(message_id, seal=original.seal),)):
            raise _conflict(session_id)

    async def move(self, session_id: str, message_id: str, before: str | None) -> None:
        """Move a message before another one, or to the end. The caller holds the session's lock."""
        await self._get(session_id, message_id)
        queue = await self._host.store.load_queue(session_id)
        order = [entry.message.id for entry in queue if entry.message.id != message_id]
        if before is not None and before != message_id and before not in order:
            raise _not_queued(before)
        if before != message_id:
            order.insert(len(order) if before is None else order.index(before), message_id)
            if not await self._change(session_id, plan_order(queue, order), _positions(queue)):
                raise _conflict(session_id)

    async def put_ahead(self, session: Session, message_id: str) -> QueuedMessage:
        """Move a message ahead of all others, like an interrupting one; as a user's action it may end a pause. The
        caller holds the session's lock."""
        found = await self._get(session.id, message_id)
        # The order of the others does not change, including those moved ahead earlier.
        ahead = [entry.queued_at for entry in await self._host.store.load_queue(session.id) if entry.interrupt]
        position = u.Enqueue(message_id, min([found.queued_at, *(at - 1 for at in ahead)]), interrupt=True)
        writes = (u.Dequeue(message_id), position, *plan_resume(session))
        if not await self._change(session.id, writes, (u.StillQueued(message_id),)):
            raise _not_queued(message_id)
        return found

    async def _get(self, session_id: str, message_id: str) -> QueuedMessage:
        """Return a queued message that may be changed."""
        for entry in await self._host.store.load_queue(session_id):
            if entry.message.id == message_id and entry.message.damage is not None:
                raise Conflict(f"message {message_id} is damaged; cancel it and send it again", message_id=message_id)
            if entry.message.id == message_id:
                return entry
        raise _not_queued(message_id)

    async def _change(self, session_id: str, writes: Sequence[u.Write], waiting: Sequence[u.StillQueued]) -> bool:
        """Commit one unit; return False if a message in ``waiting`` has changed or left the queue since it was read."""
        unit = u.Unit(session_id, tuple(writes), tuple(waiting), sync="power")
        if isinstance(await self._host.store.commit(unit), u.Refused):
            return False
        await self.show(session_id)
        return True

    async def _cancel(self, session_id: str, message_id: str, why: str) -> bool:
        now = self._host.clock.now_ms()
        queue = await self._host.store.load_queue(session_id)
        cancelled_patch = u.PatchMessage(message_id, now, cancelled(now, why))
        # An empty queue is not paused.
        resumed = (_END_PAUSE,) if [entry.message.id for entry in queue] == [message_id] else ()
        writes = (u.Dequeue(message_id), cancelled_patch, *resumed)
        unit = u.Unit(session_id, writes, (u.StillQueued(message_id),), sync="power")
        if isinstance(await self._host.store.commit(unit), u.Refused):
            return False
        self._outcomes.cancel(message_id)
        if not resumed and not await self._host.store.load_queue(session_id):
            # The other messages were removed concurrently, by a caller that still saw this one.
            await self.resume(session_id)
        await self.show(session_id)
        await self._event_replies.settle(session_id)
        return True


_END_PAUSE: Final = u.PatchSession(drop=(PAUSED_KEY,))


def _not_queued(message_id: str) -> Conflict:
    return Conflict(f"message {message_id} is no longer in the queue", message_id=message_id)


def _conflict(session_id: str) -> Conflict:
    return Conflict("the queue has changed; reload it and try again", session_id=session_id)


def _positions(queue: Sequence[QueuedMessage]) -> tuple[u.StillQueued, ...]:
    """Return guards for every position: reordering from an outdated read would undo concurrent changes."""
    return tuple(u.StillQueued(entry.message.id, (entry.interrupt, entry.queued_at)) for entry in queue)


def plan_order(queue: Sequence[QueuedMessage], order: Sequence[str]) -> tuple[u.Write, ...]:
    """Return the writes that reorder the queue, reusing its timestamps in order. All messages are written, so of two
    concurrent orders one is refused."""
    writes: list[u.Write] = []
    later: tuple[bool, int] | None = None
    for n in reversed(range(len(order))):
        ahead, at = queue[n].interrupt, queue[n].queued_at
        if later is not None and later[0] == ahead:
            # Messages of the same millisecond were ordered by id. Decreasing, so that new ones stay behind all of them.
            at = min(at, later[1] - 1)
        later = ahead, at
        writes += (u.Dequeue(order[n]), u.Enqueue(order[n], at, ahead))
    return tuple(writes)


def plan_wait(row: MessageRow, content: PromptContent, *, interrupt: bool = False) -> tuple[u.Write, ...]:
    """Return the writes of a message that is queued."""
    return (
        u.InsertMessage(row),
        u.SealMessage(row.id, row.seal),
        u.Enqueue(row.id, row.created_at, interrupt),
        *content.blobs,
    )


def plan_resume(session: Session, *, speaks: bool = True) -> tuple[u.Write, ...]:
    """Return the write that ends a pause, if there is one to end.

    Resuming a turn does not end every pause: after an abort the queue stays paused until a prompt or a request to
    resume the queue. A user's own pause ends only with the latter.
    """
    unaffected: tuple[PausedBy | None, ...] = (None, "person") if speaks else (None, "person", "abort")
    return () if session.paused_by in unaffected else (_END_PAUSE,)


def plan_fire(
    loaded: LoadedSession, queued: MessageRow, row: MessageRow, turn: Turn, *also: u.Write, runner: str | None = None
) -> u.Unit:
    """Return the unit that acquires the session for a queued message; ``row`` is the message after hooks.

    Refused when the message was cancelled meanwhile, so it is never both in the queue and in a turn, and when it was
    edited, since hooks have not seen the new text.
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
    return plan_acquire(loaded, now, writes, guards=(u.StillQueued(row.id, seal=queued.seal),), runner=runner)
