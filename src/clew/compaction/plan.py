"""The plan of a compaction: where it cuts, the input of the summariser, and the record. Pure.

Executed by :mod:`clew.session.context.compact`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from clew.compaction.budget import DEFAULT_RULER, Ruler, estimate_message, estimate_tokens, rollup_used
from clew.compaction.context import Context
from clew.compaction.cut import Cut, plan_cut
from clew.compaction.directive import Directive, directives_of, with_directives
from clew.compaction.files import Files, file_tags, files_of
from clew.compaction.record import CompactionData, Range, Strategy
from clew.compaction.serialise import without_tags
from clew.compaction.summary import check_smaller, mechanical_summary
from clew.convert import convert
from clew.errors import CompactionError
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

_MIN_SUMMARY_TOKENS: Final = 48
"""Tokens below which a summary could not hold its headings."""
_OUTPUT_END_CHARS: Final = 500
"""Characters of each end of an output. The model has already used the output; the rest can be recalled."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A planned compaction: where it cuts, and how long its summary may be. A hook may change ``focus``.

    ``must``: the current request cannot be sent, so a poor summary is better than none. ``inside``: made between two
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
    ruler: Ruler = DEFAULT_RULER
    inside: bool = False
    focus: str | None = None

    @property
    def doing(self) -> str:
        """A label for the compaction while it runs."""
        count = self.cut.turns
        return f"summarising {count} earlier turn{'' if count == 1 else 's'}" if count else "summarising earlier steps"


