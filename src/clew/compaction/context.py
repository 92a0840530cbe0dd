"""The context: what the next call of a session would send, its size, and its limit. Pure.

Built from a loaded line and measured again after each change. Freeing context is done elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from clew.compaction import budget as b
from clew.compaction.policy import Policy
from clew.compaction.prune import is_prunable, min_gain, plan_prune
from clew.transcript.file_rule import UNKNOWN, FileRule
from clew.transcript.line import LineTurn
from clew.transcript.message import Message
from clew.transcript.part import STEP_START, call_id_of, kind_of, steps_in
from clew.transcript.pruned import Pruned, pruned_through
from clew.transcript.session import Model
from clew.transcript.turn import Step
from clew.transcript.view import Compaction, find_compaction, model_view_at, sent_parts

__all__ = ["Context", "ContextParts", "ContextReport", "RequestFrame", "messages_with", "report", "without_begun"]


class RequestFrame(msgspec.Struct, frozen=True, kw_only=True):
    """The fixed part of a request: the model with its window, and the size of its prompt and tools.

    ``files`` is the model's rule for counting files; ``workspace_root`` is the base of file names.
    """

    model: Model
    window: int
    max_output: int
    system_chars: int
    tools_chars: int
    files: FileRule = UNKNOWN
    workspace_root: str | None = None
    seals: tuple[str, ...] = ()
    """Other providers whose reasoning is sent to the model."""


class ContextParts(msgspec.Struct, frozen=True):
    """The parts of the next request, in tokens. ``pruned`` is what stubs save; it is not part of the sum."""

    system: int
    tools: int
    summary: int
    history: int
    pruned: int


class ContextReport(msgspec.Struct, frozen=True):
    """The context gauge. ``measured`` means that the provider counted most of ``used``; else it is an estimate."""

    limit: int
    reserve: int
    threshold: int
    used: int
    measured: bool
    parts: ContextParts


class Context:
    """A request being prepared. ``live`` is the message of the current run, with all its parts so far.

    ``recent`` means that only the end of the line was loaded, with the compaction in force. Its size then depends on
    the measurement alone, and :attr:`size` must not be used without one.
    """

    def __init__(
        self,
        frame: RequestFrame,
        policy: Policy,
        line: Sequence[LineTurn],
        pruned: Sequence[Pruned],
        *,
        live: Message | None = None,
        measured: b.Measured | None = None,
        counts: Sequence[b.Count] = (),
        recent: bool = False,
    ) -> None:
        self.frame = frame
        self.recent = recent
        self.policy = policy
        self.line = tuple(line)
        self.pruned = tuple(pruned)
        self.prunes: Mapping[tuple[str, int], Pruned] = pruned_through(pruned)
        self.compaction: Compaction | None = find_compaction(line)
        self.live = live
        self.window: b.Window = b.window_of(policy, frame.window, frame.max_output)
        self._all: list[Message] = self._messages(self.prunes)
        self.messages: list[Message] = without_begun(self._all)
        self._measured_prune: int | None = None
        self.counts: tuple[b.Count, ...] = tuple(counts)
        self.ruler: b.Ruler = b.learn(self.counts, frame.model.provider_id, frame.files, frame.seals)
        self._measured = measured
        self._size: b.Size | None = None

    # What is sent

    def _messages(self, prunes: Mapping[tuple[str, int], Pruned]) -> list[Message]:
        return messages_with(self.line, self.compaction, prunes, self.live)

    @property
    def body(self) -> list[Message]:
        """The messages without the summary. Includes the marker of a step as soon as the step has begun."""
        return [message for message in self._all if not message.is_summary]

    def unpruned(self) -> dict[str, Message]:
        """Return the same messages with complete outputs, by id: the input of a summary."""
        return {message.id: message for message in self._messages({})}

    @property
    def offsets(self) -> dict[str, int]:
        """The number of parts of a split message that are not sent: the index of the first part that is."""
        split = self.compaction.split if self.compaction else None
        return {split.message_id: split.from_part} if split is not None else {}

    @property
    def split_reach(self) -> int:
        """The number of messages of the body up to and including the split one; 0 if none is split.

        The split message may have no parts left, and is then not in the body.
        """
        split = self.compaction.split if self.compaction else None
        ids = [row.id for entry in self.line for row in entry.messages]
        if self.live is not None:
            ids = [*(id_ for id_ in ids if id_ != self.live.id), self.live.id]
        # A compaction may name a message of a turn that is no longer on the line.
        if split is None or split.message_id not in ids:
            return 0
        through = {*ids[: ids.index(split.message_id) + 1]}
        return sum(message.id in through for message in self.body)

    @property
    def compaction_depth(self) -> int | None:
        """The depth of the compaction in force; None without one. Branches of whole lines preserve it."""
        if self.compaction is None:
            return None
        return next(entry.turn.depth for entry in self.line if entry.turn.id == self.compaction.turn_id)

    @property
    def prune_seq(self) -> int:
        return max((one.seq for one in self.pruned), default=0)

    @property
    def settled_call(self) -> str | None:
        """The last call whose request will be identical after the next prune; None before the first prune.

        Ends before the first output that is not a stub yet and may become one. In the first request after a prune, ends
        before the first output that prune changed: the provider's cache reaches that far.
        """
        if not self.prunes:
            return None
        newest = {(one.message_id, one.part) for one in self.pruned if one.seq == self.prune_seq}
        offsets = self.offsets
        since = self._measured_prune is not None and self._measured_prune < self.prune_seq
        settled = whole_step = None
        for message in self.messages:
            first = offsets.get(message.id, 0)
            for index, call_id, prunable in _calls_of(message, self.policy):
                if call_id is None:
                    whole_step = settled
                    continue
                key = message.id, first + index
                if key in newest if since else prunable and key not in self.prunes:
                    return whole_step
                settled = call_id
        return settled

    # How large it is

    def measure(self, steps: Sequence[Step], earlier: Sequence[Step] = ()) -> None:
        """Measure the size again by the provider's counts, if the newest of these steps still applies.

        The ``earlier`` steps only calibrate the estimate, whatever was compacted or pruned since.
        """
        usable = [step for step in (*earlier, *steps) if step.model.plain == self.frame.model.plain]
        usable = [step for step in usable if len(step.sized) == 2 and not step.is_estimated]
        self.counts = tuple(b.count_of(step.usage, *step.sized) for step in usable)
        self.ruler = b.learn(self.counts, self.frame.model.provider_id, self.frame.files, self.frame.seals)
        views = [step.view for step in steps if len(step.view) > 1]
        self._measured_prune = views[-1][1] if views else None
        by_message: dict[str, list[Step]] = {}
        for step in steps:
            by_message.setdefault(step.message_id, []).append(step)
        since = self.compaction.marker.created_at if self.compaction is not None else 0
        since = max([since, *(one.at for one in self.pruned)])
        dropped = _dropped_steps(self)
        matching = {message_id: own for message_id, own in by_message.items() if _was_sent_this(self, own, dropped)}
        measured = b.find_measured(self.messages, matching, self.frame.model, since=since, dropped=dropped)
        self._measured = measured
        self._size = None

    @property
    def size(self) -> b.Size:
        """The size of the request. Computed on first use, and again after each measurement."""
        # Not a cached_property: those share one lock on Python 3.11, and long contexts are measured in a thread.
        if self._size is None:
            self._size = self._sized()
        return self._size

    def _sized(self) -> b.Size:
        size = b.size_request(
            system_chars=self.frame.system_chars,
            tools_chars=self.frame.tools_chars,
            messages=self.messages,
            measured=self._measured,
            ruler=self.ruler,
        )
        if self.policy.measure == "rollup":
            used = b.rollup_used(self.messages)
            history = max(used - size.system - size.tools - size.summary, 0)
            return msgspec.structs.replace(size, used=used, measured=True, history=history) if used else size
        return size

    @property
    def estimated(self) -> int:
        """The total by estimate alone: the only measure available both before and after a compaction."""
        return self.estimated_frame + sum(b.estimate_message(message, self.ruler) for message in self.messages)

    @property
    def estimated_since(self) -> int:
        """The estimate of the measured step's output and everything after it."""
        at = self._measured
        if at is None:
            return 0
        index = next(n for n, message in enumerate(self.messages) if message.id == at.message_id)
        own = self.messages[index].parts
        begin, *_ = steps_in(own[: at.parts])[-1:] or [0]
        output = sum(b.estimate_part(part, self.ruler) for part in own[begin:])
        return output + sum(b.estimate_message(message, self.ruler) for message in self.messages[index + 1 :])

    @property
    def estimated_frame(self) -> int:
        """The estimate of the system prompt and the tools."""
        return b.estimate_tokens(self.frame.system_chars, self.ruler) + b.estimate_tokens(
            self.frame.tools_chars, self.ruler
        )

    def plan_prune(self, at: int, *, aggressive: bool = False, by_hand: bool = False) -> tuple[Pruned, ...]:
        """Return the tool outputs that would become stubs now."""
        running = self.live.turn_id if self.live is not None else None
        inside = any(one.role == "assistant" and one.turn_id == running for one in self.messages) if running else False
        return plan_prune(
            self.messages,
            self.policy,
            used=self.size.used,
            window=self.window,
            at=at,
            already=self.prunes,
            base_index=self.offsets,
            ruler=self.ruler,
            workspace_root=self.frame.workspace_root,
            inside=inside,
            due=self.fires,
            pressing=self.overflows or self.size.used > self.window.limit or (self.fires and not inside),
            aggressive=aggressive,
            by_hand=by_hand,
        )

    @property
    def fires(self) -> bool:
        """True if the threshold is reached, by the preset's comparison."""
        return b.fires(self.policy, self.window, self.size.used, len(self.messages))

    @property
    def crowded(self) -> bool:
        """True if less room is left than a prune frees, so that context would soon have to be freed again."""
        gain = min_gain(self.messages, self.policy, self.window, self.ruler)
        return self.size.used + gain > self.window.threshold

    @property
    def overflows(self) -> bool:
        """True if the request exceeds the window even by the lowest count."""
        return self.size.floor > self.window.limit


