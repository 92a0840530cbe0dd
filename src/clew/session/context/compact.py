"""Compaction: carry out a plan, get a summary for it, and write both as one unit.

The plan is pure and the unit is atomic, so a compaction that is killed half-way has no effect. The summarised messages
stay stored; the unit adds a turn with a marker message and moves the head to it. If a turn is open, the marker's turn
is inserted between the head and that turn.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import msgspec

from clew.compaction import plan as plans
from clew.compaction.context import Context
from clew.compaction.policy import session_policy
from clew.compaction.record import to_part
from clew.compaction.summary import SummaryRejected
from clew.errors import ClewError, RunAborted, SessionBusy
from clew.failpoints import failpoint
from clew.live.base import Event
from clew.long_work import go_through, let_go
from clew.session.acquire.live_sessions import LiveSessions, Occupancy
from clew.session.affected_tree import AffectedTree, load_affected, load_deeper
from clew.session.cancellable import run_until
from clew.session.context.context import load_context, load_idle_context
from clew.session.context.summarise import Summariser, SummaryFailed
from clew.session.host import Host
from clew.session.prompt.admission import next_row_at
from clew.session.prompt.files import holds_files, with_files
from clew.session.prompt.turn_config import resolve
from clew.store import unit as u
from clew.store.base import Moment
from clew.store.unit import AddPruned, EpochIs, Refused, Unit
from clew.transcript.head import moved, newly_hidden, with_turn
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.projection import CompactionTail
from clew.transcript.session import Session
from clew.transcript.turn import Tree, Turn, with_parent

__all__ = ["Compacted", "Compactor", "commit_pruned", "compact_idle", "needs_compaction", "prune_idle"]

log = logging.getLogger("clew.compaction")


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a compaction. ``turns`` is the number of earlier turns that the summary covers."""

    compacted: bool
    message_id: str | None = None
    strategy: str | None = None
    tokens_before: int = 0
    tokens_after: int = 0
    turns: int = 0
    pruned: int = 0


