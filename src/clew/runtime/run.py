"""A run: one live execution of a turn, from the first chunk to the unit that settles it.

Whoever watches may leave; only an abort, a failure or the end of the work ends a run. It owns its recorder and its
live stream, and whatever happens it ends both, in that order, before anybody else may run on the session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

import msgspec

from clew.errors import ClewError, InternalError, ModelFailed, StoreError
from clew.failpoints import failpoint
from clew.live.base import Event, LiveStream, Status
from clew.runtime.calls import Call, Caller
from clew.runtime.doom import WARNING, last_call
from clew.runtime.files import with_files
from clew.runtime.host import Host, Setting
from clew.runtime.loop import End, Loop
from clew.runtime.recorder import Recorder, assistant_row
from clew.runtime.turn import settling
from clew.runtime.waiting import Wait, with_waits
from clew.store.unit import EpochIs, InsertMessage, LinkMessage, SetTurn, Unit
from clew.tools.base import ChildOutcome, Signal
from clew.transcript import chunk as c
from clew.transcript.message import Message, MessageRow, PartRow
from clew.transcript.turn import Turn
from clew.transcript.turn_state import TurnStatus
from clew.transcript.view import model_view

__all__ = ["Answered", "Run", "SpawnChild", "TurnOutcome"]

log = logging.getLogger("clew.run")
_GRACE_S = 2.0
"""How long an aborted run waits for a model's connection to close before it settles without it."""

