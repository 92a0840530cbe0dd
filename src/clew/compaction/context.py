"""The context: what the next call of a session would send, how large that is, and what it may be at most. Pure.

Made from a line that was read; sized anew whenever something changes. Nothing here makes room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from clew.compaction import budget as b
from clew.compaction.policy import Policy
from clew.compaction.prune import least_gain, may_go, plan_prune
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
    """What a request is beside its messages: the model with its window, and the size of its prompt and tools.

    ``files`` is how the model counts those; ``workspace_root`` is where names of files begin.
    """

    model: Model
    window: int
    max_output: int
    system_chars: int
    tools_chars: int
    files: FileRule = UNKNOWN
    workspace_root: str | None = None
    seals: tuple[str, ...] = ()
    """Other providers whose reasoning the model is sent."""


class ContextParts(msgspec.Struct, frozen=True):
    """What the next request is made of, in tokens. ``pruned`` is what stubs save; it is not part of the sum."""

    system: int
    tools: int
    summary: int
    history: int
    pruned: int


class ContextReport(msgspec.Struct, frozen=True):
    """The gauge. ``measured`` says that the provider counted most of ``used``; else it is an estimate."""

    limit: int
    reserve: int
    threshold: int
    used: int
    measured: bool
    parts: ContextParts


class Context:
    """A request in the making. ``live`` is the message a run is adding to, with all of its parts so far.

    ``recent``: of the line only its end, with the compaction in force. Then only what it was measured at says how large
    it is, and :attr:`size` is not to be used where that is nothing.
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
        self._asked_prune: int | None = None
        self.counts: tuple[b.Count, ...] = tuple(counts)
        self.ruler: b.Ruler = b.learn(self.counts, frame.model.provider_id, frame.files, frame.seals)
        self._measured = measured
        self._size: b.Size | None = None

    # What is sent

    def _messages(self, prunes: Mapping[tuple[str, int], Pruned]) -> list[Message]:
        return messages_with(self.line, self.compaction, prunes, self.live)

    @property
    def body(self) -> list[Message]:
        """The messages that are kept word for word: all but the summary. The start of a step is in it once it began."""
        return [message for message in self._all if not message.is_summary]

    def unpruned(self) -> dict[str, Message]:
        """The same messages with their outputs whole, by id: what a summary is made from."""
        return {message.id: message for message in self._messages({})}

    @property
    def offsets(self) -> dict[str, int]:
        """How many parts of a split message are not sent: the index of its first part that is."""
        split = self.compaction.split if self.compaction else None
        return {split.message_id: split.from_part} if split is not None else {}

    @property
    def split_reach(self) -> int:
        """How many messages of the body there are up to the one that is split, with it; none where none is.

        Of that one nothing may be left, and then it is not in the body.
        """
        split = self.compaction.split if self.compaction else None
        ids = [row.id for entry in self.line for row in entry.messages]
        if self.live is not None:
            ids = [*(id_ for id_ in ids if id_ != self.live.id), self.live.id]
        # A compaction made for a turn that the line has left since may name a message of that turn.
        if split is None or split.message_id not in ids:
            return 0
        through = {*ids[: ids.index(split.message_id) + 1]}
        return sum(message.id in through for message in self.body)

    @property
    def compaction_depth(self) -> int | None:
        """Where on the line the compaction in force is; None without one. Branches of whole lines keep it."""
        if self.compaction is None:
            return None
        return next(entry.turn.depth for entry in self.line if entry.turn.id == self.compaction.turn_id)

    @property
    def prune_seq(self) -> int:
        return max((one.seq for one in self.pruned), default=0)

    @property
    def settled_call(self) -> str | None:
        """The last call that is sent as it will be after the next prune too; None before the first prune.

        That ends before the first output which is not a stub yet and may become one. In the first request since a prune
        it is the last call before what that has changed: so much a provider has, if it was asked to keep that.
        """
        if not self.prunes:
            return None
        newest = {(one.message_id, one.part) for one in self.pruned if one.seq == self.prune_seq}
        offsets = self.offsets
        since = self._asked_prune is not None and self._asked_prune < self.prune_seq
        settled = whole_step = None
        for message in self.messages:
            first = offsets.get(message.id, 0)
            for index, call_id, goes in _calls_of(message, self.policy):
                if call_id is None:
                    whole_step = settled
                    continue
                key = message.id, first + index
                if key in newest if since else goes and key not in self.prunes:
                    return whole_step
                settled = call_id
        return settled

    # How large it is

    def measure(self, steps: Sequence[Step], earlier: Sequence[Step] = ()) -> None:
        """Size it anew by what a provider counted, where the newest of these steps still says something about it.

        What characters take, ``earlier`` steps say too, whatever was compacted or pruned since.
        """
        told = [step for step in (*earlier, *steps) if step.model.plain == self.frame.model.plain]
        told = [step for step in told if len(step.sized) == 2 and not step.is_estimated]
        self.counts = tuple(b.count_of(step.usage, *step.sized) for step in told)
        self.ruler = b.learn(self.counts, self.frame.model.provider_id, self.frame.files, self.frame.seals)
        views = [step.view for step in steps if len(step.view) > 1]
        self._asked_prune = views[-1][1] if views else None
        by_message: dict[str, list[Step]] = {}
        for step in steps:
            by_message.setdefault(step.message_id, []).append(step)
        since = self.compaction.marker.created_at if self.compaction is not None else 0
        since = max([since, *(one.at for one in self.pruned)])
        dropped = _dropped_steps(self)
        seen = {message_id: held for message_id, held in by_message.items() if _saw_this(self, held, dropped)}
        measured = b.find_measured(self.messages, seen, self.frame.model, since=since, dropped=dropped)
        self._measured = measured
        self._size = None

    @property
    def size(self) -> b.Size:
        """Worked out when it is first asked for, and again only after it was measured."""
        # Not a cached property, all of which wait for one another on Python 3.11: a long one is sized beside the loop.
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
        """The whole by estimate alone: the one measure that there is before and after a compaction."""
        return self.estimated_frame + sum(b.estimate_message(message, self.ruler) for message in self.messages)

    @property
    def estimated_since(self) -> int:
        """What the step it was measured at has said, and all behind it, by the same measure."""
        at = self._measured
        if at is None:
            return 0
        place = next(n for n, message in enumerate(self.messages) if message.id == at.message_id)
        own = self.messages[place].parts
        begin, *_ = steps_in(own[: at.parts])[-1:] or [0]
        said = sum(b.estimate_part(part, self.ruler) for part in own[begin:])
        return said + sum(b.estimate_message(message, self.ruler) for message in self.messages[place + 1 :])

    @property
    def estimated_frame(self) -> int:
        """The system prompt and the tools, by the same measure."""
        return b.estimate_tokens(self.frame.system_chars, self.ruler) + b.estimate_tokens(
            self.frame.tools_chars, self.ruler
        )

    def plan_prune(self, at: int, *, aggressive: bool = False, by_hand: bool = False) -> tuple[Pruned, ...]:
        """Which tool outputs would become stubs now."""
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
        """The threshold is reached, by the preset's own way of comparing."""
        return b.fires(self.policy, self.window, self.size.used, len(self.messages))

    @property
    def crowded(self) -> bool:
        """Whether less room is left than a prune frees, so that room would have to be made again soon."""
        least = least_gain(self.messages, self.policy, self.window, self.ruler)
        return self.size.used + least > self.window.threshold

    @property
    def overflows(self) -> bool:
        """It cannot fit the window, however kindly it is counted."""
        return self.size.floor > self.window.limit


