"""The desk: where prompts and aborts arrive, and where it is decided what runs next on a session.

One lock per session makes each decision whole; the store's guards make it true. There is at most one run per session,
a busy session's prompts wait in its durable queue, and a turn that waits for a human is nobody's run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar
from weakref import WeakValueDictionary

import msgspec

from clew.errors import (
    Conflict,
    DuplicateEvent,
    DuplicateMessage,
    InternalError,
    InvalidInput,
    SessionBusy,
    SessionNotFound,
    StoreClosed,
    WaitingForHuman,
)
from clew.live.base import Event, Status
from clew.runtime.admission import Prompted, check_size, content_of, load_kept, read_parts
from clew.runtime.answers import Answers
from clew.runtime.belongings import Belongings
from clew.runtime.continuing import Continuing
from clew.runtime.host import Host, Setting
from clew.runtime.ledger import Ledger
from clew.runtime.occupation import Occupations
from clew.runtime.queue import Queue
from clew.runtime.recovery import fold_streams
from clew.runtime.run import Answered, Run, TurnOutcome, waits_shown
from clew.runtime.setting import resolve
from clew.runtime.settle import ABORT, settle_session
from clew.runtime.subagent import Subagents
from clew.runtime.title import entitle
from clew.runtime.turn import plan_open
from clew.runtime.upkeep import Upkeep
from clew.runtime.waiting import waits_of
from clew.store.base import get_session
from clew.store.unit import EpochIs, HeadIs, NoOpenTurn, PatchSession, Refused, Unit, Write, joined
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.session import Model, Session
from clew.transcript.turn import Turn
from clew.transcript.turn_state import OPEN

__all__ = ["Desk", "Noting", "OnBusy", "Submission", "Submitted"]

OnBusy = Literal["queue", "reject", "interrupt"]
Noting = Callable[[MessageRow], Unit]
"""What is stored with a prompt's message, given that: writes and guards that join its unit."""

T = TypeVar("T")
_REASONS: Final = {"completed": "finish", "aborted": "abort", "waiting": "waiting", "refused": "refused"}


class Submitted(msgspec.Struct, frozen=True):
    """What became of a prompt."""

    message_id: str
    queued: bool
    turn_id: str | None = None


class Submission:
    """A prompt that was taken: its message, whether it waits in the queue, and how its turn ends."""

    def __init__(self, submitted: Submitted, outcome: asyncio.Future[TurnOutcome]) -> None:
        self.message_id = submitted.message_id
        self.queued = submitted.queued
        self.turn_id = submitted.turn_id
        self._outcome = outcome

    async def wait(self) -> TurnOutcome:
        """How the turn ended; for a queued prompt, once it was fired. One that was cancelled never ends."""
        return await asyncio.shield(self._outcome)


