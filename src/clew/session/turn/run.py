"""A run: one live execution of a turn, from the first chunk to the unit that settles it.

Viewers may disconnect; only an abort, a failure or the end of the work ends a run. It owns its recorder and its stream.
What follows it, and which events are published, is decided by the runner.

Where nothing has to be read, written or asked of a hook or a server between the prompt and its request, the start is
planned: the beginning of the answer and the row of its first model call are stored in the prompt's own unit. The
message is a stored one for its recorder: nothing is written or shown before that unit is committed. This saves one
commit per prompt, 0.3 to 0.6 ms. Medians on SQLite with it and without it: a short answer 2.5 and 2.9 ms, its first
word 2.4 and 2.7 ms; a turn with a tool call and 200 deltas 8.5 and 9.0 ms; prompt until the model is called 2.6 and 3.2
ms. On a busy machine it also saves a switch of threads, which takes several ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

import msgspec

from clew.compaction.policy import session_policy
from clew.errors import ContextTooLarge, ModelFailed
from clew.failpoints import failpoint
from clew.live.base import Event, LiveStream
from clew.providers.base import ProviderFailure
from clew.providers.retry import delay_ms
from clew.session.cancellable import run_until
from clew.session.cluster.lease import LEASE_LOST
from clew.session.context.context import MeasuredLine
from clew.session.context.context_fit import ContextFitter
from clew.session.host import Host
from clew.session.progress import Progress
from clew.session.prompt.admission import assistant_row, next_row_at, synthetic_row
from clew.session.prompt.submission import TurnOutcome
from clew.session.prompt.turn_config import TurnConfig
from clew.session.snapshots import Snapshots
from clew.session.turn.calls import Call, Caller, ScheduleTurn, SpawnChild
from clew.session.turn.loop import End, Loop
from clew.session.turn.mcp_tools import served_names
from clew.session.turn.recorder import Recorder
from clew.session.turn.run_stream import RunStream
from clew.session.turn.structured_output import MAX_REMINDERS, NO_ANSWER, REMINDER
from clew.session.turn.turn_end import TurnEnd, plan_model
from clew.store.unit import (
    EpochIs,
    InsertMessage,
    LinkMessage,
    MarkFolded,
    PutCall,
    SealMessage,
    SetTurn,
    Unit,
    Write,
)
from clew.tools.base import Signal
from clew.transcript import chunk as c
from clew.transcript.incomplete_step import find_cut, unsent_data
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.metadata import from_stream
from clew.transcript.part import call_id_of, is_open_call
from clew.transcript.repetition import WARNING, Pattern, find_pattern, made_calls
from clew.transcript.turn import Turn

__all__ = ["MAX_RESUMED", "AcquiredSession", "Resumption", "Run"]

log = logging.getLogger("clew.run")
MAX_RESUMED: Final = 2
"""Automatic resumes of a turn after a cut or a restart; a turn that fails each time must end."""
_GRACE_S = 2.0
"""Seconds an aborted run waits for the model's connection to close before it settles without it."""
_NOT_RUN: Final = "the model's answer broke off before this call was complete; it was not run"
T = TypeVar("T")


class Resumption(msgspec.Struct, frozen=True):
    """The input of a resumed waiting turn: its message, the calls to run now, and those that were denied."""

    message: MessageRow
    last_n: int
    calls: tuple[Call, ...]
    denied: tuple[str, ...]
    outputs: tuple[c.Chunk, ...] = ()


class AcquiredSession(msgspec.Struct, frozen=True):
    """A session that was acquired for a run: turn config, turn, number of steps, and the epoch it may write with.

    ``counted`` is its line, if that was just read. ``newest_at`` is the time of the newest message, if that may be
    later than the turn.
    """

    config: TurnConfig
    turn: Turn
    epoch: int
    user_message_id: str
    resumption: Resumption | None = None
    steps: int = 0
    counted: MeasuredLine | None = None
    newest_at: int = 0


