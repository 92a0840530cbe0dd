"""Upkeep: compaction and pruning of a session nobody runs on, by hand or after a turn, and its gauge.

While it summarises, the session is occupied: prompts wait in the queue, everything else that would move the head is
told that it is busy, and an abort ends the occupation as it would end a run.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from clew.compaction.prune import plan_prune
from clew.errors import ClewError, RunAborted
from clew.runtime.compact import Compacted, Compactor, plan_compaction
from clew.runtime.context import Context, ContextReport, load_context, report, session_policy
from clew.runtime.host import Host, Setting
from clew.runtime.room import commit_pruned
from clew.runtime.setting import resolve
from clew.store.base import get_session
from clew.store.unit import AddPruned
from clew.tools.base import Signal
from clew.transcript.session import Model, Session

if TYPE_CHECKING:
    from clew.runtime.desk import Desk

__all__ = ["Upkeep"]

log = logging.getLogger("clew.upkeep")


class Upkeep:
    """Makes room in sessions of one engine."""

    def __init__(self, host: Host, desk: Desk) -> None:
        self._host = host
        self._desk = desk

    async def context(self, session_id: str, model: str | Model | dict[str, Any] | None = None) -> ContextReport:
        """The gauge: what the next call would send. Reads, and changes nothing."""
        session = await get_session(self._host.store, session_id)
        return report(await load_context(self._host, await self._setting(session, model)))

    async def compact(self, session_id: str, focus: str | None) -> Compacted:
        """Summarise what lies before the newest turns. Nothing to do is an answer, not an error."""
        async with self._desk.lock(session_id):
            session = await self._desk.take(session_id)
            busy = await self._desk.busy(session_id)
            if busy is not None:
                raise busy
            occupied = await self._desk.occupations.enter(session_id, "summarising earlier turns")
            # A task of its own: whoever asked for it may leave, and the session must become free all the same.
            work = self._desk.hold(self._by_hand(session, occupied, focus))
        return await asyncio.shield(work)

    async def _by_hand(self, session: Session, occupied: Signal, focus: str | None) -> Compacted:
        try:
            return await self._until_aborted(occupied, session, focus, auto=False)
        finally:
            await self._desk.occupations.leave(session.id)

    async def prune(self, session_id: str) -> Compacted:
        """Turn every tool output that is not protected into a stub for the model."""
        async with self._desk.lock(session_id):
            session = await self._desk.take(session_id)
            busy = await self._desk.busy(session_id)
            if busy is not None:
                raise busy
            context = await load_context(self._host, await self._setting(session))
            before = context.size.used
            planned = plan_prune(
                context.messages,
                context.policy,
                used=before,
                limit=context.window.limit,
                at=self._host.clock.now_ms(),
                already=context.prunes,
                base_index=context.offsets,
                by_hand=True,
            )
            if not planned:
                return Compacted(compacted=False, tokens_before=before, tokens_after=before)
            state = await self._host.store.load_state(session_id)
            await commit_pruned(self._host, session_id, AddPruned(planned), state.epoch)
            after = await load_context(self._host, context.setting)
            self._desk.updated(session_id)
            return Compacted(
                compacted=True,
                strategy="prune",
                tokens_before=before,
                tokens_after=after.size.used,
                pruned=len(planned),
            )

    async def wants_after_turn(self, session: Session) -> bool:
        """The settings say that room is made once a turn has ended, and it has become necessary."""
        policy = session_policy(self._host.config, session)
        if not policy.enabled or policy.when != "after_turn":
            return False
        try:
            return (await load_context(self._host, await self._setting(session))).fires
        except ClewError as error:
            log.warning("session %s was not looked over after its turn: %s", session.id, error)
            return False

    async def after_turn(self, session_id: str, occupied: Signal) -> None:
        """Compact if the turn that just ended made it necessary; a failure is only logged."""
        try:
            session = await get_session(self._host.store, session_id)
            await self._until_aborted(occupied, session, None, auto=True)
        except ClewError as error:
            log.warning("session %s was not compacted after its turn: %s", session_id, error)
        finally:
            await self._desk.occupations.leave(session_id, fire=True)

    # Inside

    async def _setting(self, session: Session, model: str | Model | dict[str, Any] | None = None) -> Setting:
        return await resolve(self._host, session, model=model, agent=None, attended=False)

    async def _until_aborted(self, signal: Signal, session: Session, focus: str | None, *, auto: bool) -> Compacted:
        work = asyncio.get_running_loop().create_task(self._compact(session, focus, auto=auto))
        abort = asyncio.get_running_loop().create_task(signal.wait())
        try:
            await asyncio.wait({work, abort}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise RunAborted(f"the compaction was aborted: {signal.reason}", session_id=session.id)
            return await work
        finally:
            abort.cancel()
            if not work.done():
                work.cancel()
                await asyncio.wait({work}, timeout=2)

    async def _compact(self, session: Session, focus: str | None, *, auto: bool) -> Compacted:
        context = await load_context(self._host, await self._setting(session))
        if auto and not context.fires:
            return _nothing(context)
        plan = plan_compaction(context, open_turn_id=None, inside=False, auto=auto, focus=focus)
        if plan is None:
            return _nothing(context)
        state = await self._host.store.load_state(session.id)

        async def waiting(message: str) -> None:
            self._desk.occupations.tell(session.id, message)

        done = await Compactor(self._host, waiting).compact(context, plan, epoch=state.epoch, open_turn=None)
        self._desk.updated(session.id)
        return done


def _nothing(context: Context) -> Compacted:
    return Compacted(compacted=False, tokens_before=context.size.used, tokens_after=context.size.used)
