"""The plan of a compaction: where it cuts, what the summariser is given, and what is recorded of it. Pure.

Carried out by :mod:`clew.runtime.compact`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from clew.compaction.budget import USUAL, Ruler, estimate_message, estimate_tokens
from clew.compaction.context import Context
from clew.compaction.cut import Cut, plan_cut
from clew.compaction.directive import Directive, directives_of, with_directives
from clew.compaction.files import Files, file_tags, files_of
from clew.compaction.parse import check_smaller
from clew.compaction.record import CompactionData, Range, Strategy
from clew.compaction.serialise import without_tags
from clew.compaction.summary import mechanical_summary
from clew.errors import CompactionError
from clew.fit import fit
from clew.transcript.message import Message, MessageRow
from clew.transcript.part import output_text
from clew.transcript.pruned import Pruned, prune_part
from clew.transcript.turn import Turn
from clew.transcript.usage import Usage
from clew.transcript.view import Compaction, Split, compaction_data, summary_messages

__all__ = [
    "Plan",
    "SummaryTask",
    "WrittenSummary",
    "compaction_data_of",
    "find_branch",
    "parent_of_marker",
    "plan_compaction",
    "plan_summary",
    "turn_data",
    "written_by_model",
    "written_by_rule",
]

_LEAST_SUMMARY: Final = 48
"""Tokens below which a summary could not hold its headings."""
_TOLD_CHARS: Final = 500
"""Of each end of an output. What came of it stands in what the model said since; the rest can be recalled."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a compaction would do: where it cuts, and how long its summary may be. A hook may change ``focus``.

    ``must``: what is there now cannot be sent, so that a poor summary is better than none. ``inside``: made between two
    steps of a turn.
    """

    session_id: str
    cut: Cut
    summary_tokens: int
    replaced_tokens: int
    summarised_tokens: int
    tokens_before: int
    auto: bool
    must: bool
    ruler: Ruler = USUAL
    inside: bool = False
    focus: str | None = None

    @property
    def doing(self) -> str:
        """What is done while it is carried out, in words."""
        count = self.cut.turns
        return f"summarising {count} earlier turn{'' if count == 1 else 's'}" if count else "summarising earlier steps"


class SummaryTask(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be summarised, for whom, and how long the text may be."""

    messages: tuple[Message, ...]
    previous: str | None
    focus: str | None
    directives: tuple[Directive, ...]
    files: Files
    summary_tokens: int


class WrittenSummary(msgspec.Struct, frozen=True):
    """The summary as it will be stored."""

    text: str
    strategy: Strategy
    directives: tuple[Directive, ...]
    files: Files
    usage: Usage
    model: str | None
    tokens: int


