"""The context: what the next call of a session would send, how large that is, and what it may be at most.

Loaded from the store for a session nobody runs on; a run keeps one and renews it as its message grows. Sizing is
pure and is done anew whenever something changes; nothing here makes room.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import msgspec

from clew.compaction.budget import (
    Measured,
    Size,
    Window,
    estimate_message,
    find_measured,
    fires,
    rollup_used,
    size_request,
    window_of,
)
from clew.compaction.policy import Policy, policy_for
from clew.config import Config
from clew.errors import InvalidInput
from clew.runtime.host import Host, Setting
from clew.runtime.request import encode_tools
from clew.store.base import LineSlice, Store
from clew.transcript.line import LineTurn
from clew.transcript.message import Message
from clew.transcript.part import STEP_START, kind_of, steps_in
from clew.transcript.pruned import Pruned, pruned_through
from clew.transcript.session import Session
from clew.transcript.turn import Step
from clew.transcript.view import Compaction, find_compaction, model_view_at, sent_parts

__all__ = [
    "Context",
    "ContextReport",
    "context_of",
    "load_context",
    "messages_with",
    "report",
    "session_policy",
    "without_begun",
]


log = logging.getLogger("clew.context")


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
    """A request in the making. ``live`` is the message a run is adding to, with all of its parts so far."""

    def __init__(
        self,
        setting: Setting,
        policy: Policy,
        line: Sequence[LineTurn],
        pruned: Sequence[Pruned],
        *,
        live: Message | None = None,
        measured: Measured | None = None,
    ) -> None:
        self.setting = setting
        self.policy = policy
        self.line = tuple(line)
        self.pruned = tuple(pruned)
        self.prunes: Mapping[tuple[str, int], Pruned] = pruned_through(pruned)
        self.compaction: Compaction | None = find_compaction(line)
        self.live = live
        self.window: Window = window_of(policy, setting.info.window, setting.info.max_output)
        self._all: list[Message] = self._messages(self.prunes)
        self.messages: list[Message] = without_begun(self._all)
        self.size: Size = self._size(measured)

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
    def compaction_depth(self) -> int | None:
        """Where on the line the compaction in force is; None without one. Branches of whole lines keep it."""
        if self.compaction is None:
            return None
        return next(entry.turn.depth for entry in self.line if entry.turn.id == self.compaction.turn_id)

    @property
    def prune_seq(self) -> int:
        return max((one.seq for one in self.pruned), default=0)

    # How large it is

    def measure(self, measured: Measured) -> None:
        """Size it anew by what the provider counted."""
        self.size = self._size(measured)

    def _size(self, measured: Measured | None) -> Size:
        tools = self.setting.schemas
        size = size_request(
            system_chars=len(self.setting.prompt.text),
            tools_chars=len(encode_tools(tools)) if tools else 0,
            messages=self.messages,
            measured=measured,
        )
        if self.policy.measure == "rollup":
            used = rollup_used(self.messages)
            history = max(used - size.system - size.tools - size.summary, 0)
            return msgspec.structs.replace(size, used=used, measured=True, history=history) if used else size
        return size

    @property
    def fires(self) -> bool:
        """The threshold is reached, by the preset's own way of comparing."""
        return fires(self.policy, self.window, self.size.used, len(self.messages))

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


def without_begun(messages: list[Message]) -> list[Message]:
    """The messages without the start of the step that is about to be asked for."""
    if not messages or not messages[-1].parts or kind_of(messages[-1].parts[-1]) != STEP_START:
        return messages
    last = messages[-1]
    parts = last.parts[:-1]
    return [*messages[:-1], msgspec.structs.replace(last, parts=parts)] if parts else messages[:-1]


def session_policy(config: Config, session: Session) -> Policy:
    """The settings in force for a session: its own, then the user's, then the preset's.

    Settings are checked where a session is given them. One that holds bad ones all the same must not be stuck.
    """
    try:
        return policy_for(config.compaction, config.pruning, session.compaction)
    except InvalidInput as error:
        log.warning("the compaction settings of session %s are not used: %s", session.id, error)
        return policy_for(config.compaction, config.pruning, None)


async def load_context(host: Host, setting: Setting) -> Context:
    """The context of a session as it is stored."""
    line = await host.store.load_view(setting.session.id, keep_damaged=True)
    return await context_of(
        host.store, setting, session_policy(host.config, setting.session), line or LineSlice((), True)
    )


async def context_of(
    store: Store, setting: Setting, policy: Policy, line: LineSlice, live: Message | None = None
) -> Context:
    """The context of a line, measured by the newest step that still says something about it."""
    context = Context(setting, policy, line.turns, line.pruned, live=live)
    since = 0
    if context.compaction is not None:
        since = context.compaction.marker.created_at
    since = max([since, *(one.at for one in line.pruned)])
    steps: dict[str, list[Step]] = {}
    for entry in reversed(line.turns):
        found = await store.load_steps(entry.turn.id) if entry.turn.kind == "normal" else ()
        for step in found:
            steps.setdefault(step.message_id, []).append(step)
        if found:
            break
    dropped = _dropped_steps(context)
    steps = {message_id: held for message_id, held in steps.items() if _saw_this(context, held, dropped)}
    measured = find_measured(context.messages, steps, setting.model, since=since, dropped=dropped)
    if measured is not None:
        context.measure(measured)
    return context


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


def report(context: Context) -> ContextReport:
    """The context as the gauge shows it: where the provider counted less than was estimated, each part its share."""
    size, window = context.size, context.window
    system, tools, summary = size.system, size.tools, size.summary
    history = sum(map(estimate_message, context.body))
    whole = system + tools + summary + history
    if size.used < whole:
        system, tools, summary = (size.used * part // whole for part in (system, tools, summary))
    parts = ContextParts(system, tools, summary, size.used - system - tools - summary, _saved(context))
    return ContextReport(window.limit, window.reserve, window.threshold, size.used, size.measured, parts)


def _saved(context: Context) -> int:
    sent = {message.id for message in context.messages}
    return sum(one.tokens for one in context.prunes.values() if one.message_id in sent and one.keep == 0)