def messages_with(
    line: Sequence[LineTurn],
    compaction: Compaction | None,
    prunes: Mapping[tuple[str, int], Pruned],
    live: Message | None,
) -> list[Message]:
    """The model view of a line with ``live`` at its end, as far as that is sent."""
    stored = model_view_at(line, compaction, prunes)
    if live is None:
        return stored
    sent = [message for message in stored if message.id != live.id]
    parts = sent_parts(live.id, live.parts, compaction.split if compaction else None, prunes)
    return [*sent, msgspec.structs.replace(live, parts=parts)] if parts else sent


def _calls_of(message: Message, policy: Policy) -> tuple[tuple[int, str | None, bool], ...]:
    """Where a message's steps begin (None) and its calls are, with their ids, and whether their outputs may go."""
    known: tuple[int, tuple[tuple[int, str | None, bool], ...]] | None = message.memo.get("calls")
    if known is not None and known[0] == policy.pruning.over_chars:
        return known[1]
    found = (
        (index, call_id_of(part), may_go(part, policy))
        for index, part in enumerate(message.parts)
        if kind_of(part) == STEP_START or call_id_of(part) is not None
    )
    calls = tuple(found)
    message.memo["calls"] = policy.pruning.over_chars, calls
    return calls


def without_begun(messages: list[Message]) -> list[Message]:
    """The messages without the start of the step that is about to be asked for."""
    if not messages or not messages[-1].parts or kind_of(messages[-1].parts[-1]) != STEP_START:
        return messages
    last = messages[-1]
    parts = last.parts[:-1]
    return [*messages[:-1], msgspec.structs.replace(last, parts=parts)] if parts else messages[:-1]


