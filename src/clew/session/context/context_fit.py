"""Context fitting: size a run's next request before it is sent and make it fit by pruning, compacting or refusing.

One per run. It caches what it loaded, since only this run adds to the line meanwhile, and reads again after its own
changes. A step that gained nothing is not tried twice.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from clew.compaction.budget import Count, Measured, Size, count_of
from clew.compaction.context import Context
from clew.compaction.plan import find_branch, plan_compaction
from clew.compaction.policy import session_policy
from clew.errors import CompactionError, ContextTooLarge, SessionNotFound
from clew.long_work import go_through, let_go
from clew.session.context.compact import Compactor, commit_pruned
from clew.session.context.context import (
    MeasuredLine,
    build_context,
    frame_of,
    load_counted,
    measured_context,
)
from clew.session.hooks import HookRefused
from clew.session.host import Host
from clew.session.progress import Progress, ways_out
from clew.session.prompt.turn_config import TurnConfig, refresh_environment
from clew.store.base import LineSlice
from clew.store.unit import AddPruned
from clew.transcript.message import Message
from clew.transcript.part import STEP_START, kind_of
from clew.transcript.turn import Turn
from clew.transcript.usage import Usage
from clew.transcript.view import find_compaction

__all__ = ["ContextFitter"]

log = logging.getLogger("clew.context")

Flush = Callable[[], Awaitable[None]]


class ContextFitter:
    """The sizer of one run's requests."""

    def __init__(
        self,
        host: Host,
        config: TurnConfig,
        turn: Turn,
        epoch: int,
        progress: Progress,
        counted: MeasuredLine | None = None,
    ) -> None:
        self._host = host
        self.config = config
        """The turn config of the run; refreshed with the environment after a compaction."""
        self._frame = frame_of(config)
        self._policy = session_policy(host.config, config.session)
        self._turn = turn
        self._epoch = epoch
        self._progress = progress
        self._compactor = Compactor(host, config.session, progress.compacting)
        self._line: LineSlice | None = None
        self._counted = counted
        self._measured: Measured | None = None
        self._counts: tuple[Count, ...] = ()
        self._asked: Size | None = None
        self._tried_plans: set[Any] = set()
        self._fitted: Context | None = None

    def set_config(self, config: TurnConfig) -> None:
        """Continue with another turn config, for example with other tools."""
        self.config, self._frame, self._fitted = config, frame_of(config), None

    def invalidate(self) -> None:
        """Read the line again before the next request, because a message of this turn has ended or was added."""
        self._line = self._counted = self._fitted = None

    def release(self) -> None:
        """End with the run. The parts of a run form a reference cycle that the garbage collector frees later; the line
        may be large, so it is released now."""
        line = self._line
        self.invalidate()
        if line is not None:
            let_go(line.turns)

    def record_usage(self, usage: Usage, message_id: str, parts: int) -> None:
        """Record a finished step: the provider has counted everything up to that part of the message."""
        # A step without usage is no measurement.
        self._counted = None
        self._measured = Measured(message_id, parts, usage.total) if usage.total else None
        if usage.total and self._asked is not None:
            self._counts = (*self._counts[-5:], count_of(usage, self._asked.chars, self._asked.others))

    async def fit(self, live: Message | None, *, inside: bool = False, flush: Flush | None = None) -> Context:
        """Return the next context, pruned and compacted as configured. ``inside``: the turn already has steps.

        ``flush`` makes the run's output so far durable; a prune or compaction may refer to any of it. Raise
        :class:`ContextTooLarge` when nothing helps.
        """
        fitted, self._fitted = self._fitted, None
        if fitted is not None and live is not None and [kind_of(part) for part in live.parts] == [STEP_START]:
            # Nothing was added since it was fitted without an answer.
            return fitted
        # A stub needs no model call as a summary does, so outputs are pruned first; often that is enough.
        whole = await self._context(live)
        context = await self._prune(whole, flush)
        # Within a turn a narrow fit is not enough: each of the next steps would have to prune again.
        due = context.fires or (inside and whole.fires and context.crowded)
        if self._must_compact(context, due=due):
            context = await self._compact(context, live, inside=inside, flush=flush)
        # Refused only by the plain count, never by the tenth that is added to an estimate.
        if context.overflows:
            raise self._too_large(context)
        self._asked, self._fitted = context.size, context if live is None else None
        return context

    async def find_fitting(self) -> Context | None:
        """Return the context of the turn's first request; None if the line was not given, or if the request needs
        pruning, compaction or refusal. Changes nothing."""
        if self._counted is None:
            return None
        context = await self._context(None)
        pruned = self._policy.prunes and context.plan_prune(self._host.clock.now_ms())
        if pruned or context.overflows or self._must_compact(context, due=context.fires):
            return None
        self._asked = context.size
        return context

    async def overflowed(self, live: Message, *, inside: bool, flush: Flush, again: bool) -> Context:
        """Return a smaller context once after the provider refused one as too large, else raise ``ContextTooLarge``."""
        context = await self._context(live)
        if again or not self._policy.enabled:
            raise self._too_large(context, by_provider=True)
        before = context.size.floor
        used = max(context.size.used, before)
        context = await self._prune(context, flush, aggressive=True)
        # The request did not fit, so the window is smaller than it: the next one must be well below.
        limit = max(used * 3 // 4, 1)
        context = await self._compact(context, live, inside=inside, flush=flush, limit=limit)
        # Compared by plain count: measured and estimated sizes are not comparable.
        if context.size.floor >= before:
            raise self._too_large(context, by_provider=True)
        self._asked = context.size
        return context

    def _must_compact(self, context: Context, *, due: bool) -> bool:
        return self._policy.enabled and (context.overflows or (due and self._policy.when == "before_call"))

    async def _context(self, live: Message | None) -> Context:
        if self._measured is None:
            self._counted = self._counted or await self._load()
            self._line = self._counted.line
            counted = self._counted
            context = await build_context(
                counted.line, lambda: measured_context(self._frame, self._policy, counted, live)
            )
            self._counts = context.counts
            return context
        if self._line is None:
            self._line = (await self._load()).line
        # Parts are measured by index in the stored message, of which the first ones may no longer be sent.
        compaction = find_compaction(self._line.turns)
        split, measured = compaction.split if compaction else None, self._measured
        if split is not None and split.message_id == measured.message_id:
            measured = Measured(measured.message_id, max(measured.parts - split.from_part, 0), measured.tokens)
        line, counts = self._line, self._counts

        def make() -> Context:
            return Context(
                self._frame, self._policy, line.turns, line.pruned, live=live, measured=measured, counts=counts
            )

        return await build_context(line, make)

    async def _load(self) -> MeasuredLine:
        counted = await load_counted(self._host.store, self.config.session.id, self._line)
        if counted is None:
            raise SessionNotFound("the session was deleted", session_id=self.config.session.id)
        return counted

    async def _prune(self, context: Context, flush: Flush | None, *, aggressive: bool = False) -> Context:
        if not (self._policy.prune_tool_outputs if aggressive else self._policy.prunes):
            return context
        now = self._host.clock.now_ms()
        planned = await go_through(context.messages, context.plan_prune, now, aggressive=aggressive)
        if not planned:
            return context
        if flush is not None:
            await flush()
        await commit_pruned(self._host, self.config.session.id, AddPruned(planned), self._epoch)
        self._changed()
        return await self._context(context.live)

    async def _compact(
        self, context: Context, live: Message | None, *, inside: bool, flush: Flush | None, limit: int | None = None
    ) -> Context:
        plan = await go_through(
            context.messages,
            plan_compaction,
            context,
            self.config.session.id,
            open_turn_id=self._turn.id,
            inside=inside,
            auto=True,
            limit=limit,
            force=limit is not None,
        )
        # A compaction that must free space may work without a summary, so it counts as another attempt.
        key = plan and (plan.cut.tail_start_id, plan.cut.split, len(plan.cut.summarised), plan.must)
        if plan is None or key in self._tried_plans:
            return context
        # Noted before its gain is known: what failed once in a run fails again, at the cost of a call each time.
        self._tried_plans.add(key)
        await self._progress.compacting(plan.doing)
        try:
            if flush is not None:
                # The marker may refer to parts of the message in progress, which must be stored before it.
                await flush()
            await self._compactor.compact(context, plan, epoch=self._epoch, open_turn=self._turn)
        except (CompactionError, HookRefused) as error:
            log.warning("session %s continues uncompacted: %s", self.config.session.id, error)
            await self._progress.running()
            return context
        self._changed()
        messages = (await self._context(live)).messages
        media = any(kind_of(part) == "file" for message in messages for part in message.parts)
        self.config = await refresh_environment(self._host, self.config, media=media)
        self._frame = frame_of(self.config)
        await self._progress.running()
        return await self._context(live)

    def _changed(self) -> None:
        self._line = self._counted = None
        self._measured = None

    def _too_large(self, context: Context, *, by_provider: bool = False) -> ContextTooLarge:
        """Return the error with the alternatives, including a branch with the newest turns that fit, if any.

        ``by_provider``: the provider refused it, whatever its window is assumed to be.
        """
        model, limit = self.config.model, context.window.limit
        branch = find_branch(context, self._turn.id)
        ways = "send less, or choose a model with a larger window"
        if not self._policy.enabled:
            ways = f"compact the session (compaction is disabled here), {ways}"
        if branch is not None:
            ways += ", or branch with the newest turns"
        ways += ", or prune tool outputs, or start a new session"
        why = f"the next request needs about {context.size.floor} tokens, but {model} accepts {limit}"
        if by_provider:
            why = f"{model} refused the request of about {context.size.floor} tokens as too large"
        session_id = self.config.session.id
        return ContextTooLarge(
            f"{why}: {ways}", session_id=session_id, branch=branch, ways=ways_out(session_id, branch)
        )