class SummaryTask(msgspec.Struct, frozen=True, kw_only=True):
    """The input of the summariser, and the limit for its text."""

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
    """Return where to cut; None if there is nothing to gain. ``limit`` overrides the window's own limit.

    ``force``: plan it even if the gain is small.
    """
    window, policy, size = context.window, context.policy, context.size
    limit = window.limit if limit is None else min(limit, window.limit)
    usable = max(min(window.threshold, limit - min(window.reserve, limit // 4)), 1)
    fixed = size.system + size.tools
    cap = policy.summary_cap(usable)
    # The user's directives and the file lists follow the summary: half as much again.
    max_tail = max(usable - fixed - cap * 3 // 2, 0)
    ruler = context.ruler
    split = context.compaction.split if context.compaction else None
    cut = plan_cut(
        context.body,
        policy,
        usable=usable,
        max_tail=max_tail,
        open_turn_id=open_turn_id,
        inside=inside,
        ruler=ruler,
        split_id=split.message_id if split else None,
        split_reach=context.split_reach,
    )
    if cut is None:
        return None
    # A large message that has to stay leaves less room for the summary, down to what its headings need.
    # If nothing could be sent otherwise, a request without spare room is better than none.
    must = force or context.overflows
    available = limit - fixed - cut.tail_tokens - (0 if must else min(window.reserve, limit // 10))
    fresh = sum(estimate_message(message, ruler) for message in cut.summarised)
    # What leaves the view is measured as the threshold is: by a rollup, short turns free what they were billed.
    freed = fresh if policy.measure == "request" else max(fresh, rollup_used(cut.summarised))
    # With directives and files, a summary must still be smaller than what it replaces.
    cap = min(cap, available * 2 // 3, (freed + size.summary) * 3 // 5)
    if cap < _MIN_SUMMARY_TOKENS:
        return None
    if auto and not must and freed <= max(cap // 2, usable // 20):
        # The gain is so small that the next call would need a compaction again, so keep the current summary.
        return None
    return Plan(
        session_id=session_id,
        cut=_absolute(cut, context),
        summary_tokens=cap,
        replaced_tokens=freed + size.summary,
        summarised_tokens=fresh,
        tokens_before=context.estimated,
        auto=auto,
        must=must,
        ruler=ruler,
        inside=inside,
        focus=focus,
    )


def _absolute(cut: Cut, context: Context) -> Cut:
    """Return the cut with its split counted over the stored parts, of which earlier ones may no longer be sent."""
    if cut.split is not None:
        offset = context.offsets.get(cut.split.message_id, 0)
        return msgspec.structs.replace(cut, split=Split(cut.split.message_id, cut.split.from_part + offset))
    # A message split by an earlier cut stays split while it is kept: its first parts are already summarised.
    tail_ids = [message.id for message in context.body[: context.split_reach]]
    if context.compaction is not None and cut.tail_start_id in tail_ids:
        return msgspec.structs.replace(cut, split=context.compaction.split)
    return cut


def plan_summary(context: Context, plan: Plan, workspace_root: str | None = None) -> SummaryTask:
    """Return the input of the summariser, with what the previous compaction recorded.

    Outputs are complete. Between the steps of a long turn, which are pruned first, only the ends of long ones are
    given.
    """
    originals = context.unpruned()
    ends = plan.inside and context.policy.prunes
    messages: list[Message] = []
    for message in plan.cut.summarised:
        whole = originals.get(message.id)
        # Include only the summarised parts of a split message.
        parts = whole.parts[: len(message.parts)] if whole and len(whole.parts) >= len(message.parts) else message.parts
        messages.append(
            msgspec.structs.replace(message, parts=[_with_output_ends(part) if ends else part for part in parts])
        )
    directives, files = _recorded_before(context.compaction)
    return SummaryTask(
        messages=tuple(messages),
        previous=context.compaction.summary if context.compaction else None,
        focus=plan.focus,
        directives=_newest((*directives, *directives_of(messages)), plan.summary_tokens // 2),
        files=files_of(messages, files, workspace_root),
        summary_tokens=plan.summary_tokens,
    )


def _with_output_ends(part: dict[str, Any]) -> dict[str, Any]:
    """Return the part with only the ends of a long output."""
    text = output_text(part) or ""
    if len(text) <= 2 * _OUTPUT_END_CHARS:
        return part
    return prune_part(part, Pruned(0, "", 0, estimate_tokens(len(text)), _OUTPUT_END_CHARS, 0))


def _recorded_before(compaction: Compaction | None) -> tuple[tuple[Directive, ...], Files]:
    data: dict[str, Any] = (compaction_data(compaction.marker) if compaction else None) or {}
    try:
        return (
            convert(data.get("directives", ()), tuple[Directive, ...]),
            Files(
                convert(data.get("read_files", ()), tuple[str, ...]),
                convert(data.get("modified_files", ()), tuple[str, ...]),
                convert(data.get("more_read_files", 0), int),
                convert(data.get("more_modified_files", 0), int),
            ),
        )
    except msgspec.ValidationError:
        return (), Files((), ())


def _newest(directives: Sequence[Directive], limit_tokens: int) -> tuple[Directive, ...]:
    """Return the newest directives that fit, in their order; a repeated one counts at its last position."""
    newest: list[Directive] = []
    tokens_left = limit_tokens
    for directive in reversed({directive.text: directive for directive in directives}.values()):
        tokens_left -= estimate_tokens(len(directive.text))
        if tokens_left < 0:
            break
        newest.append(directive)
    return tuple(reversed(newest))


def written_by_model(
    text: str, task: SummaryTask, plan: Plan, strategy: Strategy, usage: Usage, model: str
) -> WrittenSummary:
    """Return a model's summary with the user's directives and the files; raise if it is not smaller."""
    text, included = with_directives(text, task.directives, limit_tokens=plan.summary_tokens // 4)
    # The text comes from a model and quotes the user: it must not close the frame around it.
    text = without_tags(text).rstrip() + "\n" + file_tags(task.files, plan.summary_tokens // 4)
    tokens = estimate_tokens(len(text), plan.ruler)
    written = WrittenSummary(text, strategy, included, task.files, usage, model, tokens)
    check_smaller(written.tokens, plan.replaced_tokens)
    return written


def written_by_rule(task: SummaryTask, plan: Plan, usage: Usage) -> WrittenSummary:
    """Return a summary made without a model: the middle is left out."""
    text = mechanical_summary(
        task.messages, task.previous, task.directives, task.files, limit_tokens=plan.summary_tokens
    )
    included, safe_text = tuple(one for one in task.directives if one.text in text), without_tags(text)
    tokens = estimate_tokens(len(safe_text), plan.ruler)
    written = WrittenSummary(safe_text, "drop_middle", included, task.files, usage, None, tokens)
    check_smaller(written.tokens, plan.replaced_tokens)
    return written


def parent_of_marker(head_turn_id: str | None, open_turn: Turn | None, *, has_child: bool) -> str | None:
    """Return the parent of a compaction's turn: the head, or the head's parent if the open turn is the head itself.

    An unanswered turn, and one that is continued after its step limit, are the head while they run. ``has_child`` means
    that a turn exists below the open one.
    """
    if open_turn is None or head_turn_id != open_turn.id:
        return head_turn_id
    if has_child:
        raise CompactionError("cannot compact: turns below this one would lose their history", turn_id=open_turn.id)
    return open_turn.parent_turn_id


def compaction_data_of(
    context: Context, plan: Plan, written: WrittenSummary, warning: str | None, marker_id: str
) -> CompactionData:
    """Return the content of the compaction's part."""
    cut, frame = plan.cut, context.policy.frame
    # The estimated size of the next request, comparable to the size before and to the gauge.
    marker = MessageRow("", "", "assistant", 0, 0, {}, ())
    sent = summary_messages(Compaction(marker, "", written.text, None, None, frame))
    after = context.estimated_frame + cut.tail_tokens
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
        frame=frame,
        warning=warning,
        previous_id=context.compaction.marker.id if context.compaction else None,
    )


def _turns_in_all(context: Context, cut: Cut) -> int | None:
    """Return how many turns are covered by a summary that continues another one.

    None if there is no other one, or if its count is unknown because an older version did not record it.
    """
    if context.compaction is None:
        return None
    before = compaction_data(context.compaction.marker) or {}
    counted = before.get("turns_in_all", None if "previous_id" in before else before.get("turns"))
    # The turn split by the earlier cut was already counted there.
    shared = int(bool(cut.summarised) and not cut.summarised[0].is_prompt and "split" in before)
    return counted + cut.turns - shared if isinstance(counted, int) else None


def turn_data(data: CompactionData, cut: Cut) -> dict[str, Any]:
    """Return the data of the turn, readable without its marker."""
    summarised = [message.turn_id for message in cut.summarised]
    tail = [message.turn_id for message in cut.tail]
    return {
        "summarized_through_turn_id": summarised[-1] if summarised else None,
        "first_kept_turn_id": tail[0] if tail else None,
        "tokens_before": data.tokens_before,
        "tokens_after": data.tokens_after,
        "strategy": data.strategy,
        "turns": data.turns,
        # Stored here too, so that the position survives if the marker becomes unreadable.
        "tail_start_id": data.tail_start_id,
    }


def find_branch(context: Context, turn_id: str) -> dict[str, Any] | None:
    """Return the arguments for a branch with the longest tail that fits alongside a turn that is too large; None if
    none does."""
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
