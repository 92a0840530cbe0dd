"""The context of a session: the line that the next model call would send, with the turn config in force."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from clew.compaction.context import Context, ContextReport, RequestFrame, report
from clew.compaction.policy import Policy, session_policy
from clew.errors import RowUndecodable
from clew.long_work import FEW, run_for_prompt, run_long
from clew.providers.evidence import digest_messages
from clew.session.host import Host
from clew.session.prompt.files import holds_files
from clew.session.prompt.turn_config import TurnConfig, resolve
from clew.store.base import LineSlice, Moment, Store, get_session
from clew.transcript.line import LineTurn
from clew.transcript.message import Message, MessageRow
from clew.transcript.session import Model, Session
from clew.transcript.turn import Step, Turn, with_parent
from clew.transcript.turn_state import OPEN

__all__ = [
    "MeasuredLine",
    "build_context",
    "find_cheap_context",
    "frame_of",
    "load_context",
    "load_counted",
    "load_idle_context",
    "load_report",
    "measured_context",
]

log = logging.getLogger("clew.context")

_REPORT_TURNS: Final = 8
"""Turns read for a quick report; if they are not enough, all are read."""
_MEASURED_TURNS: Final = 3
"""Turns with steps from which the tokens per character are estimated; also how many turns to search above the line."""


def frame_of(config: TurnConfig) -> RequestFrame:
    return RequestFrame(
        model=config.model,
        window=config.info.window,
        max_output=config.info.max_output,
        system_chars=len(config.system_prompt.text),
        tools_chars=len(config.encoded_tools) if config.schemas else 0,
        files=config.info.file_rule,
        seals=config.info.seals,
        workspace_root=config.session.workspace_root,
    )


async def load_context(host: Host, config: TurnConfig) -> Context:
    """Return the context of a session as it is stored."""
    counted = await load_counted(host.store, config.session.id) or MeasuredLine(LineSlice((), True), ())
    frame, policy = frame_of(config), session_policy(host.config, config.session)
    return await build_context(counted.line, lambda: measured_context(frame, policy, counted))


async def load_idle_context(host: Host, session: Session, model: str | Model | dict[str, Any] | None = None) -> Context:
    """Return the context of an idle session for its own agent and model, or for ``model``."""
    return await load_context(host, await resolve(host, session, model=model, agent=None, attended=False))


async def load_report(host: Host, session_id: str, model: str | Model | dict[str, Any] | None = None) -> ContextReport:
    """Return a report of what the next call would send, without side effects."""
    session = await get_session(host.store, session_id)
    config = await resolve(host, session, model=model, agent=None, attended=False)
    recent = await _recent_report(host, config)
    if recent is not None:
        return recent
    return await run_long(report, await load_context(host, config))


async def _recent_report(host: Host, config: TurnConfig) -> ContextReport | None:
    """Return the report from the end of the line: what its last step counted and what was added since.

    None if that is not enough: when a sum over all messages is requested, when outputs were pruned, and in a copied
    line before its first own step, where only the whole line says which part was copied.
    """
    session_id, policy = config.session.id, session_policy(host.config, config.session)

    async def ask(moment: Moment) -> MeasuredLine | None:
        line = await moment.load_line(session_id, turns=_REPORT_TURNS, keep_damaged=True)
        if line.complete or await moment.load_pruned(session_id):
            return None
        compaction_id = line.turns[-1].turn.compaction_turn_id
        turns = line.turns
        if compaction_id is not None and all(entry.turn.id != compaction_id for entry in turns):
            made = await moment.load_line(session_id, through=compaction_id, turns=1, keep_damaged=True)
            turns = (*made.turns, *turns)
        steps = await _newest_steps(moment, line.turns)
        return MeasuredLine(LineSlice(turns, complete=False), steps) if len(steps) == _MEASURED_TURNS else None

    counted = await host.store.at_once(session_id, ask) if policy.measure != "rollup" else None
    if counted is None:
        return None
    last = counted.steps[0][-1]
    holder = next((entry.turn for entry in counted.line.turns if entry.turn.id == last.turn_id), None)
    context = measured_context(frame_of(config), policy, counted, recent=True)
    unreadable = context.compaction is None and counted.line.turns[-1].turn.compaction_turn_id is not None
    if holder is None or holder.origin_turn_id is not None or unreadable:
        return None
    return report(context, last) if context.size.measured else None


class MeasuredLine(msgspec.Struct, frozen=True):
    """A line with provider usage: the steps of its newest turns that have any, newest first."""

    line: LineSlice
    steps: tuple[tuple[Step, ...], ...]

    def begun(self, turn: Turn, prompt: MessageRow) -> MeasuredLine:
        """Return the line with a new turn at its end that contains only its prompt."""
        parent = self.line.turns[-1].turn if self.line.turns else None
        entry = LineTurn(with_parent(turn, parent), (prompt,))
        return replace(self, line=replace(self.line, turns=(*self.line.turns, entry)))


async def load_counted(store: Store, session_id: str, line: LineSlice | None = None) -> MeasuredLine | None:
    """Load the line, unless given, and the steps as of one moment; None if the session does not exist."""

    async def ask(moment: Moment) -> MeasuredLine | None:
        found = line or await moment.find_view(session_id, keep_damaged=True, kept=True)
        return None if found is None else MeasuredLine(found, await _newest_steps(moment, found.turns))

    return await store.at_once(session_id, ask)


async def find_cheap_context(moment: Moment, session_id: str) -> MeasuredLine | None:
    """Load the line and steps if that is cheap; None if much would have to be read, or if it is damaged."""
    try:
        line = await moment.find_view(session_id, keep_damaged=True, kept=True, near=True)
        return None if line is None else MeasuredLine(line, await _newest_steps(moment, line.turns))
    except RowUndecodable:
        # The error is raised when the line is needed.
        return None


async def _newest_steps(moment: Moment, line: Sequence[LineTurn]) -> tuple[tuple[Step, ...], ...]:
    """Return the steps of the newest turns that have any; turns above the line count, as they were measured too."""
    found: list[tuple[Step, ...]] = []
    above: str | None = None
    for n in range(len(line) + _MEASURED_TURNS):
        entry = line[-1 - n] if n < len(line) else None
        turn = entry.turn if entry is not None else await moment.find_turn(above) if above is not None else None
        if turn is None or len(found) == _MEASURED_TURNS:
            break
        above = turn.parent_turn_id
        steps = await _load_steps(moment, turn, entry)
        if steps:
            found.append(steps)
    return tuple(found)


async def _load_steps(moment: Moment, turn: Turn, entry: LineTurn | None) -> tuple[Step, ...]:
    """Return the steps of a turn, cached with its entry on the line.

    Recording a step changes a message or the turn, which replaces the entry. Those of an open turn are always read.
    """
    if turn.kind != "normal":
        return ()
    if entry is None or turn.status in OPEN:
        return tuple(await moment.load_steps(turn.id))
    known: tuple[Step, ...] | None = entry.memo.get("steps")
    if known is None:
        known = entry.memo["steps"] = tuple(await moment.load_steps(turn.id))
    return known


async def build_context(line: LineSlice, make: Callable[[], Context]) -> Context:
    """Make the context of a line. For a long line that is not cached yet, do so in a thread and also compute what the
    next request needs of each message: the event loop would be blocked meanwhile."""
    turns = line.turns
    # A line is cached as a whole, but its ends differ: a marker is never sent, and the last turn is often new.
    if len(turns) <= FEW // 2 or "sent" in turns[len(turns) // 2].memo:
        return make()

    def warm_caches() -> Context:
        context = make()
        _ = context.size
        digest_messages(context.messages)
        for message in context.messages:
            holds_files(message)
        return context

    return await run_for_prompt(warm_caches)


def measured_context(
    frame: RequestFrame, policy: Policy, counted: MeasuredLine, live: Message | None = None, *, recent: bool = False
) -> Context:
    """Return the context of a line, measured by the newest turns that have steps."""
    line, steps = counted.line, counted.steps
    context = Context(frame, policy, line.turns, line.pruned, live=live, recent=recent)
    if steps:
        context.measure(steps[0], [step for earlier in reversed(steps[1:]) for step in earlier])
    return context
