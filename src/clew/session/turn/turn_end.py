"""The end of a turn: settled, waiting for a human, refused, or left unstored because the store did not accept it."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from clew.errors import ClewError, ContextTooLarge, SessionNotFound, StaleEpoch, StorageFull, StoreError
from clew.providers.base import ProviderFailure
from clew.session.acquire.acquire import SHUTDOWN, plan_end, plan_refusal
from clew.session.cluster.lease import LEASE_LOST
from clew.session.host import Host
from clew.session.progress import problem_of
from clew.session.prompt.submission import TurnOutcome
from clew.session.prompt.turn_config import ShownModel, TurnConfig
from clew.session.turn.loop import End
from clew.session.turn.recorder import Recorder
from clew.session.turn.run_stream import RunStream
from clew.session.turn.unstored import problem_with_loss, settle_short
from clew.store.unit import EpochIs, PatchSession, Refused, SetTurn, Unit, Write
from clew.tools.base import Signal
from clew.transcript import chunk as c
from clew.transcript.metadata import MODEL_WAS_KEY, PICKED_KEY, VARIANT_KEY
from clew.transcript.part import call_id_of, state_of
from clew.transcript.turn import Turn, finish_of
from clew.transcript.turn_state import TurnStatus
from clew.transcript.wait import with_waits

__all__ = ["TurnEnd", "plan_model"]

log = logging.getLogger("clew.run")


class TurnEnd(msgspec.Struct):
    """A turn that ends, and how to store that. ``superseded`` and ``unsettled`` are set with the outcome."""

    host: Host
    config: TurnConfig
    turn: Turn
    message_id: str
    epoch: int
    stream: RunStream
    signal: Signal
    max_steps: int
    superseded: bool = False
    """Another replica continues or has settled the turn: the end of this run is not published."""
    unsettled: bool = False
    """The run has ended, but the store did not accept its end."""

    async def settle(
        self, recorder: Recorder, end: End | None, failure: BaseException | None, *, steps: int
    ) -> TurnOutcome:
        """Record the last chunks, then the unit that ends the turn or lets it wait. ``steps``: those that were made."""
        now = self.host.clock.now_ms()
        self.stream.keep_back()
        try:
            if failure is None:
                return await self._settle_ended(recorder, end, now)
        except StorageFull as full:
            failure = full
        return await self._settle_failed(recorder, failure, now, steps)

    async def _settle_ended(self, recorder: Recorder, end: End | None, now: int) -> TurnOutcome:
        if end is None and self.signal.reason == LEASE_LOST:
            # Another replica may have acquired the session: it settles the turn.
            recorder.abandon()
            self.superseded = True
            return self._outcome_of("aborted", stopped=LEASE_LOST)
        if end is None and self.signal.reason == SHUTDOWN and self.host.config.resume == "safe":
            # The turn stays open for the next process, which resumes or settles it.
            try:
                await recorder.flush()
            except Exception:
                self.unsettled = True
            recorder.abandon()
            self.stream.keep_back(c.Abort(reason=SHUTDOWN))
            return self._outcome_of("aborted", stopped=SHUTDOWN)
        if end is None:
            for part in recorder.fold.parts:
                if state_of(part) == "approval-requested":
                    recorder.withdraw(call_id_of(part) or "", self.signal.reason or "aborted")
            recorder.write(c.Abort(reason=self.signal.reason or "aborted"))
            await recorder.close(*plan_end(self.turn.id, "aborted", now, {"stopped": self.signal.reason}))
            return self._outcome_of("aborted", stopped=self.signal.reason)
        if end.reason == "waiting":
            recorder.write(c.Finish(finish_reason="tool-calls"))
            await recorder.close(SetTurn(self.turn.id, "waiting", data=dict(with_waits(end.waits))), seal=False)
            return self._outcome_of("waiting")
        stopped = None if end.reason == "done" else "doom_loop" if end.reason == "doom" else end.reason
        recorder.write(c.Finish(finish_reason=finish_of(stopped)))
        # An abort that came too late has already been noted in the turn.
        data: dict[str, Any] = {"stopped": stopped} if stopped or self.signal.aborted else {}
        if stopped == "step_limit":
            data["max_steps"] = self.max_steps
        await recorder.close(*plan_end(self.turn.id, "completed", now, data))
        return self._outcome_of("completed", stopped=stopped)

    async def refuse(self, refusal: ContextTooLarge, start: c.Start) -> TurnOutcome:
        """Refuse the turn before any model call: the head does not move, and the prompt is handed back."""
        host, session_id = self.host, self.config.session.id
        line = await host.store.load_line(session_id, through=self.turn.id, turns=1, keep_damaged=True)
        turn, rows = line.turns[-1].turn, line.turns[-1].messages
        text = "\n".join(next((row.texts for row in rows if row.role == "user"), ()))
        problem = {**problem_of(refusal), "text": text}
        resent = self.turn.status == "unanswered"
        on_head = (await host.store.load_state(session_id)).head_turn_id == turn.id
        messages, data = [row.id for row in rows], {"error": problem}
        writes = plan_refusal(turn.id, messages, host.clock.now_ms(), data, resent=resent, on_head=on_head)
        unit = Unit(session_id, writes, (EpochIs(self.epoch),), sync="power")
        if isinstance(await host.store.commit(unit), Refused):
            raise StaleEpoch("a newer run has acquired the session", session_id=session_id)
        finish = c.Finish(finish_reason="error")
        self.stream.keep_back(start, c.Error(error_text=problem["message"]), finish)
        return self._outcome_of("refused", error=problem)

    async def _settle_failed(self, recorder: Recorder, failure: BaseException, now: int, steps: int) -> TurnOutcome:
        problem = problem_of(failure)
        try:
            recorder.write(c.Error(error_text=problem["message"]))
            recorder.write(c.Finish(finish_reason="error"))
            refused = isinstance(failure, ContextTooLarge) or (
                isinstance(failure, ProviderFailure) and failure.kind in ("invalid", "auth", "overflow")
            )
            restored: tuple[Write, ...] = ()
            if refused and not steps:
                # The model accepted nothing at all: the session returns to its previous model.
                restored = await plan_model(self.host, self.config, self.config.turn_model, self.config.stored_model)
            # An abort that came too late has already been noted in the turn.
            data = {"error": problem, **({"stopped": None} if self.signal.aborted else {})}
            await recorder.close(*plan_end(self.turn.id, "failed", now, data), *restored)
        except Exception as error:
            cause = failure if isinstance(failure, StoreError) else error
            short = await settle_short(recorder.close_short, self.turn.id, cause, now)
            if short is None:
                return self.end_unstored(cause, recorder)
            recorder.abandon()
            problem = short
            self.stream.keep_back(c.Error(error_text=problem["message"]), c.Finish(finish_reason="error"))
        return self._outcome_of("failed", error=problem)

    def end_unstored(self, error: BaseException, recorder: Recorder | None) -> TurnOutcome:
        """End without storing anything. Viewers get the error; the turn is settled when the session is next used."""
        if recorder is not None:
            recorder.abandon()
        if self.host.lease.shared and isinstance(error, StaleEpoch | SessionNotFound):
            # The turn continues, was settled or was deleted elsewhere: the end of this run is not published.
            self.superseded = True
            return self._outcome_of("failed", error=problem_of(error))
        if not isinstance(error, ClewError):
            log.error("a run on %s failed unexpectedly", self.config.session.id, exc_info=error)
        self.unsettled = True
        problem = problem_with_loss(error, *(recorder.unstored.lost(recorder.fold) if recorder is not None else (0, 0)))
        # No `finish`: viewers would take the end as stored.
        self.stream.keep_back(c.Error(error_text=problem["message"]))
        return self._outcome_of("failed", error=problem)

    def _outcome_of(
        self, status: TurnStatus, *, stopped: str | None = None, error: dict[str, Any] | None = None
    ) -> TurnOutcome:
        return TurnOutcome(self.turn.id, self.message_id, status, stopped, error)


async def plan_model(host: Host, config: TurnConfig, old: ShownModel, new: ShownModel) -> tuple[Write, ...]:
    """Give the session another model and variant, unless a client has picked one meanwhile."""
    session = await host.store.find_session(config.session.id) if old != new else None
    (before, _), (model, variant) = old, new
    if session is None or session.model != before:
        return ()
    # Naming another model in a prompt is the newer choice.
    drop = () if model.plain == before.plain else (PICKED_KEY,)
    metadata = {VARIANT_KEY: variant} if variant is not None else {}
    if config.fallback_for.get("model") == str(before):
        metadata[MODEL_WAS_KEY] = str(before)
    return (PatchSession(model=model, metadata=metadata, drop=drop),)