def plan_compaction(
    context: Context,
    session_id: str,
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
    ruler = context.ruler
    split = context.compaction.split if context.compaction else None
    cut = plan_cut(
        context.body,
        policy,
        usable=usable,
        room=room,
        open_turn_id=open_turn_id,
        inside=inside,
        ruler=ruler,
        split_id=split.message_id if split else None,
        split_reach=context.split_reach,
    )
    if cut is None:
        return None
    # A large message that has to stay leaves less for the summary, down to what its headings need.
    # Where nothing can be sent otherwise, a request without room to spare is better than none.
    must = force or context.overflows
    left = limit - fixed - cut.kept_tokens - (0 if must else min(window.reserve, limit // 10))
    fresh = sum(estimate_message(message, ruler) for message in cut.summarised)
    # With what stands behind it a summary must still be smaller than what it replaces.
    cap = min(cap, left * 2 // 3, (fresh + size.summary) * 3 // 5)
    if cap < _LEAST_SUMMARY:
        return None
    if auto and not must and fresh <= max(cap // 2, usable // 20):
        # So little would be gained that the next call would be here again: the summary there is stays as long.
        return None
    return Plan(
        session_id=session_id,
        cut=_absolute(cut, context),
        summary_tokens=cap,
        replaced_tokens=fresh + size.summary,
        summarised_tokens=fresh,
        tokens_before=context.estimated,
        auto=auto,
        must=must,
        ruler=ruler,
        inside=inside,
        focus=focus,
    )


def _absolute(cut: Cut, context: Context) -> Cut:
    """The cut with its split counted over the stored parts, of which earlier ones may no longer be sent."""
    if cut.split is not None:
        offset = context.offsets.get(cut.split.message_id, 0)
        return msgspec.structs.replace(cut, split=Split(cut.split.message_id, cut.split.from_part + offset))
    # A message that an earlier cut went through stays cut while it is kept: its first parts are told already.
    kept = [message.id for message in context.body[: context.split_reach]]
    if context.compaction is not None and cut.tail_start_id in kept:
        return msgspec.structs.replace(cut, split=context.compaction.split)
    return cut


def plan_summary(context: Context, plan: Plan, workspace_root: str | None = None) -> SummaryTask:
    """What the summariser is given, and what the compaction before this one recorded.

    Outputs go whole; between the steps of a long turn, which prunes its own first, only the ends of long ones.
    """
    originals = context.unpruned()
    ends = plan.inside and context.policy.prunes
    messages: list[Message] = []
    for message in plan.cut.summarised:
        whole = originals.get(message.id)
        # Of a split message only the parts that are summarised.
        parts = whole.parts[: len(message.parts)] if whole and len(whole.parts) >= len(message.parts) else message.parts
        messages.append(msgspec.structs.replace(message, parts=[_told(part) if ends else part for part in parts]))
    directives, files = _recorded_before(context.compaction)
    return SummaryTask(
        messages=tuple(messages),
        previous=context.compaction.summary if context.compaction else None,
        focus=plan.focus,
        directives=_newest((*directives, *directives_of(messages)), plan.summary_tokens // 2),
        files=files_of(messages, files, workspace_root),
        summary_tokens=plan.summary_tokens,
    )


def _told(part: dict[str, Any]) -> dict[str, Any]:
    """The part, of a long output only its ends."""
    text = output_text(part) or ""
    if len(text) <= 2 * _TOLD_CHARS:
        return part
    return prune_part(part, Pruned(0, "", 0, estimate_tokens(len(text)), _TOLD_CHARS, 0))


def _recorded_before(compaction: Compaction | None) -> tuple[tuple[Directive, ...], Files]:
    data: dict[str, Any] = (compaction_data(compaction.marker) if compaction else None) or {}
    try:
        return (
            fit(data.get("directives", ()), tuple[Directive, ...]),
            Files(
                fit(data.get("read_files", ()), tuple[str, ...]),
                fit(data.get("modified_files", ()), tuple[str, ...]),
                fit(data.get("more_read_files", 0), int),
                fit(data.get("more_modified_files", 0), int),
            ),
        )
    except msgspec.ValidationError:
        return (), Files((), ())


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


def written_by_model(
    text: str, task: SummaryTask, plan: Plan, strategy: Strategy, usage: Usage, model: str
) -> WrittenSummary:
    """A model's summary with the user's directives and the files behind it; refused when it is not smaller."""
    text, kept = with_directives(text, task.directives, limit_tokens=plan.summary_tokens // 4)
    # What stands in it was written by a model, and by the user it quotes: none of it may close the frame around it.
    text = without_tags(text).rstrip() + "\n" + file_tags(task.files, plan.summary_tokens // 4)
    tokens = estimate_tokens(len(text), plan.ruler)
    written = WrittenSummary(text, strategy, kept, task.files, usage, model, tokens)
    check_smaller(written.tokens, plan.replaced_tokens)
    return written


def written_by_rule(task: SummaryTask, plan: Plan, usage: Usage) -> WrittenSummary:
    """A summary without a model: the middle is left out."""
    text = mechanical_summary(
        task.messages, task.previous, task.directives, task.files, limit_tokens=plan.summary_tokens
    )
    kept, told = tuple(one for one in task.directives if one.text in text), without_tags(text)
    tokens = estimate_tokens(len(told), plan.ruler)
    written = WrittenSummary(told, "drop_middle", kept, task.files, usage, None, tokens)
    check_smaller(written.tokens, plan.replaced_tokens)
    return written


def parent_of_marker(head_turn_id: str | None, open_turn: Turn | None, *, has_child: bool) -> str | None:
    """The turn a compaction goes below: the head; where the open turn is the head itself, the one above that.

    An unanswered turn, and one that is continued after its step limit, are the head while they run. ``has_child``:
    whether any turn hangs below the open one.
    """
    if open_turn is None or head_turn_id != open_turn.id:
        return head_turn_id
    if has_child:
        raise CompactionError("there are turns below this one, whose history would change", turn_id=open_turn.id)
    return open_turn.parent_turn_id


def compaction_data_of(
    context: Context, plan: Plan, written: WrittenSummary, warning: str | None, marker_id: str
) -> CompactionData:
    """All that the compaction's part will say."""
    cut, paired = plan.cut, context.policy.frame == "pair"
    # What the next request will take, by the measure of what the last one took: estimated, as the gauge then does.
    marker = MessageRow("", "", "assistant", 0, 0, {}, ())
    sent = summary_messages(Compaction(marker, "", written.text, None, None, paired))
    after = context.estimated_frame + cut.kept_tokens
    after += sum(estimate_message(message, plan.ruler) for message in sent)
    return CompactionData(
        summary=written.text,
        tail_start_id=cut.tail_start_id or marker_id,
        split=cut.split,
        auto=plan.auto,
        summary_tokens=written.tokens,
        tokens_before=plan.tokens_before,
        tokens_after=after,
        summarised_tokens=plan.summarised_tokens,
        strategy=written.strategy,
        read_files=written.files.read,
        modified_files=written.files.modified,
        more_read_files=written.files.more_read or None,
        more_modified_files=written.files.more_modified or None,
        directives=written.directives,
        turns=cut.turns,
        turns_in_all=_turns_in_all(context, cut),
        messages=len(cut.summarised),
        range=Range(cut.summarised[0].id, cut.summarised[-1].id),
        focus=plan.focus,
        usage=written.usage,
        model=written.model,
        frame="pair" if paired else None,
        warning=warning,
        previous_id=context.compaction.marker.id if context.compaction else None,
    )


def _turns_in_all(context: Context, cut: Cut) -> int | None:
    """How many turns stand behind a summary that carries another one on; None where there is no other, or its count is
    not known: an older clew did not keep it."""
    if context.compaction is None:
        return None
    before = compaction_data(context.compaction.marker) or {}
    counted = before.get("turns_in_all", None if "previous_id" in before else before.get("turns"))
    # The turn that the earlier cut went through was counted there already.
    shared = int(bool(cut.summarised) and not cut.summarised[0].is_prompt and "split" in before)
    return counted + cut.turns - shared if isinstance(counted, int) else None


def turn_data(data: CompactionData, cut: Cut) -> dict[str, Any]:
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


def find_branch(context: Context, turn_id: str) -> dict[str, Any] | None:
    """A ready request for a branch with the longest tail that fits beside the turn that does not."""
    own = [message for message in context.body if message.turn_id == turn_id]
    before = [message for message in context.body if message.turn_id != turn_id]
    used = context.size.system + context.size.tools
    used += sum(estimate_message(message, context.ruler) for message in own)
    start: str | None = None
    for message in reversed(before):
        used += estimate_message(message, context.ruler)
        if used >= context.window.threshold:
            break
        if message.is_prompt:
            start = message.id
    if start is None:
        return None
    model = {"provider_id": context.frame.model.provider_id, "model_id": context.frame.model.model_id}
    return {"from_message_id": before[-1].id, "start_message_id": start, "model": model}