SpawnChild = Callable[[str, str | None, Setting, Signal], Awaitable[ChildOutcome]]
Reason = Literal["finish", "abort", "error", "waiting"]


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
        self._on_end = on_end
        self._caller = Caller(host, setting, self.signal, spawn_child, state)
        self._outcome: asyncio.Future[TurnOutcome] = asyncio.get_running_loop().create_future()
        self._stream = self._open_stream(answered.message if answered else None)
        self._task: asyncio.Task[None] | None = None
        self._started_at = host.clock.now_ms()

    # From outside

    def start(self) -> None:
        self._set_status(Status("busy", started_at=self._started_at))
        self._publish("turn_started", message_id=self.message_id, user_message_id=self.user_message_id)
        self._task = asyncio.get_running_loop().create_task(self._main())

    def abort(self, reason: str) -> None:
        self.signal.abort(reason)

    async def wait(self) -> TurnOutcome:
        return await asyncio.shield(self._outcome)

    @property
    def stream(self) -> LiveStream:
        return self._stream

    # The Watcher of the loop

    async def retrying(self, attempt: int, message: str) -> None:
        self._set_status(Status("retrying", attempt=attempt, message=message, started_at=self._started_at))
        await self._move("retrying")

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
        self._stream.end()
        if not self._outcome.done():
            self._outcome.set_result(outcome)

    def _open_stream(self, message: MessageRow | None) -> LiveStream:
        parts = [part.data for part in message.parts] if message else []
        return self._host.live.open_stream(self.session_id, self.message_id, parts)

    async def _execute(self) -> TurnOutcome:
        """Message after message of the turn: one, unless a warning has to come between two."""
        answered = self._answered
        # The warning belongs to the turn: it also holds for a run that goes on after an answer.
        earlier = self.turn.data.get("warned")
        warned: tuple[Any, Any] | None = tuple(earlier) if earlier else None
        steps = len(await self._host.store.load_steps(self.turn.id))
        budget = self._setting.agent.max_steps - (steps - int(self.turn.data.get("budget_from", 0)))
        while True:
            recorder = self._recorder(answered)
            work = asyncio.get_running_loop().create_task(self._work(recorder, answered, steps, budget, warned))
            failure: BaseException | None = None
            end: End | None = None
            try:
                end = await self._until_aborted(work)
            except asyncio.CancelledError:
                if not self.signal.aborted:
                    task = asyncio.current_task()
                    if task is not None and task.cancelling():
                        raise
                    failure = ModelFailed("the run was cancelled from inside")
            except Exception as error:
                failure = error
            if end is None or end.reason != "warned":
                return await self._settle(recorder, end, failure)
            done = len(await self._host.store.load_steps(self.turn.id))
            steps, budget, warned, answered = done, budget - (done - steps), last_call(recorder.fold.parts), None
            await self._warn(recorder)

    async def _until_aborted(self, work: asyncio.Task[End]) -> End:
        """The work's end; an abort cancels it, wherever it is, and comes out as ``CancelledError``."""
        abort = asyncio.get_running_loop().create_task(self.signal.wait())
        try:
            await asyncio.wait({work, abort}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()
                await asyncio.wait({work}, timeout=_GRACE_S)
                if not work.done():
                    raise asyncio.CancelledError
            return await work
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
        self._stream.show(chunks)

    async def _work(
        self,
        recorder: Recorder,
        answered: Answered | None,
        first_step: int,
        budget: int,
        warned: tuple[Any, Any] | None,
    ) -> End:
        metadata = {
            "turn_id": self.turn.id,
            "user_message_id": self.user_message_id,
            "model": msgspec.to_builtins(self._setting.model),
        }
        await recorder.send(c.Start(message_id=self.message_id, message_metadata=metadata))
        loop = Loop(
            self._host,
            self._setting,
            recorder,
            self._caller,
            self,
            turn_id=self.turn.id,
            history=await self._history(),
            first_step=first_step,
            budget=budget,
            warned=warned,
        )
        if answered is not None:
            for output in answered.outputs:
                await recorder.send(output)
            await loop.land(answered.calls, answered.denied)
        return await loop.run()

    async def _history(self) -> list[Message]:
        line = await self._host.store.load_view(self.session_id)
        sent = [message for message in model_view(line.turns if line else ()) if message.id != self.message_id]
        return await with_files(self._host.store, sent)

    async def _warn(self, recorder: Recorder) -> None:
        """End this message, say in the conversation that the model goes round in circles, and begin the next."""
        await recorder.send(c.Finish(finish_reason="tool-calls"))
        now = self._host.clock.now_ms()
        part = PartRow(self._host.mint.part(), 0, {"type": "text", "text": WARNING}, now, now)
        row = MessageRow(self._host.mint.message(), self.session_id, "user", now, now, {"synthetic": True}, (part,))
        noted = SetTurn(self.turn.id, "running", data={"warned": last_call(recorder.fold.parts)})
        await recorder.close(InsertMessage(row), LinkMessage(self.turn.id, row.id), noted)
        self._stream.end()
        self.message_id = self._host.mint.message()
        self._stream = self._open_stream(None)
        self._publish("turn_started", message_id=self.message_id, user_message_id=row.id)

    # Ending

    async def _settle(self, recorder: Recorder, end: End | None, failure: BaseException | None) -> TurnOutcome:
        """The last chunks, then the unit that ends the turn or lets it wait."""
        now = self._host.clock.now_ms()
        failpoint("run.before_settle")
        if failure is not None:
            return await self._settle_failed(recorder, failure, now)
        if end is None:
            for part in recorder.fold.parts:
                if part.get("state") == "approval-requested":
                    recorder.withdraw(part["toolCallId"], self.signal.reason or "aborted")
            recorder.write(c.Abort(reason=self.signal.reason or "aborted"))
            await recorder.close(*settling(self.turn.id, "aborted", now, {"stopped": self.signal.reason}))
            return self._outcome_of("aborted", stopped=self.signal.reason)
        if end.reason == "waiting":
            recorder.write(c.Finish(finish_reason="tool-calls"))
            data = dict(with_waits(end.waits))
            await recorder.close(SetTurn(self.turn.id, "waiting", data=data), seal=False)
            return self._outcome_of("waiting")
        stopped = {"step_limit": "step_limit", "doom": "doom_loop"}.get(end.reason)
        recorder.write(c.Finish(finish_reason="other" if stopped else "stop"))
        data = {"stopped": stopped} if stopped else {}
        await recorder.close(*settling(self.turn.id, "completed", now, data))
        return self._outcome_of("completed", stopped=stopped)

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
        try:
            self._stream.show([c.Error(error_text=problem["message"]), c.Finish(finish_reason="error")])
        except Exception:
            log.exception("viewers of %s could not be told", self.session_id)
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


def _problem(error: BaseException) -> dict[str, Any]:
    if isinstance(error, ClewError):
        return {"code": error.code, "message": str(error)}
    return {"code": InternalError.code, "message": f"something went wrong inside clew: {type(error).__name__}: {error}"}


def waits_shown(waits: Sequence[Wait]) -> tuple[Any, ...]:
    """The waits that still have no answer, as a status shows them."""
    return tuple(wait.shown() for wait in waits if wait.answer is None)