class Compactor:
    """The executor of one session's compaction plans. ``waiting`` is called with the reason for a delay.

    Failing summaries delay it by the configured time in all, however many it tries.
    """

    def __init__(self, host: Host, session: Session, waiting: Callable[[str], Awaitable[None]]) -> None:
        self._host = host
        self._session = session
        self._waiting = waiting
        self._wasted_ms = 0.0

    async def compact(self, context: Context, plan: plans.Plan, *, epoch: int, open_turn: Turn | None) -> Compacted:
        """Run a plan. Raise ``CompactionError`` if no summary can be had, ``HookRefused`` if a hook refuses it."""
        turn_id = open_turn.id if open_turn else None
        with self._host.telemetry.compaction(self._session.id) as doing:
            plan = await self._host.hooks.change("before_compaction", plan, self._session, turn_id)
            written, warning = await self._summary(context, plan, open_turn)
            failpoint("compact.before_commit")
            done = await self._commit(context, plan, written, warning, epoch, open_turn)
            doing.ended = done.strategy or "none"
        data = {"session_id": plan.session_id, **msgspec.to_builtins(done), "auto": plan.auto}
        self._host.live.publish(Event("context_compacted", data))
        self._host.hooks.observe("after_compaction", done, self._session, turn_id)
        return done

    async def _summary(
        self, context: Context, plan: plans.Plan, open_turn: Turn | None
    ) -> tuple[plans.WrittenSummary, str | None]:
        """Return the summary and, if it is not the intended one, why."""

        def report() -> plans.SummaryTask:
            task = plans.plan_summary(context, plan, self._session.workspace_root)
            for message in task.messages:
                holds_files(message)
            return task

        task = await go_through(plan.cut.summarised, report)
        turn_id = open_turn.id if open_turn is not None else None
        model, policy = context.frame.model, context.policy
        began, left_ms = self._host.clock.monotonic_ms(), policy.timeout_ms - self._wasted_ms
        summariser = Summariser(
            self._host, self._session, model, policy, self._waiting, time_ms=left_ms, turn_id=turn_id
        )
        try:
            # A summary by rule quotes the user's requests, and the text of a file is not one.
            expanded = await with_files(self._host.store, task.messages, None, self._session.owner)
            text, strategy = await summariser.summarise(msgspec.structs.replace(task, messages=tuple(expanded)))
            by = str(summariser.model)
            return plans.written_by_model(text, task, plan, strategy, summariser.usage, by), plan.cut.warning
        except (SummaryFailed, SummaryRejected) as failure:
            self._wasted_ms += self._host.clock.monotonic_ms() - began
            too_large = isinstance(failure, SummaryFailed) and failure.too_large
            if not context.policy.drop_middle or not (too_large or plan.must):
                # It still fits for now: the turn continues as it is, and the next one tries again.
                raise
            log.warning("session %s: no summary; the middle is left out instead: %s", plan.session_id, failure)
            return plans.written_by_rule(task, plan, summariser.usage), str(failure)

    async def _commit(
        self,
        context: Context,
        plan: plans.Plan,
        written: plans.WrittenSummary,
        warning: str | None,
        epoch: int,
        open_turn: Turn | None,
    ) -> Compacted:
        host, session_id = self._host, plan.session_id
        now = next_row_at(host, await host.store.newest_message_at(session_id))
        marker_id = host.mint.message()
        data = await go_through(context.messages, plans.compaction_data_of, context, plan, written, warning, marker_id)
        part = PartRow(host.mint.part(), 0, to_part(data), now, now)
        affected = await load_covered(host.store, session_id, open_turn, data.tail_start_id, now)
        marker = MessageRow(marker_id, session_id, "assistant", now, now, {"synthetic": True, "summary": True}, (part,))
        turn = Turn(
            id=host.mint.turn(),
            session_id=session_id,
            parent_turn_id=affected.to,
            created_at=now,
            kind="compaction",
            status="completed",
            settled_at=now,
            data=plans.turn_data(data, plan.cut),
        )
        unit = await go_through(
            plan.cut.summarised,
            plan_marker,
            affected.tree,
            affected.tails,
            turn,
            marker,
            data.tail_start_id,
            epoch=epoch,
            open_turn=open_turn,
        )
        if isinstance(await host.store.commit(unit), u.Refused):
            raise SessionBusy("the session changed while it was being summarised; try again", session_id=session_id)
        return Compacted(
            compacted=True,
            message_id=marker_id,
            strategy=data.strategy,
            tokens_before=data.tokens_before,
            tokens_after=data.tokens_after,
            turns=data.turns,
        )


async def load_covered(
    store: Moment, session_id: str, open_turn: Turn | None, tail_start_id: str, now: int
) -> AffectedTree:
    """Load the part of the tree that a summary affects which keeps all from ``tail_start_id`` on.

    Its ``to`` is the parent of the summary's turn.
    """

    async def ask(held: Moment) -> AffectedTree:
        head = (await held.load_state(session_id)).head_turn_id
        below, has_child = open_turn, False
        if open_turn is not None and open_turn.id == head:
            below = await held.find_turn(open_turn.id)
            has_child = await held.has_child(session_id, open_turn.id, refused=True)
        parent = plans.parent_of_marker(head, below, has_child=has_child)
        affected = await load_affected(held, session_id, parent, now)
        return await load_deeper(held, affected, {tail_start_id}, now) if affected.is_cut else affected

    return await store.at_once(session_id, ask)


