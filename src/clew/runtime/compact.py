"""Compaction: plan what is summarised and what stays, get the summary, and write both as one unit.

The plan is pure and the unit is all or nothing, so a compaction that is killed half-way never happened. What was
summarised stays stored; the unit adds a turn with a marker message and moves the head onto it. For an open turn it
goes between the head and that turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from clew.compaction.budget import estimate_message, estimate_tokens
from clew.compaction.cut import Cut, plan_cut
from clew.compaction.prune import plan_prune
from clew.compaction.record import CompactionData, Range, Strategy, to_part
from clew.compaction.summary import (
    Directive,
    Files,
    SummaryRejected,
    check_smaller,
    directives_of,
    file_tags,
    files_of,
    mechanical_summary,
    with_directives,
    without_tags,
)
from clew.errors import ClewError, CompactionError, RunAborted, SessionBusy
from clew.failpoints import failpoint
from clew.live.base import Event
from clew.runtime.context import Context, ContextReport, load_context, report, session_policy
from clew.runtime.head_move import load_tails
from clew.runtime.host import Host, Setting
from clew.runtime.live_sessions import Hold, LiveSessions
from clew.runtime.setting import resolve
from clew.runtime.summarise import Summariser, Summary, SummaryFailed, Task, tokens_of
from clew.store.base import get_session
from clew.store.unit import (
    AddPruned,
    EpochIs,
    Guard,
    HeadIs,
    InsertMessage,
    LinkMessage,
    MoveHead,
    MoveTurn,
    NoOpenTurn,
    OpenTurn,
    OpenTurnIs,
    Refused,
    SealMessage,
    SetHidden,
    Unit,
    Write,
)
from clew.transcript.head import moved, newly_hidden, with_turn
from clew.transcript.message import Message, MessageRow, PartRow
from clew.transcript.project import Tail
from clew.transcript.seal import seal_of
from clew.transcript.session import Model, Session
from clew.transcript.turn import Tree, Turn, placed
from clew.transcript.usage import Usage
from clew.transcript.view import Compaction, Split, compaction_data, summary_messages

__all__ = [
    "Compacted",
    "Compactor",
    "Plan",
    "commit_pruned",
    "compact_idle",
    "load_gauge",
    "needs_compaction",
    "plan_compaction",
    "prune_idle",
]

log = logging.getLogger("clew.compaction")
_LEAST_SUMMARY = 48
"""Tokens below which a summary could not hold its headings."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a compaction would do: where it cuts, and how long its summary may be. A hook may change ``focus``.

    ``must``: what is there now cannot be sent, so that a poor summary is better than none.
    """

    session_id: str
    cut: Cut
    summary_tokens: int
    replaced_tokens: int
    tokens_before: int
    auto: bool
    must: bool
    focus: str | None = None


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it. ``turns`` is how many earlier turns the summary stands for."""

    compacted: bool
    message_id: str | None = None
    strategy: str | None = None
    tokens_before: int = 0
    tokens_after: int = 0
    turns: int = 0
    pruned: int = 0