def _saw_this(context: Context, steps: Sequence[Step], dropped: Mapping[str, int]) -> bool:
    """Whether the newest of a message's steps was sent what this view begins with.

    Times do not tell: a branch that starts later has the counts of its parent, and a compaction may fall into the
    same millisecond. A step that does not say what it was sent is judged by its time alone.
    """
    last = max(steps, key=lambda step: step.index)
    if len(last.view) < 3:
        return True
    place = next((n for n, message in enumerate(context.messages) if message.id == last.message_id), None)
    if place is None:
        return False
    before = place + (len(steps) - dropped.get(last.message_id, 0) > 1)
    if context.recent:
        # How many lie before a turn that was made here never changes.
        return last.view[:2] == (context.compaction_depth, context.prune_seq)
    return last.view[:3] == (context.compaction_depth, context.prune_seq, before)


def _dropped_steps(context: Context) -> dict[str, int]:
    """How many steps were cut off the front of a split message."""
    split = context.compaction.split if context.compaction else None
    if split is None:
        return {}
    rows = [row for entry in context.line for row in entry.messages if row.id == split.message_id]
    parts = [part.data for row in rows for part in row.parts]
    if context.live is not None and context.live.id == split.message_id:
        parts = context.live.parts
    return {split.message_id: len(steps_in(parts[: split.from_part]))}


def report(context: Context, counted: Step | None = None) -> ContextReport:
    """The context as the gauge shows it: where the provider counted less than was estimated, each part its share.

    ``counted`` is the step that a recent one was measured at: what it was sent stands for what was not read.
    """
    size, window = context.size, context.window
    system, tools, summary = size.system, size.tools, size.summary
    if counted is None:
        whole = system + tools + summary + sum(b.estimate_message(message, context.ruler) for message in context.body)
    else:
        # A step of an older version did not note it; the parts then stand as they were estimated.
        chars, others = counted.sized if len(counted.sized) == 2 else (0, 0)
        whole = b.estimate_tokens(chars, context.ruler) + others + context.estimated_since
    if size.used < whole:
        system, tools, summary = (size.used * part // whole for part in (system, tools, summary))
    sent = {message.id for message in context.messages}
    saved = sum(one.tokens for one in context.prunes.values() if one.message_id in sent and one.keep == 0)
    parts = ContextParts(system, tools, summary, size.used - system - tools - summary, saved)
    return ContextReport(window.limit, window.reserve, window.threshold, size.used, size.measured, parts)