def plan_marker(
    tree: Tree,
    tails: tuple[CompactionTail, ...],
    turn: Turn,
    marker: MessageRow,
    tail_start_id: str,
    *,
    epoch: int,
    open_turn: Turn | None,
) -> u.Unit:
    """Return the unit that adds a compaction's turn with its marker, moves the head to it and updates projections.

    An open turn becomes its child.
    """
    session_id, now = turn.session_id, turn.created_at
    grown = moved(with_turn(tree, turn, (marker.id,)), session_id, turn.id, now, "compaction")
    writes: list[u.Write] = [
        u.OpenTurn(turn),
        u.InsertMessage(marker),
        u.SealMessage(marker.id, marker.seal),
        u.LinkMessage(turn.id, marker.id),
        u.MoveHead(turn.id, now, "compaction"),
    ]
    guards: list[u.Guard] = [u.EpochIs(epoch), u.HeadIs(tree.head_turn_id)]
    if open_turn is not None:
        writes.append(u.MoveTurn(open_turn.id, turn.id))
        guards.append(u.OpenTurnIs(open_turn.id))
        below = with_parent(grown.turns[open_turn.id], grown.turns[turn.id])
        grown = msgspec.structs.replace(grown, turns={**grown.turns, open_turn.id: below})
    else:
        guards.append(u.NoOpenTurn())
    hidden = newly_hidden(tree, grown, tails, (*tails, CompactionTail(turn.id, tail_start_id, now)))
    if hidden:
        writes.append(u.SetHidden(hidden))
    return u.Unit(session_id, tuple(writes), tuple(guards), sync="power")


# Idle sessions


async def needs_compaction(host: Host, session: Session) -> bool:
    """Return whether the settings ask for compaction after a turn and the threshold is reached."""
    policy = session_policy(host.config, session)
    if not policy.enabled or policy.when != "after_turn":
        return False
    try:
        return (await load_idle_context(host, session)).fires
    except ClewError as error:
        log.warning("session %s: could not check for compaction after its turn: %s", session.id, error)
        return False


async def compact_idle(
    host: Host, sessions: LiveSessions, session: Session, occupancy: Occupancy, focus: str | None, *, auto: bool
) -> Compacted:
    """Summarise what lies before the newest turns, until done or until ``occupancy`` is aborted.

    With ``auto``, only if the threshold is reached.
    """

    async def report(message: str) -> None:
        sessions.show(session.id, occupancy.status(message))

    async def compact() -> Compacted:
        plan = None
        context = await load_idle_context(host, session)
        if context.fires or not auto:
            plan = await go_through(
                context.messages,
                plans.plan_compaction,
                context,
                session.id,
                open_turn_id=None,
                inside=False,
                auto=auto,
                focus=focus,
            )
        if plan is None:
            return Compacted(compacted=False, tokens_before=context.size.used, tokens_after=context.size.used)
        await report(plan.doing)
        epoch = occupancy.epoch
        if epoch is None:
            epoch = (await host.store.load_state(session.id)).epoch
        done = await Compactor(host, session, report).compact(context, plan, epoch=epoch, open_turn=None)
        sessions.show_changed(session.id)
        let_go(context.line, context.messages)
        return done

    work = await run_until(compact(), occupancy.signal.on_abort, grace_s=2)
    if not work.done() or work.cancelled():
        raise RunAborted(f"the compaction was aborted: {occupancy.signal.reason}", session_id=session.id)
    return work.result()


async def prune_idle(host: Host, session: Session) -> Compacted:
    """Replace every unprotected tool output with a stub for the model."""
    config = await resolve(host, session, model=None, agent=None, attended=False)
    context = await load_context(host, config)
    before = context.size.used
    planned = context.plan_prune(host.clock.now_ms(), by_hand=True)
    if not planned:
        return Compacted(compacted=False, tokens_before=before, tokens_after=before)
    state = await host.store.load_state(session.id)
    if not await commit_pruned(host, session.id, AddPruned(planned), state.epoch):
        raise SessionBusy("the session was acquired by another run", session_id=session.id)
    after = (await load_context(host, config)).size.used
    return Compacted(compacted=True, strategy="prune", tokens_before=before, tokens_after=after, pruned=len(planned))


async def commit_pruned(host: Host, session_id: str, write: AddPruned, epoch: int) -> bool:
    """Record a prune; return whether it was accepted. One that a newer run made obsolete is no loss."""
    outcome = await host.store.commit(Unit(session_id, (write,), (EpochIs(epoch),), sync="power"))
    if isinstance(outcome, Refused):
        log.info("a prune of session %s was refused: %s", session_id, outcome.reason)
    return not isinstance(outcome, Refused)