def plan_compaction(
    context: Context,
    *,
    open_turn_id: str | None,
    inside: bool,
    auto: bool,
    focus: str | None = None,
    limit: int | None = None,
    force: bool = False,
) -> Plan | None:
    """Where to cut; None when nothing could be gained. ``limit`` is used instead of the window's own when given.

    ``force``: also when the gain would be small.
    """
    window, policy, size = context.window, context.policy, context.size
    limit = window.limit if limit is None else min(limit, window.limit)
    usable = max(min(window.threshold, limit - min(window.reserve, limit // 4)), 1)
    fixed = size.system + size.tools
    cap = policy.summary_cap(usable)
    # Behind the summary stand the user's directives and the lists of files: half as much again.
    room = max(usable - fixed - cap * 3 // 2, 0)
    cut = plan_cut(context.body, policy, usable=usable, room=room, open_turn_id=open_turn_id, inside=inside)
    if cut is None:
        return None
    # A large message that has to stay leaves less for the summary, down to what its headings need.
    # Where nothing can be sent otherwise, a request without room to spare is better than none.
    must = force or context.overflows
    left = limit - fixed - cut.kept_tokens - (0 if must else min(window.reserve, limit // 10))
    fresh = tokens_of(cut.summarised)
    # With what stands behind it a summary must still be smaller than what it replaces.
    cap = min(cap, left * 2 // 3, (fresh + size.summary) * 3 // 5)
    if cap < _LEAST_SUMMARY:
        return None
    if auto and not must and fresh <= max(cap // 2, usable // 20):
        # So little would be gained that the next call would be here again: the summary there is stays as long.
        return None
    return Plan(
        session_id=context.setting.session.id,
        cut=_absolute(cut, context),
        summary_tokens=cap,
        replaced_tokens=fresh + size.summary,
        tokens_before=size.used,
        auto=auto,
        must=must,
        focus=focus,
    )


def _absolute(cut: Cut, context: Context) -> Cut:
    """The cut with its split counted over the stored parts, of which earlier ones may no longer be sent."""
    if cut.split is not None:
        offset = context.offsets.get(cut.split.message_id, 0)
        return msgspec.structs.replace(cut, split=Split(cut.split.message_id, cut.split.from_part + offset))
    # A message that an earlier cut went through stays cut while it is kept: its first parts are told already.
    for message in cut.kept:
        if message.id in context.offsets:
            return msgspec.structs.replace(cut, split=Split(message.id, context.offsets[message.id]))
    return cut


class Compactor:
    """Carries plans out. ``waiting`` is told why it takes longer."""

    def __init__(self, host: Host, waiting: Callable[[str], Awaitable[None]]) -> None:
        self._host = host
        self._waiting = waiting

    async def compact(self, context: Context, plan: Plan, *, epoch: int, open_turn: Turn | None) -> Compacted:
        """Raises ``CompactionError`` when there is no summary to be had, ``HookRefused`` when a hook minds."""
        plan = await self._host.hooks.change("before_compaction", plan)
        summary, warning = await self._summary(context, plan)
        failpoint("compact.before_commit")
        done = await self._commit(context, plan, summary, warning, epoch, open_turn)
        self._host.live.publish(
            Event("context_compacted", {"session_id": plan.session_id, **_told(done, auto=plan.auto)})
        )
        self._host.hooks.observe("after_compaction", done)
        return done

    # The summary

    async def _summary(self, context: Context, plan: Plan) -> tuple[_Written, str | None]:
        before = _Before.of(context.compaction)
        originals = context.unpruned()
        messages = tuple(_original(message, originals, context) for message in plan.cut.summarised)
        directives = _newest((*before.directives, *directives_of(messages)), plan.summary_tokens // 2)
        files = files_of(messages, before.files)
        task = Task(
            messages=messages,
            previous=context.compaction.summary if context.compaction else None,
            focus=plan.focus,
            directives=directives,
            summary_tokens=plan.summary_tokens,
        )
        summariser = Summariser(self._host, context.setting.model, context.policy, self._waiting)
        try:
            made = await summariser.summarise(task)
            written = self._finished(made, plan, directives, files)
            check_smaller(written.tokens, plan.replaced_tokens)
            return written, plan.cut.warning
        except (SummaryFailed, SummaryRejected) as failure:
            too_large = isinstance(failure, SummaryFailed) and failure.too_large
            if not context.policy.drop_middle or not (too_large or plan.must):
                # It still fits for now: the turn goes on as it is, and the next one tries again.
                raise
            log.warning("session %s: the middle is left out, for want of a summary: %s", plan.session_id, failure)
            return self._mechanical(task, plan, files, summariser.usage), str(failure)

    def _finished(self, made: Summary, plan: Plan, directives: tuple[Directive, ...], files: Files) -> _Written:
        text, kept = with_directives(made.text, directives, limit_tokens=plan.summary_tokens // 4)
        # What stands in it was written by a model, and by the user it quotes: none of it may close the frame around it.
        text = without_tags(text).rstrip() + "\n" + file_tags(files, plan.summary_tokens // 4)
        return _Written(text, made.strategy, kept, files, made.usage, str(made.model))

    def _mechanical(self, task: Task, plan: Plan, files: Files, usage: Usage) -> _Written:
        text = mechanical_summary(
            task.messages, task.previous, task.directives, files, limit_tokens=plan.summary_tokens
        )
        kept = tuple(one for one in task.directives if one.text in text)
        written = _Written(without_tags(text), "drop_middle", kept, files, usage, None)
        check_smaller(written.tokens, plan.replaced_tokens)
        return written

    # The unit

    async def _commit(
        self, context: Context, plan: Plan, written: _Written, warning: str | None, epoch: int, open_turn: Turn | None
    ) -> Compacted:
        host, session_id = self._host, plan.session_id
        now = max(host.clock.now_ms(), await host.store.newest_message_at(session_id))
        tree = await host.store.load_tree(session_id)
        marker_id = host.mint.message()
        data = _record(context, plan, written, warning, marker_id)
        part = PartRow(host.mint.part(), 0, to_part(data), now, now)
        marker = MessageRow(marker_id, session_id, "assistant", now, now, {"synthetic": True, "summary": True}, (part,))
        turn = Turn(
            id=host.mint.turn(),
            session_id=session_id,
            parent_turn_id=_place_of(tree, open_turn),
            created_at=now,
            kind="compaction",
            status="completed",
            settled_at=now,
            data=_figures(context, data, plan.cut),
        )
        tails = await load_tails(host.store, session_id, tree)
        unit = plan_unit(tree, tails, turn, marker, data.tail_start_id, epoch=epoch, open_turn=open_turn)
        if isinstance(await host.store.commit(unit), Refused):
            raise SessionBusy("the session moved on while it was summarised", session_id=session_id)
        return Compacted(
            compacted=True,
            message_id=marker_id,
            strategy=data.strategy,
            tokens_before=data.tokens_before,
            tokens_after=data.tokens_after,
            turns=data.turns,
        )


def plan_unit(
    tree: Tree,
    tails: tuple[Tail, ...],
    turn: Turn,
    marker: MessageRow,
    tail_start_id: str,
    *,
    epoch: int,
    open_turn: Turn | None,
) -> Unit:
    """The unit that adds a compaction's turn with its marker, moves the head there, and writes the projections.

    An open turn is hung below it.
    """
    session_id, now = turn.session_id, turn.created_at
    grown = moved(with_turn(tree, turn, (marker.id,)), session_id, turn.id, now, "compaction")
    writes: list[Write] = [
        OpenTurn(turn),
        InsertMessage(marker),
        SealMessage(marker.id, seal_of(part.data for part in marker.parts)),
        LinkMessage(turn.id, marker.id),
        MoveHead(turn.id, now, "compaction"),
    ]
    guards: list[Guard] = [EpochIs(epoch), HeadIs(tree.head_turn_id)]
    if open_turn is not None:
        writes.append(MoveTurn(open_turn.id, turn.id))
        guards.append(OpenTurnIs(open_turn.id))
        below = placed(grown.turns[open_turn.id], grown.turns[turn.id])
        grown = msgspec.structs.replace(grown, turns={**grown.turns, open_turn.id: below})
    else:
        guards.append(NoOpenTurn())
    hidden = newly_hidden(tree, grown, tails, (*tails, Tail(turn.id, tail_start_id, now)))
    if hidden:
        writes.append(SetHidden(hidden))
    return Unit(session_id, tuple(writes), tuple(guards), sync="power")


class _Written(msgspec.Struct, frozen=True):
    """The summary as it will be stored."""

    text: str
    strategy: Strategy
    directives: tuple[Directive, ...]
    files: Files
    usage: Usage
    model: str | None

    @property
    def tokens(self) -> int:
        return estimate_tokens(len(self.text))


class _Before(msgspec.Struct, frozen=True):
    """What the compaction before this one recorded, and this one carries on."""

    directives: tuple[Directive, ...] = ()
    files: Files = Files((), ())

    @classmethod
    def of(cls, compaction: Compaction | None) -> _Before:
        data: dict[str, Any] = (compaction_data(compaction.marker) if compaction else None) or {}
        try:
            return cls(
                msgspec.convert(data.get("directives", ()), tuple[Directive, ...]),
                Files(
                    msgspec.convert(data.get("read_files", ()), tuple[str, ...]),
                    msgspec.convert(data.get("modified_files", ()), tuple[str, ...]),
                ),
            )
        except msgspec.ValidationError:
            return cls()


def _place_of(tree: Tree, open_turn: Turn | None) -> str | None:
    """The turn a compaction goes below: the head; where the open turn is the head itself, the one above that.

    An unanswered turn, and one that is continued after its step limit, are the head while they run.
    """
    if open_turn is None or tree.head_turn_id != open_turn.id:
        return tree.head_turn_id
    if any(turn.parent_turn_id == open_turn.id for turn in tree.turns.values()):
        raise CompactionError("there are turns below this one, whose history would change", turn_id=open_turn.id)
    return tree.turns[open_turn.id].parent_turn_id


def _size_after(context: Context, cut: Cut, summary: str) -> int:
    """What the next request will take, estimated as the gauge does."""
    paired = context.policy.frame == "pair"
    marker = MessageRow("", "", "assistant", 0, 0, {}, ())
    sent = summary_messages(Compaction(marker, "", summary, None, None, paired))
    return context.size.system + context.size.tools + sum(map(estimate_message, sent)) + cut.kept_tokens


def _original(message: Message, originals: dict[str, Message], context: Context) -> Message:
    """The message with its outputs whole. Of a split one only the parts that are summarised."""
    whole = originals.get(message.id)
    if whole is None or len(whole.parts) < len(message.parts):
        return message
    return msgspec.structs.replace(message, parts=whole.parts[: len(message.parts)])


def _newest(directives: Sequence[Directive], limit_tokens: int) -> tuple[Directive, ...]:
    """The newest directives that fit, in their order; each where it was said last."""
    kept: list[Directive] = []
    room = limit_tokens
    for one in reversed({one.text: one for one in directives}.values()):
        room -= estimate_tokens(len(one.text))
        if room < 0:
            break
        kept.append(one)
    return tuple(reversed(kept))


def _record(context: Context, plan: Plan, written: _Written, warning: str | None, marker_id: str) -> CompactionData:
    """All that the compaction's part will say."""
    cut = plan.cut
    return CompactionData(
        summary=written.text,
        tail_start_id=cut.tail_start_id or marker_id,
        split=cut.split,
        auto=plan.auto,
        summary_tokens=written.tokens,
        tokens_before=plan.tokens_before,
        tokens_after=_size_after(context, cut, written.text),
        strategy=written.strategy,
        read_files=written.files.read,
        modified_files=written.files.modified,
        directives=written.directives,
        turns=cut.turns,
        messages=len(cut.summarised),
        range=Range(cut.summarised[0].id, cut.summarised[-1].id),
        focus=plan.focus,
        usage=written.usage,
        model=written.model,
        frame="pair" if context.policy.frame == "pair" else None,
        warning=warning,
        previous_id=context.compaction.marker.id if context.compaction else None,
    )


def _figures(context: Context, data: CompactionData, cut: Cut) -> dict[str, Any]:
    """What the turn tells about itself without its marker being read."""
    summarised = [message.turn_id for message in cut.summarised]
    kept = [message.turn_id for message in cut.kept]
    return {
        "summarized_through_turn_id": summarised[-1] if summarised else None,
        "first_kept_turn_id": kept[0] if kept else None,
        "tokens_before": data.tokens_before,
        "tokens_after": data.tokens_after,
        "strategy": data.strategy,
        "turns": data.turns,
        # So that a marker that no longer reads costs its text and not its place.
        "tail_start_id": data.tail_start_id,
    }


def _told(done: Compacted, *, auto: bool) -> dict[str, Any]:
    return {**msgspec.to_builtins(done), "auto": auto}


# Sessions that nobody runs on


async def load_gauge(host: Host, session_id: str, model: str | Model | dict[str, Any] | None = None) -> ContextReport:
    """What the next call would send. Reads, and changes nothing."""
    session = await get_session(host.store, session_id)
    return report(await load_context(host, await _setting(host, session, model)))


async def needs_compaction(host: Host, session: Session) -> bool:
    """The settings say that room is made once a turn has ended, and it has become necessary."""
    policy = session_policy(host.config, session)
    if not policy.enabled or policy.when != "after_turn":
        return False
    try:
        return (await load_context(host, await _setting(host, session))).fires
    except ClewError as error:
        log.warning("session %s was not looked over after its turn: %s", session.id, error)
        return False


async def compact_idle(
    host: Host, sessions: LiveSessions, session: Session, hold: Hold, focus: str | None, *, auto: bool
) -> Compacted:
    """Summarise what lies before the newest turns, until it is done or ``hold`` is asked to end.

    ``auto``: only if the threshold is reached.
    """

    async def tell(message: str) -> None:
        sessions.show_held(hold, message)

    async def compact() -> Compacted:
        context = await load_context(host, await _setting(host, session))
        plan = None
        if context.fires or not auto:
            plan = plan_compaction(context, open_turn_id=None, inside=False, auto=auto, focus=focus)
        if plan is None:
            return Compacted(compacted=False, tokens_before=context.size.used, tokens_after=context.size.used)
        state = await host.store.load_state(session.id)
        done = await Compactor(host, tell).compact(context, plan, epoch=state.epoch, open_turn=None)
        sessions.show_changed(session.id)
        return done

    work = asyncio.get_running_loop().create_task(compact())
    abort = asyncio.get_running_loop().create_task(hold.signal.wait())
    try:
        await asyncio.wait({work, abort}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise RunAborted(f"the compaction was aborted: {hold.signal.reason}", session_id=session.id)
        return await work
    finally:
        abort.cancel()
        if not work.done():
            work.cancel()
            await asyncio.wait({work}, timeout=2)


async def prune_idle(host: Host, session: Session) -> Compacted:
    """Turn every tool output that is not protected into a stub for the model."""
    context = await load_context(host, await _setting(host, session))
    before = context.size.used
    planned = plan_prune(
        context.messages,
        context.policy,
        used=before,
        limit=context.window.limit,
        at=host.clock.now_ms(),
        already=context.prunes,
        base_index=context.offsets,
        by_hand=True,
    )
    if not planned:
        return Compacted(compacted=False, tokens_before=before, tokens_after=before)
    state = await host.store.load_state(session.id)
    await commit_pruned(host, session.id, AddPruned(planned), state.epoch)
    after = (await load_context(host, context.setting)).size.used
    return Compacted(compacted=True, strategy="prune", tokens_before=before, tokens_after=after, pruned=len(planned))


async def commit_pruned(host: Host, session_id: str, write: AddPruned, epoch: int) -> None:
    """Record a prune. One that a newer run made pointless is nobody's loss."""
    outcome = await host.store.commit(Unit(session_id, (write,), (EpochIs(epoch),), sync="power"))
    if isinstance(outcome, Refused):
        log.info("a prune of session %s was not taken: %s", session_id, outcome.reason)


async def _setting(host: Host, session: Session, model: str | Model | dict[str, Any] | None = None) -> Setting:
    return await resolve(host, session, model=model, agent=None, attended=False)