def messages_with(
    line: Sequence[LineTurn],
    compaction: Compaction | None,
    prunes: Mapping[tuple[str, int], Pruned],
    live: Message | None,
) -> list[Message]:
    """Return the model view of a line with ``live`` at its end, with prunes applied."""
    stored = model_view_at(line, compaction, prunes)
    if live is None:
        return stored
    sent = [message for message in stored if message.id != live.id]
    parts = sent_parts(live.id, live.parts, compaction.split if compaction else None, prunes)
    return [*sent, msgspec.structs.replace(live, parts=parts)] if parts else sent


def _calls_of(message: Message, policy: Policy) -> tuple[tuple[int, str | None, bool], ...]:
    """Return the steps (None) and calls of a message, with their ids, and whether their outputs may be pruned."""
    known: tuple[int, tuple[tuple[int, str | None, bool], ...]] | None = message.memo.get("calls")
    if known is not None and known[0] == policy.pruning.over_chars:
        return known[1]
    found = (
        (index, call_id_of(part), is_prunable(part, policy))
        for index, part in enumerate(message.parts)
        if kind_of(part) == STEP_START or call_id_of(part) is not None
    )
    calls = tuple(found)
    message.memo["calls"] = policy.pruning.over_chars, calls
    return calls


def without_begun(messages: list[Message]) -> list[Message]:
    """Return the messages without the marker of the step that is about to be requested."""
    if not messages or not messages[-1].parts or kind_of(messages[-1].parts[-1]) != STEP_START:
        return messages
    last = messages[-1]
    parts = last.parts[:-1]
    return [*messages[:-1], msgspec.structs.replace(last, parts=parts)] if parts else messages[:-1]