class Run:
    """One execution of a turn. ``execute`` it once, ``abort`` it at any time, ``wait`` for its outcome."""

    def __init__(
        self,
        host: Host,
        acquired: AcquiredSession,
        *,
        spawn_child: SpawnChild,
        schedule_turn: ScheduleTurn,
        snapshots: Snapshots,
    ) -> None:
        config, resumption = acquired.config, acquired.resumption
        self.turn = acquired.turn
        self.session = config.session
        self.session_id = config.session.id
        self.user_message_id = acquired.user_message_id
        self.signal = Signal()
        self.message_id = resumption.message.id if resumption else host.mint.message()
        self._host = host
        self._snapshots = snapshots
        self._config = config
        self.epoch = acquired.epoch
        self._resumption = resumption
        self._first_step = acquired.steps
        limit = config.agent.max_steps or host.choices.max_steps
        self._policy = session_policy(host.config, config.session)
        self._max_steps = limit or self._policy.max_steps
        self._progress = Progress(host, self.session_id, self.turn.id, acquired.epoch)
        began = self._progress.begin
        self._caller = Caller(host, config, self.signal, spawn_child, schedule_turn, acquired.turn.id, began)
        self._fitter = ContextFitter(host, config, self.turn, acquired.epoch, self._progress, acquired.counted)
        self._newest_at = max(acquired.turn.created_at, acquired.newest_at)
        self.stream: RunStream
        self._counts = self.turn.chunks
        self._pending_retry: tuple[int, ProviderFailure] | None = None
        self._end: TurnEnd | None = None
        self._loop: Loop | None = None
        self._active_recorder: Recorder | None = None
        self._start: _PlannedStart | None = None
        # Until an answer has begun, the turn can be refused without a trace.
        self._has_begun = resumption is not None or acquired.steps > 0
        self.task: asyncio.Task[None] | None = None
        self._outcome: asyncio.Future[TurnOutcome] = asyncio.get_running_loop().create_future()

    # Called from outside

    async def plan_start(self) -> Sequence[Write]:
        """Return the writes that begin the answer, to be stored with its prompt; empty if it begins after that."""
        row, start = self._answer_row(), self._start_chunk()
        # Errors are left to the run, which can report them: its prompt is stored by then.
        with contextlib.suppress(Exception):
            self._start = await _plan_start(self._host, self._config, self._fitter, row, start, self._stored_loop)
        return self._start.writes if self._start is not None else ()

    def _stored_loop(self, row: MessageRow, last_n: int) -> Loop:
        return self._make_loop(self._make_recorder(row, stored=True, last_n=last_n), 0, self._max_steps, None)

    def begin(self, state: dict[str, Any]) -> None:
        """Publish the turn of the acquired session. ``state`` is what its tools keep between runs."""
        self._caller.state = state
        row, last_n = (self._resumption.message, self._resumption.last_n) if self._resumption else (None, 0)
        self.stream = RunStream(self._host, self.session_id, self.message_id, row, epoch=self.epoch, last_n=last_n)
        self._progress.begin()
        self._publish_started(self.user_message_id)
        if self._start is not None:
            self._loop, self._has_begun = self._start.loop, True
            self._active_recorder = self._loop.recorder
            failpoint("recorder.before_show")
            self.stream.show(self._start.chunks)

    def abort(self, reason: str) -> None:
        self.signal.abort(reason)

    async def wait(self) -> TurnOutcome:
        return await asyncio.shield(self._outcome)

    @property
    def superseded(self) -> bool:
        return self._end is not None and self._end.superseded

    @property
    def unsettled(self) -> bool:
        return self._end is not None and self._end.unsettled

    def has_asked(self, request_id: str | None = None) -> bool:
        return self.stream.has_asked(request_id)

    @property
    def live_stream(self) -> LiveStream:
        return self.stream.live

    async def execute(self) -> TurnOutcome:
        """Do the work and settle the turn. The stream stays open: it ends last."""
        config, is_child = self._config, self._config.session.kind == "subagent"
        name, model = config.agent.name, config.model.plain
        kind = self._host.find_kind(model)
        with self._host.telemetry.turn(
            self.session_id, self.turn.id, name, model, kind=kind, subagent=is_child
        ) as doing:
            try:
                outcome = await self._execute()
            except Exception as error:
                outcome = self._turn_end().end_unstored(error, None)
            finally:
                self._fitter.release()
            doing.ended = outcome.status
            doing.error = (outcome.error or {}).get("code")
            return outcome

    def finish(self, outcome: TurnOutcome) -> None:
        """End the stream and resolve the outcome, after all events were published."""
        self.stream.end()
        if not self._outcome.done():
            self._outcome.set_result(outcome)

    def give_up(self) -> bool:
        """End the stream and cancel the outcome if there is none; return whether it was cancelled."""
        self.stream.end()
        return self._outcome.cancel()

    # Internals

    async def _execute(self) -> TurnOutcome:
        """Work on the turn's messages: one, unless a notice comes between two or a stream was truncated."""
        resumption = self._resumption
        # A warning belongs to the turn, so it also counts for a run that resumes after an answer.
        warned: Pattern | None = self.turn.warned or None
        steps = self._first_step
        budget = self._max_steps - (steps - self.turn.budget_from)
        if not self._has_begun:
            await self._record_turn_start()
        while True:
            end, failure = await self._run_until_aborted(self._work(resumption, steps, budget, warned))
            is_resumed = self.turn.status in ("failed", "aborted")
            if not self._has_begun and isinstance(failure, ContextTooLarge) and not is_resumed:
                return await self._turn_end().refuse(failure, self._start_chunk())
            recorder = self._active_recorder or self._recorder(resumption)
            if not self._has_begun:
                recorder.write(self._start_chunk())
                return await self._settle(recorder, None, failure)
            if end is not None and end.reason == "warned":
                warned = find_pattern(made_calls(recorder.fold.parts, by_result=self._policy.repeats_by_result))
                await self._add_notice(recorder, WARNING, {"warned": warned})
            elif end is not None and end.reason == "no_form" and self.turn.reminded < MAX_REMINDERS:
                await self._add_notice(recorder, REMINDER, {"reminded": self.turn.reminded + 1})
            elif end is not None and end.reason == "no_form":
                return await self._settle(recorder, None, ModelFailed(NO_ANSWER))
            elif not await self._resume_after_cut(recorder, failure):
                return await self._settle(recorder, end, failure)
            done = self._loop.step if self._loop is not None else steps
            steps, budget, resumption = done, budget - (done - steps), None

    async def _record_turn_start(self) -> None:
        """Store with the turn that its environment has changed, and that the session's model does not answer it."""
        picked, is_resumed = self._config.session.model, self.turn.status in ("failed", "aborted")
        notes: dict[str, Any] = {}
        if self._config.change is not None:
            notes["environment"] = self._config.change
        if picked != self._config.model.plain and not is_resumed:
            notes["swapped_from"] = msgspec.to_builtins(picked)
        if notes:
            write = SetTurn(self.turn.id, None, data=notes)
            await self._host.store.commit(Unit(self.session_id, (write,), (EpochIs(self.epoch),)))
            self._fitter.invalidate()

    async def _begin(self) -> None:
        """Make the request fit, then give the session the model of this turn, which is known to fit by then."""
        await self._fitter.fit(None)
        # A summary may have been added.
        self._newest_at = max(self._newest_at, await self._host.store.newest_message_at(self.session_id))
        if self.signal.aborted:
            # Hooks and summaries that ignore an abort must not let the run continue.
            raise asyncio.CancelledError
        picked, is_resumed = self._config.session.model, self.turn.status in ("failed", "aborted")
        moved = await plan_model(self._host, self._config, self._config.stored_model, self._config.turn_model)
        # A resumed turn still switches the model as planned. A model picked since it stopped stays picked.
        swaps = self.turn.swapped_from == msgspec.to_builtins(picked) or picked.plain == self._config.model.plain
        if moved and (not is_resumed or swaps):
            await self._host.store.commit(Unit(self.session_id, moved, (EpochIs(self.epoch),)))
        self._has_begun = True

    async def _run_until_aborted(self, doing: Coroutine[Any, Any, T]) -> tuple[T | None, BaseException | None]:
        """Return the result, or the failure; neither when an abort cancelled the work."""
        work = await run_until(doing, self.signal.on_abort, grace_s=_GRACE_S)
        if not work.done() or work.cancelled():
            return None, None if self.signal.aborted else ModelFailed("the run was cancelled unexpectedly")
        failure = work.exception()
        return (work.result(), None) if failure is None else (None, failure)

    def _recorder(self, resumption: Resumption | None) -> Recorder:
        if resumption is not None:
            return self._make_recorder(resumption.message, stored=True, last_n=resumption.last_n)
        return self._make_recorder(self._answer_row())

    def _answer_row(self) -> MessageRow:
        at = next_row_at(self._host, self._newest_at)
        return assistant_row(self.session_id, self.message_id, at, self._config.answer_metadata)

    def _make_recorder(self, row: MessageRow, *, stored: bool = False, last_n: int = 0) -> Recorder:
        host = self._host
        return Recorder(
            host.store,
            row,
            turn_id=self.turn.id,
            epoch=self.epoch,
            mint=host.mint,
            clock=host.clock,
            policy=host.config.save,
            on_shown=lambda chunks: self.stream.show(chunks),
            stored=stored,
            last_n=last_n,
            counts=self._counts,
            by_part=host.live.reaches_others,
        )

    def _make_loop(self, recorder: Recorder, first_step: int, budget: int, warned: Pattern | None) -> Loop:
        caller, progress, fitter, turn_id = self._caller, self._progress, self._fitter, self.turn.id
        return Loop(
            *(self._host, self._config, recorder, caller, progress, fitter, self._snapshots, turn_id),
            *(first_step, budget, warned),
        )

    async def _work(self, resumption: Resumption | None, first_step: int, budget: int, warned: Pattern | None) -> End:
        if not self._has_begun:
            await self._begin()
        if self._active_recorder is not None and self._loop is not None:
            # Prepared with the prompt. If it was stopped since, the model is not called.
            if self.signal.aborted:
                raise asyncio.CancelledError
            return await self._loop.run()
        recorder = self._active_recorder = self._recorder(resumption)
        await recorder.send(self._start_chunk())
        if self._pending_retry is not None:
            (wait, why), self._pending_retry = self._pending_retry, None
            await self._progress.retrying(self.turn.resumed, why, "resuming", wait)
        loop = self._make_loop(recorder, first_step, budget, warned)
        # A model that answered in text only was asked natively, or does not call tools either.
        loop.form_by_tool = self.turn.reminded > 0
        self._loop = loop
        if resumption is not None:
            for output in resumption.outputs:
                await recorder.send(output)
            await loop.run_answered_calls(resumption.calls, resumption.denied)
        return await loop.run()

    def _start_chunk(self) -> c.Start:
        ids = {"turn_id": self.turn.id, "user_message_id": self.user_message_id}
        who = {key: value for key, value in self._config.answer_metadata.items() if key != "agent"}
        return c.Start(message_id=self.message_id, message_metadata={**ids, **who})

    async def _add_notice(self, recorder: Recorder, text: str, data: dict[str, Any]) -> None:
        """End this message, add a notice for the model to the conversation, and begin the next. The turn stores it."""
        await recorder.send(c.Finish(finish_reason="tool-calls"))
        row = synthetic_row(
            self._host, self.session_id, text, await self._host.store.newest_message_at(self.session_id)
        )
        notes = SetTurn(self.turn.id, "running", data=data)
        sealed = SealMessage(row.id, row.seal)
        await recorder.close(InsertMessage(row), sealed, LinkMessage(self.turn.id, row.id), notes)
        self.turn = msgspec.structs.replace(self.turn, data={**self.turn.data, **data})
        await self._begin_next(row.id)

    async def _resume_after_cut(self, recorder: Recorder, failure: BaseException | None) -> bool:
        """End a message whose stream was truncated and begin the next, in a session without a user present. The text
        before the cut is shown but not sent. Aborts and refusals by the provider are final."""
        may_go_on = not self._config.attended and not self.signal.aborted and self.turn.resumed < MAX_RESUMED
        if not may_go_on or not isinstance(failure, ProviderFailure):
            return False
        wait = delay_ms(failure, self.turn.resumed + 1, self._host.chance())
        parts = recorder.fold.parts
        await recorder.flush()
        steps = await self._host.store.load_steps(self.turn.id)
        cut = find_cut(parts, sum(step.message_id == self.message_id for step in steps))
        if wait is None or cut is None or len(parts) == cut + 1:
            # It failed before it produced anything, after the retries.
            return False
        for part in parts[cut:]:
            if is_open_call(part):
                recorder.write(c.ToolOutputError(tool_call_id=call_id_of(part) or "", error_text=_NOT_RUN))
        recorder.write(c.Finish(finish_reason="error"))
        unsent = unsent_data({**self.turn.unsent, self.message_id: cut})
        data = {"unsent": unsent, "resumed": self.turn.resumed + 1}
        await recorder.close(SetTurn(self.turn.id, "running", data=data))
        self.turn = msgspec.structs.replace(self.turn, data={**self.turn.data, **data})
        self._pending_retry = wait, failure
        await self._begin_next(self.user_message_id)
        return True

    async def _begin_next(self, user_message_id: str) -> None:
        self._newest_at = await self._host.store.newest_message_at(self.session_id)
        self._fitter.invalidate()
        self._active_recorder = None
        self.message_id = self._host.mint.message()
        self.stream.begin_next(self.message_id)
        self._publish_started(user_message_id)

    async def _settle(self, recorder: Recorder, end: End | None, failure: BaseException | None) -> TurnOutcome:
        failpoint("run.before_settle")
        steps = self._first_step
        if self._loop is not None:
            # Without the lease, another replica has settled the calls.
            if failure is None and self.signal.reason != LEASE_LOST:
                failure = await self._loop.finish_calls()
            # A call that did not end normally may still have cost something.
            self._loop.abandon_step(failure)
            steps = self._loop.step
        return await self._turn_end().settle(recorder, end, failure, steps=steps)

    def _turn_end(self) -> TurnEnd:
        host, config, epoch, limit = self._host, self._config, self.epoch, self._max_steps
        self._end = TurnEnd(host, config, self.turn, self.message_id, epoch, self.stream, self.signal, limit)
        return self._end

    def _publish_started(self, user_message_id: str) -> None:
        data = {"turn_id": self.turn.id, "message_id": self.message_id, "user_message_id": user_message_id}
        self._host.live.publish(Event("turn_started", {"session_id": self.session_id, **data}))