class Desk:
    """Coordinates the sessions of one engine."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._runs: dict[str, Run] = {}
        self._ending: set[Run] = set()
        # A lock lives while somebody holds or awaits it, so sessions that are only named leave nothing behind.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._outcomes: dict[str, asyncio.Future[TurnOutcome]] = {}
        self.belongings = Belongings(host.clock)
        self._closing = False
        self._dropped: set[str] = set()
        # Sessions whose queue moves: a person has spoken since the store was opened or a turn failed.
        self._moving: set[str] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.queue = Queue(host, self)
        self.answers = Answers(host, self)
        self.continuing = Continuing(host, self)
        self.subagents = Subagents(host, self)
        self.upkeep = Upkeep(host, self)
        self.occupations = Occupations(host, self)
        self.ledger = Ledger(host, self)

    def lock(self, session_id: str) -> asyncio.Lock:
        lock = self._locks.get(session_id)
        if lock is None:
            self._locks[session_id] = lock = asyncio.Lock()
        return lock

    def run_of(self, session_id: str) -> Run | None:
        return self._runs.get(session_id)

    def is_live(self, session_id: str) -> bool:
        """Something runs on the session, or is being made of it."""
        return session_id in self._runs or session_id in self.occupations

    def may_go_on(self, session_id: str) -> bool:
        """Something may begin on the session: it is not being deleted, and the engine is not closing."""
        return session_id not in self._dropped and not self._closing

    def get_run(self, session_id: str) -> Run:
        run = self._runs.get(session_id)
        if run is None:
            raise InternalError("there is no run on this session", session_id=session_id)
        return run

    # Prompts

    async def submit(
        self,
        session_id: str,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        model: str | Model | dict[str, Any] | None = None,
        agent: str | None = None,
        message_id: str | None = None,
        on_busy: OnBusy = "queue",
        attended: bool = True,
        metadata: Mapping[str, Any] | None = None,
        noting: Noting | None = None,
    ) -> Submission:
        """Take a prompt: run it, or queue it, or refuse it, as ``on_busy`` says when the session is busy."""
        if on_busy not in ("queue", "reject", "interrupt"):
            raise InvalidInput(f"on_busy must be queue, reject or interrupt, not {on_busy!r}")
        async with self.lock(session_id):
            session = await self.take(session_id)
            setting, prompted = await self.admit(session, prompt, model=model, agent=agent, attended=attended)
            known = await self._known(session_id, message_id, prompted)
            if known is not None:
                return known
            given = metadata if attended else {**(metadata or {}), "unattended": True}
            row = await self.user_row(session, setting, prompted, message_id, given)
            busy = await self.busy(session_id)
            if busy is None:
                return await self.open(session, setting, row, prompted, noting=noting)
            if on_busy == "reject":
                raise busy
            submission = await self.queue.add(row, prompted, interrupt=on_busy == "interrupt", noting=noting)
            if "trigger" not in row.metadata:
                self.let_queue_move(session_id)
        if on_busy == "interrupt":
            await self.abort(session_id, reason="interrupted by a new prompt")
        return submission

    async def take(self, session_id: str) -> Session:
        """The session, unless nothing may begin on it any more. Held under its lock."""
        if session_id in self._dropped:
            raise SessionNotFound("the session is being deleted", session_id=session_id)
        if self._closing:
            raise StoreClosed("clew is shutting down", session_id=session_id)
        return await get_session(self._host.store, session_id)

    async def admit(
        self,
        session: Session,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        model: str | Model | dict[str, Any] | None,
        agent: str | None,
        attended: bool,
    ) -> tuple[Setting, Prompted]:
        """Who would answer this prompt, and the prompt as it would be stored; nothing is stored yet."""
        setting = await resolve(self._host, session, model=model, agent=agent, attended=attended)
        kept = await load_kept(self._host.store, prompt)
        prompted = await asyncio.to_thread(read_parts, prompt, setting.workspace, self._host.clock.now_ms(), kept)
        check_size(prompted, setting)
        return setting, prompted

    async def busy(self, session_id: str) -> Conflict | None:
        """Why a prompt cannot run now. What a dead run left open is settled on the way."""
        if session_id in self._runs:
            return SessionBusy("a run is in flight on this session", session_id=session_id)
        if session_id in self.occupations:
            return SessionBusy("this session is being summarised", session_id=session_id)
        now = self._host.clock.now_ms()
        # What a run that could not store its end left in the journal must be in its parts before they are settled.
        await fold_streams(self._host.store, self._host.mint, now, session_id)
        waiting = await settle_session(self._host.store, session_id, now, ABORT)
        if waiting is not None:
            ways = f"give it on the page, over HTTP or in `clew chat {session_id}`, or abort"
            return WaitingForHuman(f"this session waits for a human's answer: {ways}", session_id=session_id)
        return None

    async def _known(self, session_id: str, client_id: str | None, prompted: Prompted) -> Submission | None:
        """The submission this prompt was before, when a client sends it again."""
        if client_id is None:
            return None
        rows = await self._host.store.find_client_message(session_id, client_id)
        sent = [row for row in rows if "cancelled_at" not in row.metadata]
        if sent:
            # What was refused was handed back: sending it again is no repetition.
            tree = await self._host.store.load_tree(session_id)
            refused = {id_ for turn in tree.turns.values() if turn.status == "refused" for id_ in tree.links[turn.id]}
            sent = [row for row in sent if row.id not in refused]
        # An edit may use an id again: what was sent last under it counts first.
        for row in reversed(sent):
            if content_of([part.data for part in row.parts]) == content_of(prompted.parts):
                queued = row.queued_at is not None
                submission = self.submission(row.id, queued=queued)
                if not queued:
                    await self._resolve_past(session_id, row.id)
                return submission
        if sent:
            raise DuplicateMessage(f"message {client_id!r} was sent before with other content", message_id=sent[-1].id)
        return None

    async def _resolve_past(self, session_id: str, message_id: str) -> None:
        """A prompt sent again whose turn is over has its outcome already."""
        run = self._runs.get(session_id)
        if run is not None and run.user_message_id == message_id:
            return
        tree = await self._host.store.load_tree(session_id)
        held = [turn for turn in tree.turns.values() if message_id in tree.links.get(turn.id, ())]
        if held and held[-1].status not in OPEN:
            turn = held[-1]
            outcome = TurnOutcome(turn.id, tree.links[turn.id][-1], turn.status, turn.stopped)
            future = self.take_outcome(message_id)
            if future is not None and not future.done():
                future.set_result(outcome)

    async def user_row(
        self,
        session: Session,
        setting: Setting,
        prompted: Prompted,
        client_id: str | None,
        given: Mapping[str, Any] | None,
    ) -> MessageRow:
        host = self._host
        now = max(host.clock.now_ms(), await host.store.newest_message_at(session.id))
        metadata: dict[str, Any] = {**(given or {}), "model": msgspec.to_builtins(setting.model)}
        if setting.agent.name != session.agent:
            metadata["agent"] = setting.agent.name
        if client_id is not None:
            metadata["client_message_id"] = client_id
        parts = tuple(PartRow(host.mint.part(), n, data, now, now) for n, data in enumerate(prompted.parts))
        return MessageRow(host.mint.message(), session.id, "user", now, now, metadata, parts)

    async def open(
        self,
        session: Session,
        setting: Setting,
        row: MessageRow,
        prompted: Prompted,
        *,
        moving: Sequence[Write] = (),
        below: str | None = None,
        noting: Noting | None = None,
    ) -> Submission:
        """Store the message, synced, and start its run. The same unit may take the head to ``below`` by ``moving``."""
        host = self._host
        row = await host.hooks.change("message.user", row)
        state = await host.store.load_state(session.id)
        turn_id = host.mint.turn()
        at = msgspec.structs.replace(state, head_turn_id=below) if moving else state
        # Who speaks to a session that was put away wants it back; a trigger does not say so.
        back = session.archived_at is not None and "trigger" not in row.metadata
        fetched = (PatchSession(archived_at=None),) if back else ()
        unit = plan_open(at, turn_id, row, setting.model, *prompted.blobs, *fetched)
        guards = (EpochIs(state.epoch), HeadIs(state.head_turn_id), NoOpenTurn())
        unit = msgspec.structs.replace(unit, writes=(*moving, *unit.writes), guards=guards)
        await self.commit(joined(unit, noting(row)) if noting else unit)
        if "trigger" not in row.metadata:
            self.let_queue_move(session.id)
        submission = self.submission(row.id, queued=False, turn_id=turn_id)
        self.start(setting, turn_id, state.epoch + 1, row.id)
        self.updated(session.id)
        return submission

    def start(
        self,
        setting: Setting,
        turn_id: str,
        epoch: int,
        user_message_id: str,
        turn: Turn | None = None,
        answered: Answered | None = None,
    ) -> Run:
        session_id = setting.session.id
        turn = turn or Turn(
            id=turn_id, session_id=session_id, parent_turn_id=None, created_at=self._host.clock.now_ms()
        )
        run = Run(
            self._host,
            setting,
            turn,
            epoch,
            user_message_id,
            answered=answered,
            spawn_child=self.subagents.spawn,
            state=self.belongings.take(session_id),
            on_end=self._ended,
        )
        self._runs[session_id] = run
        run.start()
        return run

    def outcome(self, message_id: str) -> asyncio.Future[TurnOutcome]:
        future = self._outcomes.get(message_id)
        if future is None:
            future = asyncio.get_running_loop().create_future()
            self._outcomes[message_id] = future
        return future

    def submission(self, message_id: str, *, queued: bool, turn_id: str | None = None) -> Submission:
        return Submission(Submitted(message_id, queued, turn_id), self.outcome(message_id))

    def take_outcome(self, message_id: str) -> asyncio.Future[TurnOutcome] | None:
        return self._outcomes.pop(message_id, None)

    # The end of a run

    async def _ended(self, run: Run, outcome: TurnOutcome) -> None:
        """Called once the recorder has settled."""
        self._ending.add(run)
        try:
            await self._go_on_from(run, outcome)
        finally:
            self._ending.discard(run)

    async def _go_on_from(self, run: Run, outcome: TurnOutcome) -> None:
        """Say how it ended, then see what comes next."""
        session_id = run.session_id
        async with self.lock(session_id):
            if self._runs.get(session_id) is run:
                del self._runs[session_id]
            await self.ledger.settle(session_id)
            status = await self._status_after(session_id, outcome)
            self.show(session_id, status)
            reason = _REASONS.get(outcome.status, "error")
            told = {"turn_id": outcome.turn_id, "reason": reason, "error": outcome.error}
            if outcome.status == "refused":
                told["problem"] = outcome.error
            self.publish("turn_finished", session_id, **told)
            if outcome.status == "waiting":
                for wait in status.waiting:
                    self.publish("approval_requested", session_id, **msgspec.to_builtins(wait))
            self.updated(session_id)
            self._host.hooks.observe("turn_finished", outcome)
            self._resolve(run, outcome)
            # Viewers see the end only now: whoever acts on it finds the session as it says.
            run.end_stream()
            if not self._closing:
                self.belongings.release_later(session_id)
                self.hold(self._host.store.release(session_id))
            if outcome.status == "completed" and not self._closing:
                self.hold(self._name(session_id))
            if self._closing or session_id in self._dropped:
                return
            if outcome.status == "waiting" and run.signal.aborted:
                # The abort came when the run was already ending to wait: what it asked is denied all the same.
                turn = await self.open_turn(session_id)
                if turn is not None and turn.status == "waiting":
                    await self.answers.withdraw(session_id, turn, run.signal.reason or "aborted")
            if outcome.status == "completed" and await self._tidies(session_id):
                return
            if outcome.status in ("completed", "aborted") or run.signal.aborted:
                # A turn that failed or waits pauses the queue; so does a restart, since nothing ends after it.
                # The end of what a trigger began is no person's word either: it does not end the pause.
                moves = self.queue_moves(session_id) or run.signal.aborted
                await self.queue.fire(session_id, triggered=not moves)
            elif outcome.status != "waiting":
                # Nobody is there to go on with what a trigger sent.
                self._moving.discard(session_id)
                await self.queue.fire(session_id, triggered=True)

    def let_queue_move(self, session_id: str) -> None:
        """A person has spoken: what waits behind goes on when this has ended well."""
        self._moving.add(session_id)

    def queue_moves(self, session_id: str) -> bool:
        """Whether what people queued goes on by itself; it stands still after a restart and after a failure."""
        return session_id in self._moving

    async def _name(self, session_id: str) -> None:
        """Give the session a title, in nobody's way. One that was deleted meanwhile is not told of any more."""
        if await entitle(self._host, session_id):
            self.updated(session_id)

    def hold(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Work that belongs to the desk, whoever waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # One that nobody waits for any more has nobody to tell.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    def _resolve(self, run: Run, outcome: TurnOutcome) -> None:
        if outcome.status == "waiting":
            return
        future = self.take_outcome(run.user_message_id)
        if future is not None and not future.done():
            future.set_result(outcome)

    async def _tidies(self, session_id: str) -> bool:
        """Make room after a turn where the settings want it; whoever does fires the queue when done."""
        session = await self._host.store.find_session(session_id)
        if session is None or not await self.upkeep.wants_after_turn(session):
            return False
        signal = await self.occupations.enter(session_id, "making room for the next turn")
        self.hold(self.upkeep.after_turn(session_id, signal))
        return True

    def show(self, session_id: str, status: Status) -> None:
        """Let everybody know what the session does now."""
        self._host.live.set_status(session_id, status)
        self.publish("status", session_id, status=msgspec.to_builtins(status))

    async def _status_after(self, session_id: str, outcome: TurnOutcome) -> Status:
        if outcome.status in ("failed", "refused"):
            message = str((outcome.error or {}).get("message", "the run failed"))
            return Status("error", message=message, problem=outcome.error)
        return await self.idle_status(session_id)

    async def idle_status(self, session_id: str) -> Status:
        turn = await self.open_turn(session_id)
        waiting = waits_shown(waits_of(turn)) if turn is not None and turn.status == "waiting" else ()
        return Status("idle", waiting=waiting)

    async def status(self, session_id: str) -> Status:
        """What the session is doing. After a restart that is worked out from what is stored."""
        known = self._host.live.status(session_id)
        return known if known is not None else await self.idle_status(session_id)

    async def open_turn(self, session_id: str) -> Turn | None:
        state = await self._host.store.load_state(session_id)
        if state.open_turn_id is None:
            return None
        line = await self._host.store.load_line(session_id, through=state.open_turn_id, turns=1, keep_damaged=True)
        return line.turns[-1].turn if line.turns else None

    # Abort

    async def abort(self, session_id: str, *, reason: str = "aborted by the user") -> bool:
        """Stop what runs, or deny what waits, on this session. True when there was something to stop."""
        if self._stop(session_id, reason):
            return True
        async with self.lock(session_id):
            if self._stop(session_id, reason):
                return True
            turn = await self.open_turn(session_id)
            if turn is None or turn.status != "waiting":
                return False
            await self.answers.withdraw(session_id, turn, reason)
            await self.queue.fire(session_id)
            return True

    def _stop(self, session_id: str, reason: str) -> bool:
        """Stop the run, or whatever else the session is occupied with."""
        if session_id in self._runs:
            self._runs[session_id].abort(reason)
            return True
        return self.occupations.abort(session_id, reason)

    async def user_message_of(self, session_id: str, turn_id: str) -> str:
        line = await self._host.store.load_line(session_id, through=turn_id, turns=1, keep_damaged=True)
        return next((row.id for row in line.turns[-1].messages if row.role == "user"), "")

    async def setting_of(self, session_id: str, turn: Turn) -> Setting:
        """The setting of a turn that goes on: the model and agent its user message named."""
        session = await get_session(self._host.store, session_id)
        line = await self._host.store.load_line(session_id, through=turn.id, turns=1, keep_damaged=True)
        users = [row for row in line.turns[-1].messages if row.is_prompt]
        if not users:
            return await resolve(self._host, session, model=None, agent=None, attended=True)
        row = users[0]
        return await resolve(
            self._host, session, model=row.asked_model, agent=row.asked_agent, attended=row.is_attended
        )

    # Closing

    async def close(self, reason: str = "the host is shutting down") -> None:
        """Stop every run and wait until each has settled."""
        self._closing = True
        runs = list(self._runs.values())
        for run in runs:
            run.abort(reason)
        # One that has settled may still be seeing what comes next, and needs the store for it.
        await asyncio.gather(*(run.wait() for run in {*runs, *self._ending}), return_exceptions=True)
        await self.occupations.end_all(reason)
        if self._tasks:
            # A title is a moment's work; one that a slow model owes is not waited for.
            _, late = await asyncio.wait(set(self._tasks), timeout=1.0)
            for task in late:
                task.cancel()
        self.belongings.close()

    async def drop(self, session_id: str) -> None:
        """Abort what runs on a session that is about to be deleted, and forget it."""
        self._dropped.add(session_id)
        run = self._runs.get(session_id)
        if run is not None:
            run.abort("the session is deleted")
            await run.wait()
        await self.occupations.end(session_id, "the session is deleted")
        for queued in await self._host.store.load_queue(session_id):
            future = self.take_outcome(queued.message.id)
            if future is not None:
                future.cancel()

    def forget(self, session_id: str, *, gone: bool) -> None:
        """The end of a deletion, also of one that failed."""
        self._dropped.discard(session_id)
        if gone:
            self._moving.discard(session_id)
            self._host.live.forget(session_id)
            self.belongings.drop(session_id)

    # Small things

    async def commit(self, unit: Unit) -> None:
        outcome = await self._host.store.commit(unit)
        if isinstance(outcome, Refused):
            if outcome.reason in ("stale_epoch", "turn_open", "head_moved", "turn_not_open"):
                raise SessionBusy("the session was taken by another run", session_id=unit.session_id)
            if outcome.reason == "session_not_found":
                raise SessionNotFound(f"there is no session {unit.session_id}", session_id=unit.session_id)
            if outcome.reason == "event_exists":
                raise DuplicateEvent("this event was received before", session_id=unit.session_id)
            raise InternalError(f"a unit was refused: {outcome.reason}", session_id=unit.session_id)

    def publish(self, kind: Any, session_id: str, **data: Any) -> None:
        self._host.live.publish(Event(kind, {"session_id": session_id, **data}))

    def updated(self, session_id: str) -> None:
        """Tell everybody that the session is not as it was."""
        self.publish("session_updated", session_id)
        self._host.hooks.observe("session_save", session_id)
