"""A run: one live execution of a turn, from the first chunk to the unit that settles it.

Whoever watches may leave; only an abort, a failure or the end of the work ends a run. It owns its recorder and its
live stream, and whatever happens it ends both, in that order, before anybody else may run on the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec

from clew.errors import ClewError, ContextTooLarge, InternalError, ModelFailed, StaleEpoch, StoreError
from clew.failpoints import failpoint
from clew.live.base import Event, LiveStream, Status
from clew.runtime.calls import Call, Caller
from clew.runtime.context import session_policy
from clew.runtime.doom import WARNING, Pattern, find_pattern, made_calls
from clew.runtime.host import Host, Setting
from clew.runtime.loop import End, Loop
from clew.runtime.recorder import Recorder, assistant_row
from clew.runtime.room import Room
from clew.runtime.turn import finish_of, refusing, settling
from clew.runtime.waiting import Wait, with_waits
from clew.store.unit import EpochIs, InsertMessage, LinkMessage, MoveHead, Refused, SealMessage, SetTurn, Unit, Write
from clew.tools.base import ChildOutcome, Signal
from clew.transcript import chunk as c
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.part import call_id_of, state_of
from clew.transcript.seal import seal_of
from clew.transcript.turn import Turn
from clew.transcript.turn_state import TurnStatus

__all__ = ["Answered", "Run", "SpawnChild", "TurnOutcome"]

log = logging.getLogger("clew.run")
_GRACE_S = 2.0
"""How long an aborted run waits for a model's connection to close before it settles without it."""

SpawnChild = Callable[[str, str | None, Setting, Signal], Awaitable[ChildOutcome]]
T = TypeVar("T")


class TurnOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a turn's run ended. ``error`` is a problem with ``code`` and ``message`` when it failed."""

    turn_id: str
    message_id: str
    status: TurnStatus
    stopped: str | None = None
    error: dict[str, Any] | None = None


class Answered(msgspec.Struct, frozen=True):
    """What a waiting turn goes on with: its message, the calls to run now, and those a human denied."""

    message: MessageRow
    last_n: int
    calls: tuple[Call, ...]
    denied: tuple[str, ...]
    outputs: tuple[c.Chunk, ...] = ()


