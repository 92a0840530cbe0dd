"""The runner: starts runs, follows them to their end, and decides what comes next on a session.

It receives acquired sessions. There is at most one run per session, a turn that waits for a human has none, and the end
of a run is published before its stream ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from clew.actor import answer_note, current_actor, without_actor
from clew.errors import ClewError, ReplicaAway, SessionBusy
from clew.live.base import Signal, Status
from clew.session.acquire.acquire import BY_USER, plan_acquire, plan_end, plan_free, plan_open
from clew.session.acquire.live_sessions import LiveSessions
from clew.session.acquire.loaded_session import LoadedSession, load_session_state
from clew.session.acquire.prepare import find_obstacle, prepare_session, settle_startable
from clew.session.acquire.waiting import find_damage, idle_status, load_open_turn, load_waiting, status_in
from clew.session.cancellable import run_until, when_done
from clew.session.cluster.lease import LEASE_LOST
from clew.session.context.compact import Compacted, compact_idle, needs_compaction
from clew.session.context.context import MeasuredLine
from clew.session.host import Host
from clew.session.prompt.admission import PromptContent
from clew.session.prompt.event_replies import EventReplies
from clew.session.prompt.queue import Only, Queue, plan_resume
from clew.session.prompt.submission import Outcomes, Submission, TurnOutcome
from clew.session.prompt.title import entitle, is_unnamed, plan_words
from clew.session.prompt.turn_config import TurnConfig
from clew.session.snapshots import Snapshots
from clew.session.turn.calls import ScheduleTurn
from clew.session.turn.run import AcquiredSession, Run
from clew.session.turn.subagent import Subagents
from clew.session.turn.tool_storage import ToolStorage
from clew.store.base import Moment
from clew.store.unit import (
    OpenTurnIs,
    PatchSession,
    PutParts,
    Refused,
    SealMessage,
    SetTurn,
    StillQueued,
    Unit,
    Write,
)
from clew.transcript.damage import seal_of
from clew.transcript.message import MessageRow
from clew.transcript.session import Session
from clew.transcript.turn import CHUNKS, Turn
from clew.transcript.wait import changed_parts, close_request

__all__ = ["NOTHING", "Runner"]

log = logging.getLogger("clew.run")
_REASONS: Final = {"completed": "finish", "aborted": "abort", "waiting": "waiting", "refused": "refused"}
_TITLE_WAIT_S: Final = 1.0
"""Seconds that a title may still take once the engine closes."""
NOTHING: Final = Unit("", ())
"""The unit stored with a prompt that needs no further writes."""


class _AfterRun(msgspec.Struct, frozen=True):
    """The state of a session after a run: its status, the session unless deleted, and whether messages are queued."""

    status: Status
    session: Session | None
    queued: bool


class Runner:
    """The runner of one engine's sessions."""

    def __init__(
        self,
        host: Host,
        sessions: LiveSessions,
        queue: Queue,
        outcomes: Outcomes,
        event_replies: EventReplies,
        snapshots: Snapshots,
    ) -> None:
        self._host = host
        self._sessions = sessions
        self._queue = queue
        self._outcomes = outcomes
        self._event_replies = event_replies
        self._snapshots = snapshots
        self._subagents = Subagents(host, sessions, self.open, self.stop)
        self.tool_storage = ToolStorage(host.clock)
        # Schedules are implemented above the runtime, which sets this.
        self.schedule_turn: ScheduleTurn
        self._titling: set[str] = set()

    # Starting runs. The caller of each of these holds the session's lock.

    async def open(
        self,
        session: Session,
        config: TurnConfig,
        row: MessageRow,
        content: PromptContent,
        *,
        before: Sequence[Write] = (),
        below: str | None = None,
        also: Unit = NOTHING,
        loaded: LoadedSession | None = None,
        counted: MeasuredLine | None = None,
    ) -> Submission:
        """Store a prompt's message, synced, and start its run. ``also`` joins its unit.

        ``before`` comes first in the unit: a new session, or the head's move to ``below``. The session's state is read
        unless ``loaded`` is given; ``counted`` is its line as of the same moment.
        """
        row = await self._host.hooks.change("message.user", row, session)
        given, loaded = loaded, await prepare_session(self._host, session.id, loaded)
        if loaded is not given or loaded.open is not None or loaded.cut_off or before:
            # The unit changes more of the line than it adds.
            counted = None
        # A user's prompt unarchives a session; a trigger's does not.
        is_wanted = session.archived_at is not None and not row.is_triggered
        unarchived = (PatchSession(archived_at=None),) if is_wanted else ()
        # A user's prompt ends a pause: queued messages start when this turn has ended well.
        resumed = () if row.is_triggered else plan_resume(session)
        turn_id = self._host.mint.turn()
        row, saving = self._snapshots.plan(session, row, turn_id)
        more = (*content.blobs, *unarchived, *resumed, *plan_words(session, row), *saving, *also.writes)
        while True:
            runner = self._host.lease.replica_id
            turn = Turn(id=turn_id, session_id=session.id, parent_turn_id=None, created_at=row.created_at)
            line = counted.begun(turn, row) if counted is not None else None
            run = self._make_run(AcquiredSession(config, turn, loaded.next_epoch, row.id, counted=line))
            # Files can only be sent once they are stored.
            started = await run.plan_start() if not content.blobs else ()
            unit = plan_open(loaded, turn_id, row, *more, *started, before=before, below=below, runner=runner)
            try:
                await self._sessions.commit(msgspec.structs.replace(unit, guards=(*unit.guards, *also.guards)))
                break
            except SessionBusy:
                # Another process may have written to the session since it was read: read it again.
                was, loaded = loaded.state, await prepare_session(self._host, session.id)
                if before or loaded.state == was or loaded.waiting is not None:
                    raise
                counted = None
                newest_at = await self._host.store.newest_message_at(session.id)
                row = msgspec.structs.replace(row, created_at=max(row.created_at, newest_at + 1))
        self._snapshots.start(saving)
        submission = self._start_run(run)
        self._sessions.show_changed(session.id)
        return submission

    def start(self, acquired: AcquiredSession) -> Submission:
        """Start the run of an acquired session."""
        return self._start_run(self._make_run(acquired))

    def _make_run(self, acquired: AcquiredSession) -> Run:
        return Run(
            self._host,
            acquired,
            spawn_child=self._subagents.spawn,
            schedule_turn=self.schedule_turn,
            snapshots=self._snapshots,
        )

    def _start_run(self, run: Run) -> Submission:
        self._sessions.add_run(run)
        run.begin(self.tool_storage.take(run.session_id))
        run.task = asyncio.get_running_loop().create_task(self._drive(run), context=without_actor())
        run.task.add_done_callback(lambda _: self._on_task_done(run))
        outcome = self._outcomes.expect(run.session_id, run.user_message_id)
        return Submission(run.user_message_id, outcome, turn_id=run.turn.id, stream=run.live_stream)

    async def fire(self, session_id: str, *, only: Only | None = None) -> None:
        """Start the next queued message, if there is one."""
        # A closing engine leaves the queue to the next process.
        if not self._sessions.is_open(session_id):
            return
        acquired = await self._queue.take_next(session_id, only=only)
        if acquired is not None:
            self.start(acquired)

    async def fire_idle(self, session_id: str) -> None:
        """Start the next message of an idle session, unless its queue is paused.

        The caller holds the session's lock; if another replica is faster, nothing happens.
        """
        if self._sessions.is_live(session_id):
            return
        loaded = await load_session_state(self._host.store, session_id)
        if find_obstacle(self._sessions, session_id, loaded) is None and loaded.open is None:
            await self._fire_queued(session_id, stopped=True)

    # The end of a run

    async def _drive(self, run: Run) -> None:
        outcome = await run.execute()
        if run.superseded:
            await self._abandon(run)
            run.finish(outcome)
            return
        try:
            async with self._sessions.lock(run.session_id):
                await self._start_next(run, outcome, await self._announce_end(run, outcome))
        except Exception:
            log.exception("could not handle the end of a run on %s", run.session_id)
        if outcome.status != "waiting":
            # Resolved even if publishing failed: a parent waits for its subagent.
            self._outcomes.resolve(run.user_message_id, outcome)
        self._sessions.forget_run(run, unsettled=run.turn.id if run.unsettled else None)
        run.finish(outcome)
        if self._sessions.is_open(run.session_id) and self._host.store.capabilities.holds_sessions:
            # Last: any further access to the session would load it again.
            self._sessions.work(self._host.store.release(run.session_id))

    def _on_task_done(self, run: Run) -> None:
        """Handle the task's end. A closed event loop cancels it without an outcome, so waiting callers are released;
        what is stored of its turn is settled when the store is opened again."""
        if run.give_up():
            self._sessions.forget_run(run, unsettled=run.turn.id)
            self._outcomes.cancel(run.user_message_id)

    async def _abandon(self, run: Run) -> None:
        """End a run that another replica continues or settles, without writing or publishing anything. Its viewers
        reconnect, and callers that wait for its turn get the outcome from the store."""
        async with self._sessions.lock(run.session_id):
            self._sessions.forget_run(run)
            self._host.live.forget(run.session_id)
        run.stream.end()

    async def _announce_end(self, run: Run, outcome: TurnOutcome) -> _AfterRun | None:
        """Publish how the turn ended: to the ledger, status, events, waiting callers, and finally viewers.

        Return the state of the session after it, if that was read.
        """
        session_id, sessions, after = run.session_id, self._sessions, None
        if outcome.status != "waiting":
            self._snapshots.end_turn(run.session, outcome.turn_id)
        sessions.remove_run(run)
        await self._event_replies.settle(session_id)
        if outcome.status in ("failed", "refused"):
            if not run.signal.aborted:
                await self._queue.pause(session_id, "error")
            message = str((outcome.error or {}).get("message", "the run failed"))
            status = Status("error", message=message, problem=outcome.error)
        else:
            after = await self._load_aftermath(session_id)
            status = after.status
        sessions.show(session_id, status)
        reason = _REASONS.get(outcome.status, "error")
        data = {"turn_id": outcome.turn_id, "reason": reason, "error": outcome.error}
        if outcome.status == "refused":
            data["problem"] = outcome.error
        sessions.publish("turn_finished", session_id, **data)
        if outcome.status == "waiting":
            for wait in status.waiting:
                sessions.publish("approval_requested", session_id, **msgspec.to_builtins(wait))
        sessions.show_changed(session_id)
        self._host.hooks.observe("turn_finished", outcome, run.session, outcome.turn_id)
        if outcome.status != "waiting":
            self._outcomes.resolve(run.user_message_id, outcome)
        # Viewers see the end only now: clients that act on it find the settled state.
        run.stream.end()
        return after

    async def _load_aftermath(self, session_id: str) -> _AfterRun:
        async def ask(store: Moment) -> _AfterRun:
            status = await idle_status(store, session_id, ended_well=True)
            session = await store.find_session(session_id)
            return _AfterRun(status, session, bool(await store.load_queue(session_id)))

        return await self._host.store.at_once(session_id, ask)

    async def _start_next(self, run: Run, outcome: TurnOutcome, after: _AfterRun | None) -> None:
        """Start what comes next on the session."""
        session_id, is_open = run.session_id, self._sessions.is_open(run.session_id)
        if self._sessions.is_deleting(session_id):
            return
        if is_open:
            self.tool_storage.release_later(session_id)
        after = after or await self._load_aftermath(session_id)
        session = after.session
        # Work after a turn is also done when the engine closes, which waits for it.
        if session is not None and is_unnamed(session) and (is_open or not run.signal.aborted):
            self._sessions.work(self._add_title(session_id))
        if outcome.status == "completed" and session is not None and await needs_compaction(self._host, session):
            with contextlib.suppress(SessionBusy, ReplicaAway):  # then another replica has it and compacts itself
                await self._begin_compaction(session, "making room for the next turn", None, auto=True)
            return
        if outcome.status == "waiting":
            if not (run.signal.aborted and is_open) or run.signal.reason == LEASE_LOST:
                return
            # The abort came when the run was already ending to wait: its requests are still denied.
            turn = await load_open_turn(self._host.store, session_id)
            if turn is not None and turn.status == "waiting":
                await self.withdraw(session_id, turn, run.signal.reason or "aborted")
        # Adding to a queue requires the session's lock, so an empty queue is still empty.
        if after.queued:
            await self._fire_queued(session_id, stopped=run.signal.aborted)

    async def _fire_queued(self, session_id: str, *, stopped: bool) -> None:
        """Start queued messages after a turn that ended or was ``stopped``, unless the queue is paused."""
        paused = await self._queue.find_pause(session_id)
        if paused == "person":
            await self.fire(session_id, only="ahead")
        # An abort holds everything back. Other pauses let triggers' messages run, as no user would resume those.
        elif not (stopped and paused == "abort"):
            await self.fire(session_id, only="triggered" if paused is not None else None)

    async def _add_title(self, session_id: str) -> None:
        """Give the session a title in the background; changes of a deleted session are not published."""
        if session_id in self._titling:
            return
        self._titling.add(session_id)
        try:
            # On close the engine waits longer for work that a turn needs than for a title.
            asking = await run_until(
                entitle(self._host, session_id), when_done(self._sessions.wait_closing(_TITLE_WAIT_S)), grace_s=1
            )
            if asking.done() and not asking.cancelled() and asking.result():
                self._sessions.show_changed(session_id)
        finally:
            self._titling.discard(session_id)
            await self._host.store.release(session_id)

    # Stopping

    async def abort(self, session_id: str, *, queue: Literal["stay", "go_on"] = "stay") -> bool:
        """Stop the active operation, or deny pending requests; the queue is paused unless ``queue`` is "go_on". Return
        False if there was nothing to stop."""
        state = await self._host.store.load_state(session_id)
        if queue == "stay":
            await self._queue.pause(session_id, "abort")
        elif state.open_turn_id is not None or state.runner is not None or self._sessions.is_live(session_id):
            await self._queue.resume(session_id)
        return await self.stop(session_id, BY_USER)

    async def stop(self, session_id: str, reason: str) -> bool:
        """Stop the active operation, or deny pending requests; queued messages start unless the queue is paused."""
        if await self._stop_live(session_id, reason):
            return True
        async with self._sessions.lock(session_id):
            return await self.interrupt_run(session_id, reason)

    async def interrupt_run(self, session_id: str, reason: str, to: str | None = None) -> bool:
        """Stop like :meth:`stop`, for a caller that holds the lock. A run started by message ``to`` is not stopped."""
        run = self._sessions.find_run(session_id)
        if to is not None and run is not None and run.user_message_id == to:
            return False
        if await self._stop_live(session_id, reason, to):
            return True
        turn = await load_open_turn(self._host.store, session_id)
        if turn is None or turn.status != "waiting":
            return False
        # Checked after the turn: a message that is still queued has not made these requests.
        if to is not None and to not in [one.message.id for one in await self._host.store.load_queue(session_id)]:
            return False
        await self.withdraw(session_id, turn, reason)
        await self._fire_queued(session_id, stopped=True)
        return True

    async def _stop_live(self, session_id: str, reason: str, to: str | None = None) -> bool:
        """Stop the active operation, here or in another replica; return False if there is none, or if message ``to``
        has started it."""
        elsewhere = False
        still_queued: tuple[StillQueued, ...] = () if to is None else (StillQueued(to),)
        try:
            state = await self._host.store.load_state(session_id)
            elsewhere = await self._host.lease.runs_elsewhere(self._host.store, state)
            if state.open_turn_id is not None and (elsewhere or self._sessions.find_run(session_id) is not None):
                # The stop is stored first, so it still applies if this process dies before the run has ended.
                stop_note = SetTurn(state.open_turn_id, None, data={"stopped": reason})
                unit = Unit(session_id, (stop_note,), (OpenTurnIs(state.open_turn_id), *still_queued), sync="power")
                if await self._host.store.commit(unit) == Refused("not_queued"):
                    return False
            elif elsewhere:
                # An operation without a run has no turn to note the stop in: free the session. Refused if ended.
                freed = await self._host.store.commit(plan_free(session_id, state.epoch))
                elsewhere = not isinstance(freed, Refused)
        finally:
            # Stopped whatever the store answered.
            live = self._sessions.stop(session_id, reason)
        if elsewhere:
            # The request is already durable; a lost signal costs the time until its replica's next beat.
            self._host.live.signal(Signal(session_id, "stop"))
        return live or elsewhere

    async def heed(self, session_id: str) -> None:
        """Stop the active operation here if another replica has requested that or acquired the session."""
        run, occupancy = self._sessions.find_run(session_id), self._sessions.occupied.get(session_id)
        if occupancy is not None and occupancy.epoch is not None:
            epoch = (await self._host.store.load_state(session_id)).epoch
            if epoch > occupancy.epoch:
                occupancy.signal.abort(BY_USER)
        if run is None:
            return

        async def ask(store: Moment) -> tuple[int, Turn | None]:
            if await store.find_session(session_id) is None:
                return 0, None  # deleted
            return (await store.load_state(session_id)).epoch, await load_open_turn(store, session_id)

        epoch, turn = await self._host.store.at_once(session_id, ask)
        if epoch != run.epoch:
            run.abort(LEASE_LOST)
        elif turn is not None and turn.stopped is not None:
            run.abort(turn.stopped)

    async def withdraw(self, session_id: str, turn: Turn, reason: str) -> None:
        """Deny every open request of a waiting turn and settle it as aborted. Does not start the queue."""
        store, now = self._host.store, self._host.clock.now_ms()
        loaded = await load_session_state(store, session_id)
        user, message = await load_waiting(store, session_id, turn)
        writes = [*plan_end(turn.id, "aborted", now, {"stopped": reason, "waiting": [], CHUNKS: None})]
        note = answer_note(current_actor(None), now)
        # A damaged message is left as it is; the turn can still be aborted.
        if message is not None and find_damage(message) is None:
            fold = message.fold()
            for part in message.parts:
                if part.tool_call_id is not None:
                    close_request(fold, part.tool_call_id, reason, note)
            writes.append(PutParts(message.id, changed_parts(message, fold, now)))
            writes.append(SealMessage(message.id, seal_of(fold.parts)))
            # Its own calls end here with the reason of the abort; acquiring the session settles what else is open.
            others = tuple(one for one in loaded.cut_off if one.message.id != message.id)
            loaded = msgspec.structs.replace(loaded, cut_off=others)
        await self._sessions.commit(plan_acquire(loaded, now, writes, goes_on=turn))
        await self._event_replies.settle(session_id)
        self._sessions.show(session_id, Status("idle"))
        self._sessions.publish("turn_finished", session_id, turn_id=turn.id, reason="abort", error=None)
        outcome = TurnOutcome(turn.id, message.id if message is not None else "", "aborted", reason)
        self._outcomes.resolve(user.id if user is not None else "", outcome)

    # Operations without a run

    async def compact(self, session_id: str, focus: str | None) -> Compacted:
        """Summarise what lies before the newest turns, now. Having nothing to do is a result, not an error."""
        async with self._sessions.lock(session_id):
            session = await self._sessions.get_open(session_id)
            await settle_startable(self._host, self._sessions, session_id)
            work = await self._begin_compaction(session, "summarising earlier turns", focus, auto=False)
        # The client may disconnect; the session must still become free.
        return await asyncio.shield(work)

    async def _begin_compaction(
        self, session: Session, message: str, focus: str | None, *, auto: bool
    ) -> asyncio.Task[Compacted]:
        session_id, sessions = session.id, self._sessions
        waiting = frozenset(queued.message.id for queued in await self._host.store.load_queue(session_id))
        occupancy = await sessions.occupy(session_id, message, after_turn=auto)

        async def compact() -> Compacted:
            try:
                return await compact_idle(self._host, sessions, session, occupancy, focus, auto=auto)
            except ClewError as error:
                if not auto:
                    raise
                log.warning("could not compact session %s after its turn: %s", session_id, error)
                return Compacted(compacted=False)
            finally:
                async with sessions.lock(session_id):
                    await sessions.release(occupancy)
                    if sessions.is_open(session_id):
                        if not self._host.lease.shared:
                            sessions.show(session_id, await idle_status(self._host.store, session_id))
                        else:
                            sessions.show(session_id, await status_in(self._host, sessions, session_id))
                        queue = await self._host.store.load_queue(session_id)
                        # Messages that arrived meanwhile start now; after a turn, so do those queued before.
                        if auto or any(queued.message.id not in waiting for queued in queue):
                            await self._fire_queued(session_id, stopped=occupancy.signal.aborted)

        return sessions.work(compact())