class _PlannedStart(msgspec.Struct, frozen=True):
    """The beginning of an answer: the loop that continues it, the writes that store it, and the chunks to show then."""

    loop: Loop
    writes: Sequence[Write]
    chunks: Sequence[c.Chunk]


async def _plan_start(
    host: Host,
    config: TurnConfig,
    fitter: ContextFitter,
    row: MessageRow,
    start: c.Start,
    make_loop: Callable[[MessageRow, int], Loop],
) -> _PlannedStart | None:
    """Plan the beginning of the answer ``row``; None if something must be done before it.

    ``make_loop`` returns the loop of a stored message, given the number of its last chunk.
    """
    prompt_changed = config.change is not None or config.stored_model != config.turn_model
    stores_later = not host.store.capabilities.chunk_durable or host.config.save.save_on == "turn"
    if prompt_changed or stores_later or host.hooks.change_requests or served_names(host, config):
        return None
    context = await fitter.find_fitting()
    if context is None:
        return None
    chunks = (start, c.StartStep())
    fold = row.fold()
    for chunk in chunks:
        fold.apply(chunk)
    at = row.created_at
    parts = tuple(PartRow(host.mint.part(), index, part, at, at) for index, part in enumerate(fold.parts))
    row = msgspec.structs.replace(row, parts=parts, metadata={**row.metadata, **from_stream(fold.metadata)})
    loop = make_loop(row, len(chunks))
    call = await loop.plan_call(context)
    mark = MarkFolded(row.id, len(chunks))
    return _PlannedStart(loop, (InsertMessage(row), LinkMessage(loop.turn_id, row.id), mark, PutCall(call)), chunks)