class Run:
    """One execution. ``start`` it once; ``abort`` it at any time; ``wait`` for how it ended."""

    def __init__(
        self,
        host: Host,
        setting: Setting,
        turn: Turn,
        epoch: int,
        user_message_id: str,
        *,
        answered: Answered | None = None,
        spawn_child: SpawnChild,
        state: dict[str, Any],
        on_end: Callable[[Run, TurnOutcome], Awaitable[None]],
    ) -> None:
        self.turn = turn
        self.session_id = setting.session.id
        self.signal = Signal()
        self.message_id = answered.message.id if answered else host.mint.message()
        self._host = host
        self._setting = setting
        self._epoch = epoch
        self.user_message_id = user_message_id
        self._answered = answered
        self._max_steps = setting.agent.max_steps or session_policy(host.config, setting.session).max_steps
        self._on_end = on_end
        self._caller = Caller(host, setting, self.signal, spawn_child, state)
        self._room = Room(host, setting, turn, epoch, self)
        self._outcome: asyncio.Future[TurnOutcome] = asyncio.get_running_loop().create_future()
        self._stream = self._open_stream(answered.message if answered else None)
        self._task: asyncio.Task[None] | None = None
        self._started_at = host.clock.now_ms()
        self._last: list[c.Chunk] | None = None
        self._requests: set[str] = set()

    # From outside

    def start(self) -> None:
        self._set_status(Status("busy", started_at=self._started_at))
        self._publish("turn_started", message_id=self.message_id, user_message_id=self.user_message_id)
        self._task = asyncio.get_running_loop().create_task(self._main())

    def abort(self, reason: str) -> None:
        self.signal.abort(reason)

    async def wait(self) -> TurnOutcome:
        return await asyncio.shield(self._outcome)

    def has_asked(self, request_id: str) -> bool:
        """Whether a viewer has seen this run ask for it: an approval by its id, a question by its call's."""
        return request_id in self._requests

    @property
    def stream(self) -> LiveStream:
        return self._stream

    def end_stream(self) -> None:
        """Show the last chunks and end the stream: whoever acts on them finds the session as they say."""
        last, self._last = self._last, None
        try:
            if last:
                self._stream.show(last)
        except Exception:
            log.exception("viewers of %s could not be told how it ended", self.session_id)
        self._stream.end()

    # The Watcher of the loop

    async def retrying(self, attempt: int, message: str, at: int) -> None:
        started_at = self._started_at
        self._set_status(Status("retrying", attempt=attempt, message=message, started_at=started_at, retry_at=at))
        await self._move("retrying")

    async def compacting(self, message: str) -> None:
        self._set_status(Status("busy", message=message, started_at=self._started_at))
        await self._move("compacting")

    async def running(self) -> None:
        self._set_status(Status("busy", started_at=self._started_at))
        await self._move("running")

    async def _move(self, status: TurnStatus) -> None:
        unit = Unit(self.session_id, (SetTurn(self.turn.id, status),), (EpochIs(self._epoch),))
        await self._host.store.commit(unit)

    # Inside

    async def _main(self) -> None:
        try:
            outcome = await self._execute()
        except Exception as error:
            outcome = self._lost(error, None)
        try:
            await self._on_end(self, outcome)
        except Exception:
            log.exception("the end of a run on %s was not handled", self.session_id)
        self.end_stream()
        if not self._outcome.done():
            self._outcome.set_result(outcome)

    def _open_stream(self, message: MessageRow | None) -> LiveStream:
        parts = [part.data for part in message.parts] if message else []
        return self._host.live.open_stream(self.session_id, self.message_id, parts)

    async def _execute(self) -> TurnOutcome:
        """Message after message of the turn: one, unless a warning has to come between two."""
        answered = self._answered
        # The warning belongs to the turn: it also holds for a run that goes on after an answer.
        warned: Pattern | None = self.turn.warned or None
        steps = len(await self._host.store.load_steps(self.turn.id))
        budget = self._max_steps - (steps - self.turn.budget_from)
        if answered is None and steps == 0:
            # Before anything of an answer exists the turn can still be refused as if it had not been.
            _, failure = await self._until_aborted(self._room.fit(None))
            if isinstance(failure, ContextTooLarge):
                return await self._refuse(failure)
            if failure is not None or self.signal.aborted:
                recorder = self._recorder(None)
                recorder.write(self._start_chunk())
                return await self._settle(recorder, None, failure)
        while True:
            recorder = self._recorder(answered)
            end, failure = await self._until_aborted(self._work(recorder, answered, steps, budget, warned))
            if end is None or end.reason != "warned":
                return await self._settle(recorder, end, failure)
            done = len(await self._host.store.load_steps(self.turn.id))
            warned = find_pattern(made_calls(recorder.fold.parts))
            steps, budget, answered = done, budget - (done - steps), None
            await self._warn(recorder)

    async def _until_aborted(self, doing: Coroutine[Any, Any, T]) -> tuple[T | None, BaseException | None]:
        """What came of it, or why it failed; neither when an abort cancelled it, wherever it was."""
        work = asyncio.get_running_loop().create_task(doing)
        abort = asyncio.get_running_loop().create_task(self.signal.wait())
        try:
            await asyncio.wait({work, abort}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()
                await asyncio.wait({work}, timeout=_GRACE_S)
                if not work.done():
                    return None, None
            return await work, None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return None, None if self.signal.aborted else ModelFailed("the run was cancelled from inside")
        except Exception as error:
            return None, error
        finally:
            abort.cancel()
            if not work.done():
                work.cancel()

    def _recorder(self, answered: Answered | None) -> Recorder:
        host = self._host
        if answered is not None:
            row, stored, last_n = answered.message, True, answered.last_n
        else:
            metadata: dict[str, Any] = {"model": msgspec.to_builtins(self._setting.model)}
            if self._setting.agent.name != self._setting.session.agent:
                metadata["agent"] = self._setting.agent.name
            row, stored, last_n = (
                assistant_row(self.session_id, self.message_id, host.clock.now_ms(), metadata),
                False,
                0,
            )
        return Recorder(
            host.store,
            row,
            turn_id=self.turn.id,
            epoch=self._epoch,
            mint=host.mint,
            clock=host.clock,
            policy=host.config.save,
            on_shown=self._show,
            stored=stored,
            last_n=last_n,
        )

    def _show(self, chunks: Sequence[c.Chunk]) -> None:
        for chunk in chunks:
            if isinstance(chunk, c.ToolApprovalRequest):
                self._requests.add(chunk.approval_id)
            elif isinstance(chunk, c.ToolInputAvailable):
                tool = self._host.tools.get(chunk.tool_name)
                if tool is not None and tool.asks_human:
                    self._requests.add(chunk.tool_call_id)
        if self._last is not None:
            self._last += chunks
        else:
            self._stream.show(chunks)

    async def _work(
        self,
        recorder: Recorder,
        answered: Answered | None,
        first_step: int,
        budget: int,
        warned: Pattern | None,
    ) -> End:
        await recorder.send(self._start_chunk())
        loop = Loop(
            self._host,
            self._setting,
            recorder,
            self._caller,
            self,
            self._room,
            turn_id=self.turn.id,
            first_step=first_step,
            budget=budget,
            warned=warned,
        )
        if answered is not None:
            for output in answered.outputs:
                await recorder.send(output)
            await loop.land(answered.calls, answered.denied)
        return await loop.run()

    def _start_chunk(self) -> c.Start:
        metadata = {
            "turn_id": self.turn.id,
            "user_message_id": self.user_message_id,
            "model": msgspec.to_builtins(self._setting.model),
        }
        return c.Start(message_id=self.message_id, message_metadata=metadata)

    async def _warn(self, recorder: Recorder) -> None:
        """End this message, say in the conversation that the model goes round in circles, and begin the next."""
        await recorder.send(c.Finish(finish_reason="tool-calls"))
        now = self._host.clock.now_ms()
        part = PartRow(self._host.mint.part(), 0, {"type": "text", "text": WARNING}, now, now)
        row = MessageRow(self._host.mint.message(), self.session_id, "user", now, now, {"synthetic": True}, (part,))
        noted = SetTurn(self.turn.id, "running", data={"warned": find_pattern(made_calls(recorder.fold.parts))})
        sealed = SealMessage(row.id, seal_of([part.data]))
        await recorder.close(InsertMessage(row), sealed, LinkMessage(self.turn.id, row.id), noted)
        self._stream.end()
        self._room.renew()
        self.message_id = self._host.mint.message()
        self._stream = self._open_stream(None)
        self._publish("turn_started", message_id=self.message_id, user_message_id=row.id)

    # Ending

    async def _settle(self, recorder: Recorder, end: End | None, failure: BaseException | None) -> TurnOutcome:
        """The last chunks, then the unit that ends the turn or lets it wait."""
        now = self._host.clock.now_ms()
        failpoint("run.before_settle")
        await self._hold(recorder)
        if failure is not None:
            return await self._settle_failed(recorder, failure, now)
        if end is None:
            for part in recorder.fold.parts:
                if state_of(part) == "approval-requested":
                    recorder.withdraw(call_id_of(part) or "", self.signal.reason or "aborted")
            recorder.write(c.Abort(reason=self.signal.reason or "aborted"))
            await recorder.close(*settling(self.turn.id, "aborted", now, {"stopped": self.signal.reason}))
            return self._outcome_of("aborted", stopped=self.signal.reason)
        if end.reason == "waiting":
            recorder.write(c.Finish(finish_reason="tool-calls"))
            await recorder.close(SetTurn(self.turn.id, "waiting", data=dict(with_waits(end.waits))), seal=False)
            return self._outcome_of("waiting")
        stopped = None if end.reason == "done" else "doom_loop" if end.reason == "doom" else end.reason
        recorder.write(c.Finish(finish_reason=finish_of(stopped)))
        data: dict[str, Any] = {"stopped": stopped} if stopped else {}
        if stopped == "step_limit":
            data["max_steps"] = self._max_steps
        await recorder.close(*settling(self.turn.id, "completed", now, data))
        return self._outcome_of("completed", stopped=stopped)

    async def _hold(self, recorder: Recorder) -> None:
        """From here on chunks are kept back until the session is free. What was said before is shown first."""
        with contextlib.suppress(Exception):
            # Why it cannot be stored is found out, and told, when the turn is settled.
            await recorder.flush()
        self._last = []

    async def _refuse(self, refusal: ContextTooLarge) -> TurnOutcome:
        """Nothing was called: the head stays where it was, and what was said is handed back."""
        host, session_id = self._host, self.session_id
        line = await host.store.load_line(session_id, through=self.turn.id, turns=1, keep_damaged=True)
        turn, rows = line.turns[-1].turn, line.turns[-1].messages
        problem = {**_problem(refusal), "text": _text_of(rows)}
        state = await host.store.load_state(session_id)
        now = host.clock.now_ms()
        if self.turn.status == "unanswered":
            # A resend that nobody answered stays what it was, and the head, which a compaction may have taken off it.
            writes: tuple[Write, ...] = (SetTurn(turn.id, "unanswered", settled_at=now, data={"error": problem}),)
            if state.head_turn_id != turn.id:
                writes += (MoveHead(turn.id, now, "turn"),)
        else:
            writes = refusing(turn.id, [row.id for row in rows], now, {"error": problem})
        unit = Unit(session_id, writes, (EpochIs(self._epoch),), sync="power")
        outcome = await host.store.commit(unit)
        if isinstance(outcome, Refused):
            raise StaleEpoch("a newer run has taken over the session", session_id=session_id)
        finish = c.Finish(finish_reason="error")
        self._last = [self._start_chunk(), c.Error(error_text=problem["message"]), finish]
        return self._outcome_of("refused", error=problem)

    async def _settle_failed(self, recorder: Recorder, failure: BaseException, now: int) -> TurnOutcome:
        problem = _problem(failure)
        try:
            recorder.write(c.Error(error_text=problem["message"]))
            recorder.write(c.Finish(finish_reason="error"))
            await recorder.close(*settling(self.turn.id, "failed", now, {"error": problem}))
        except Exception as error:
            return self._lost(failure if isinstance(failure, StoreError) else error, recorder)
        return self._outcome_of("failed", error=problem)

    def _lost(self, error: BaseException, recorder: Recorder | None) -> TurnOutcome:
        """Nothing more can be stored. Viewers are told; the turn is settled when the session is next used."""
        if recorder is not None:
            recorder.abandon()
        if not isinstance(error, ClewError):
            log.error("a run on %s failed in an unforeseen way", self.session_id, exc_info=error)
        problem = _problem(error)
        self._last = [c.Error(error_text=problem["message"]), c.Finish(finish_reason="error")]
        return self._outcome_of("failed", error=problem)

    def _outcome_of(
        self, status: TurnStatus, *, stopped: str | None = None, error: dict[str, Any] | None = None
    ) -> TurnOutcome:
        return TurnOutcome(self.turn.id, self.message_id, status, stopped, error)

    def _set_status(self, status: Status) -> None:
        self._host.live.set_status(self.session_id, status)
        self._host.live.publish(Event("status", {"session_id": self.session_id, "status": msgspec.to_builtins(status)}))

    def _publish(self, kind: Any, **data: Any) -> None:
        self._host.live.publish(Event(kind, {"session_id": self.session_id, "turn_id": self.turn.id, **data}))


def _text_of(rows: Sequence[MessageRow]) -> str:
    """The words of the message that leads a turn."""
    return "\n".join(next((row.texts for row in rows if row.role == "user"), ()))


def _problem(error: BaseException) -> dict[str, Any]:
    if isinstance(error, ContextTooLarge):
        return {"code": error.code, "message": str(error), "branch": error.ids.get("branch")}
    if isinstance(error, ClewError):
        return {"code": error.code, "message": str(error)}
    return {"code": InternalError.code, "message": f"something went wrong inside clew: {type(error).__name__}: {error}"}


def waits_shown(waits: Sequence[Wait]) -> tuple[Any, ...]:
    """The waits that still have no answer, as a status shows them."""
    return tuple(wait.shown() for wait in waits if wait.answer is None)
