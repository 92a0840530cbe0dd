"""Reports about a turn: its steps with their usage, and for each the request that was sent to the model.

The request is rebuilt from what is stored: prompt and tools by their digests, messages by the compaction and prunes in
force then. Its digest is compared with the one stored when it was sent; ``proven`` says that they are equal. Only
reads.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from clew.compaction.context import messages_with, without_begun
from clew.errors import InvalidInput, MessageNotFound, RowUndecodable
from clew.providers.base import ModelRequest, ToolSchema
from clew.providers.evidence import decode_tools, request_digest_like
from clew.session.history.lookup import holder_of
from clew.store.base import Store, get_turn
from clew.system_prompt.sections import Section, sections_of, sent_text
from clew.transcript.line import LineTurn
from clew.transcript.message import Message
from clew.transcript.part import PRESERVED_PART, kind_of
from clew.transcript.pruned import pruned_through
from clew.transcript.session import Model
from clew.transcript.turn import CHUNKS, Step, Turn
from clew.transcript.turn_state import TurnStatus
from clew.transcript.usage import Usage
from clew.transcript.view import Compaction, compaction_data, compactions_of, summarised_messages

__all__ = [
    "CompactionReport",
    "RequestReport",
    "StepReport",
    "TurnReport",
    "load_compaction",
    "load_request",
    "load_turn",
]


log = logging.getLogger("clew.session.history")


class StepReport(msgspec.Struct, frozen=True):
    """A step: its model, usage, duration, and the digests of its prompt and request."""

    index: int
    message_id: str
    model: Model
    usage: Usage
    cost_usd: float
    started_at: int
    finished_at: int
    finish_reason: str | None
    prompt_digest: str | None
    request_digest: str | None


class TurnReport(msgspec.Struct, frozen=True):
    """A turn with its steps. ``data`` depends on its kind and end: errors, metrics of a compaction."""

    id: str
    session_id: str
    parent_turn_id: str | None
    origin_turn_id: str | None
    kind: str
    status: TurnStatus
    depth: int
    created_at: int
    settled_at: int | None
    data: dict[str, Any]
    messages: tuple[str, ...]
    steps: tuple[StepReport, ...]


class RequestReport(msgspec.Struct, frozen=True):
    """A request as it was sent. ``digest`` is that of the rebuilt request, ``recorded`` that of the sent one."""

    turn_id: str
    step: int
    model: Model
    prompt: tuple[Section, ...]
    tools: tuple[ToolSchema, ...]
    messages: tuple[Message, ...]
    max_output_tokens: int | None
    temperature: float | None
    digest: str
    recorded: str | None
    proven: bool


async def load_turn(store: Store, turn_id: str) -> TurnReport:
    """Return the turn with its steps in order."""
    turn = await get_turn(store, turn_id)
    line = await store.load_line(turn.session_id, through=turn.id, turns=1, keep_damaged=True)
    steps = await store.load_steps(turn.id)
    origin = {name: getattr(turn, name) for name in TurnReport.__struct_fields__ if hasattr(turn, name)}
    origin["data"] = {key: value for key, value in turn.data.items() if key != CHUNKS}
    return TurnReport(
        **origin,
        messages=tuple(row.id for row in line.turns[-1].messages),
        steps=tuple(
            StepReport(**{name: getattr(step, name) for name in StepReport.__struct_fields__}) for step in steps
        ),
    )


async def load_request(store: Store, turn_id: str, index: int | None = None) -> RequestReport:
    """Return the request of a step, by default of the last one."""
    turn = await get_turn(store, turn_id)
    steps = await store.load_steps(turn.id)
    if not steps:
        raise InvalidInput("this turn made no model call", turn_id=turn.id)
    step = steps[-1] if index is None else next((one for one in steps if one.index == index), None)
    if step is None:
        raise InvalidInput(f"this turn has no step {index}; it has {len(steps)}, numbered from 0", turn_id=turn.id)
    prompt = await _load_text(store, step.prompt_digest or "") or ""
    try:
        sections, system = sections_of(prompt, step.sections), sent_text(prompt, step.sections)
    except InvalidInput:
        sections, system = (Section("prompt", prompt),) if prompt else (), prompt
    tools = await _load_text(store, step.tools_digest or "") or "[]"
    output, temperature = (step.limits or (None, None))[:2]
    request = ModelRequest(
        model=step.model,
        system=system,
        messages=await _messages(store, turn, steps, step),
        tools=decode_tools(tools),
        max_output_tokens=output,
        temperature=temperature,
    )
    recorded = step.request_digest
    digest = request_digest_like(request, recorded)
    if digest != recorded and turn.origin_turn_id is not None:
        origin = await _of_origin(store, turn.origin_turn_id, step.index, recorded)
        if origin is not None:
            return msgspec.structs.replace(origin, turn_id=turn.id)
    return RequestReport(
        turn.id,
        step.index,
        step.model,
        sections,
        tuple(request.tools),
        tuple(_as_sent(message) for message in request.messages),
        output,
        temperature,
        digest,
        recorded,
        digest == recorded,
    )


def _as_sent(message: Message) -> Message:
    """Return the message without parts preserved for another program, which are never sent to a model."""
    parts = [part for part in message.parts if kind_of(part) != PRESERVED_PART]
    return message if len(parts) == len(message.parts) else msgspec.structs.replace(message, parts=parts)


async def _load_text(store: Store, digest: str) -> str | None:
    """Return the text stored under a digest, or None: a damaged one proves nothing and is not shown as sent."""
    try:
        return await store.find_prompt(digest)
    except RowUndecodable as error:
        log.error("%s", error)
        return None


async def _of_origin(store: Store, turn_id: str, index: int, recorded: str | None) -> RequestReport | None:
    """Return the request from the turn it was copied from: a branch may start later than what was sent."""
    steps = await store.load_steps(turn_id) if await store.find_turn(turn_id) is not None else ()
    if all(step.index != index for step in steps):
        return None
    origin = await load_request(store, turn_id, index)
    return origin if origin.proven and origin.recorded == recorded else None


async def _messages(store: Store, turn: Turn, steps: Sequence[Step], step: Step) -> list[Message]:
    """Return the messages as they were when the step began."""
    line = (await store.load_line(turn.session_id, through=turn.id, keep_damaged=True)).turns
    depth, seq = (step.view or (None, 0))[:2]
    depths = {entry.turn.id: entry.turn.depth for entry in line}
    compaction = next((one for one in compactions_of(line) if depths[one.turn_id] == depth), None)
    last = line[-1]
    index_on_line = next((n for n, row in enumerate(last.messages) if row.id == step.message_id), len(last.messages))
    live: Message | None = None
    if index_on_line < len(last.messages):
        # The step's own message up to the start of the step.
        row = last.messages[index_on_line]
        earlier = sum(1 for one in steps if one.message_id == row.id and one.index < step.index)
        starts = [n for n, part in enumerate(row.parts) if part.type == "step-start"]
        end = starts[earlier] + 1 if earlier < len(starts) else len(row.parts)
        live = Message(row.id, "assistant", [part.data for part in row.parts[:end]], {"turn_id": turn.id})
    before = [*line[:-1], LineTurn(last.turn, last.messages[:index_on_line])]
    prunes = pruned_through(await store.load_pruned(turn.session_id), seq)
    return without_begun(messages_with(before, compaction, prunes, live))


class CompactionReport(msgspec.Struct, frozen=True):
    """A compaction with the messages its summary covers. ``previous_id`` is the previous marker, if there is one."""

    message_id: str
    turn_id: str
    previous_id: str | None
    data: dict[str, Any]
    messages: tuple[Message, ...]


async def load_compaction(store: Store, session_id: str, message_id: str) -> CompactionReport:
    """Return the report of the compaction that this message marks, on the line or off it."""
    tree = await store.load_tree(session_id)
    # A copied marker belongs to several turns.
    turn = holder_of(tree, message_id)
    if turn is None or turn.kind != "compaction":
        raise MessageNotFound(f"message {message_id} is not a compaction of this session", message_id=message_id)
    line = list((await store.load_line(session_id, through=turn.id, keep_damaged=True)).turns)
    newest: list[Compaction | None] = [*compactions_of(reversed(line)), None, None]
    own, previous = newest[:2]
    if own is None:
        raise RowUndecodable("the marker of this compaction is not readable", message_id=message_id)
    # The turn it was made inside of, and of which it summarised some steps or whole messages.
    split = own.split.message_id if own.split is not None else None
    inside = (id_ for id_, messages in tree.links.items() if split in messages or own.tail_start_id in messages[1:])
    below = next(inside, None)
    if below is not None and all(entry.turn.id != below for entry in line):
        line += (await store.load_line(session_id, through=below, turns=1, keep_damaged=True)).turns
    messages = summarised_messages(line, own, previous)
    data = compaction_data(own.marker) or {}
    return CompactionReport(message_id, turn.id, previous.marker.id if previous else None, data, tuple(messages))