def _was_sent_this(context: Context, steps: Sequence[Step], dropped: Mapping[str, int]) -> bool:
    """Return whether the newest of a message's steps was sent the beginning of this view.

    Times are not enough: a branch that starts later has the counts of its parent, and a compaction may fall into the
    same millisecond. A step that did not record its view is judged by its time alone.
    """
    last = max(steps, key=lambda step: step.index)
    if len(last.view) < 3:
        return True
    index = next((n for n, message in enumerate(context.messages) if message.id == last.message_id), None)
    if index is None:
        return False
    before = index + (len(steps) - dropped.get(last.message_id, 0) > 1)
    if context.recent:
        # The number of messages before a turn created here never changes.
        return last.view[:2] == (context.compaction_depth, context.prune_seq)
    return last.view[:3] == (context.compaction_depth, context.prune_seq, before)


def _dropped_steps(context: Context) -> dict[str, int]:
    """Return how many steps were cut off the front of a split message."""
    split = context.compaction.split if context.compaction else None
    if split is None:
        return {}
    rows = [row for entry in context.line for row in entry.messages if row.id == split.message_id]
    parts = [part.data for row in rows for part in row.parts]
    if context.live is not None and context.live.id == split.message_id:
        parts = context.live.parts
    return {split.message_id: len(steps_in(parts[: split.from_part]))}


def report(context: Context, counted: Step | None = None) -> ContextReport:
    """Return the context for the gauge. If the provider counted less than the estimate, the parts are scaled down.

    ``counted`` is the step at which a ``recent`` context was measured; what it was sent replaces what was not loaded.
    """
    size, window = context.size, context.window
    system, tools, summary = size.system, size.tools, size.summary
    if counted is None:
        whole = system + tools + summary + sum(b.estimate_message(message, context.ruler) for message in context.body)
    else:
        # Steps of older versions did not record it; then use the estimated parts.
        chars, others = counted.sized if len(counted.sized) == 2 else (0, 0)
        whole = b.estimate_tokens(chars, context.ruler) + others + context.estimated_since
    if size.used < whole:
        system, tools, summary = (size.used * part // whole for part in (system, tools, summary))
    sent = {message.id for message in context.messages}
    saved = sum(one.tokens for one in context.prunes.values() if one.message_id in sent and one.keep == 0)
    parts = ContextParts(system, tools, summary, size.used - system - tools - summary, saved)
    return ContextReport(window.limit, window.reserve, window.threshold, size.used, size.measured, parts)
