"""The budget: how large the next request is, how much of that a provider has counted, and when that is too much.

What a provider has counted is taken as it is; the rest is estimated from characters, a little too high rather than
too low. Reasoning is not sent again and not counted; parts of data are never sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import ceil
from typing import Final

import msgspec

from clew.compaction.policy import Policy
from clew.transcript import part as p
from clew.transcript.message import Message
from clew.transcript.session import Model
from clew.transcript.turn import Step
from clew.transcript.usage import Usage

__all__ = [
    "Measured",
    "Size",
    "Window",
    "estimate_message",
    "estimate_part",
    "estimate_tokens",
    "find_measured",
    "fires",
    "message_tokens",
    "plain_tokens",
    "reaches",
    "rollup_used",
    "size_request",
    "window_of",
    "with_rest",
]

_BYTES_A_CHARACTER: Final = 4
"""Of a PDF, for one character of what a model reads in it."""

IMAGE_TOKENS: Final = 1_500
"""What one image takes, whatever its size: providers scale large ones down."""
MESSAGE_TOKENS: Final = 4
"""What a message takes beside its content: its role and its borders."""


class Window(msgspec.Struct, frozen=True):
    """A model's window. From ``threshold`` on, or above it when the policy is strict, room is made."""

    limit: int
    reserve: int
    threshold: int

    @property
    def usable(self) -> int:
        return self.limit - self.reserve


class Measured(msgspec.Struct, frozen=True):
    """All that was sent and said up to part ``parts`` of that message took ``tokens``.

    ``parts`` counts the parts that are sent. Not counted are the outputs of the tool calls in the last step before
    it: they came after the model had spoken.
    """

    message_id: str
    parts: int
    tokens: int


class Size(msgspec.Struct, frozen=True):
    """The next request in tokens: ``used`` is the sum of the last four.

    ``measured`` says that a provider counted most of it. ``floor`` is the whole by plain count, without any safety.
    """

    used: int
    measured: bool
    floor: int
    system: int
    tools: int
    summary: int
    history: int


def estimate_tokens(chars: int) -> int:
    """Tokens of so many characters: a quarter, with a tenth on top, rounded up."""
    return -(-chars * 11 // 40)


def plain_tokens(chars: int) -> int:
    """A quarter of the characters, rounded down: the least they are likely to take."""
    return chars // 4


def estimate_part(part: p.Part) -> int:
    """Tokens of one part as it is sent."""
    return IMAGE_TOKENS if _is_image(part) else estimate_tokens(_chars(part)) + _file_tokens(part)


def estimate_message(message: Message) -> int:
    """Tokens of a message: its parts and its borders; none when it holds nothing that is sent."""
    return message_tokens(sum(map(estimate_part, message.parts)))


def message_tokens(parts: int) -> int:
    """Tokens of a message whose parts take so many."""
    return parts + MESSAGE_TOKENS if parts else 0


def with_rest(said: Usage, parts: Sequence[p.Part]) -> Usage:
    """What a call used that nobody counted to its end: what was said of it, and at least what these parts of it take.

    A provider's own count of what came so far is often the start of one: the larger is the truer.
    """
    thought = sum(len(p.text_of(part, "reasoning") or "") for part in parts)
    told = sum(len(p.text_of(part) or p.tool_name(part) + p.input_text(part)) for part in parts)
    return msgspec.structs.replace(
        said,
        output=max(said.output, estimate_tokens(told)),
        reasoning=max(said.reasoning, estimate_tokens(thought)),
    )


def window_of(policy: Policy, limit: int, max_output: int) -> Window:
    """The window of a model under a policy."""
    reserve = policy.reserve(limit, max_output)
    threshold = limit - reserve if policy.at_pct is None else ceil(_share(policy.at_pct) * limit)
    return Window(limit, reserve, threshold)


def fires(policy: Policy, window: Window, used: int, messages_in_view: int) -> bool:
    """Whether room is to be made by itself. Never when compaction is switched off."""
    if not policy.enabled or messages_in_view < policy.min_messages:
        return False
    return used > window.threshold if policy.strict else used >= window.threshold


def reaches(used: int, limit: int, pct: float, *, strict: bool) -> bool:
    """Whether ``used`` is at that share of the limit; ``strict``: above it."""
    share = _share(pct) * limit
    return used > share if strict else used >= share


def size_request(
    *, system_chars: int, tools_chars: int, messages: Sequence[Message], measured: Measured | None
) -> Size:
    """How large a request with this system prompt, these tools and these messages is."""
    system, tools = estimate_tokens(system_chars), estimate_tokens(tools_chars)
    summary = sum(estimate_message(message) for message in messages if message.is_summary)
    chars = system_chars + tools_chars + sum(_chars(part) for message in messages for part in message.parts)
    places = {message.id: place for place, message in enumerate(messages)}
    place = places.get(measured.message_id) if measured is not None else None
    if measured is None or place is None:
        used = system + tools + sum(map(estimate_message, messages))
    else:
        parts = messages[place].parts
        counted, beyond = parts[: measured.parts], parts[measured.parts :]
        starts = p.steps_in(counted)
        unseen = sum(estimate_tokens(len(p.result_text(part))) for part in counted[starts[-1] if starts else 0 :])
        used = measured.tokens + unseen + sum(map(estimate_part, beyond))
        used += sum(map(estimate_message, messages[place + 1 :]))
    # The provider's count is the truth about the sum; what we estimated must not say otherwise.
    system = min(system, used)
    tools = min(tools, used - system)
    summary = min(summary, used - system - tools)
    return Size(
        used=used,
        measured=measured is not None and place is not None,
        floor=plain_tokens(chars),
        system=system,
        tools=tools,
        summary=summary,
        history=used - system - tools - summary,
    )


def rollup_used(messages: Sequence[Message]) -> int:
    """The usage noted on the assistant messages of a view, all five kinds, summed up."""
    return sum(message.usage.total for message in messages if message.role == "assistant")


def find_measured(
    messages: Sequence[Message],
    steps_by_message: Mapping[str, Sequence[Step]],
    model: Model,
    *,
    since: int,
    dropped: Mapping[str, int] | None = None,
) -> Measured | None:
    """What the newest completed step in this view counted; None when it says nothing about the next call.

    It says nothing when another model took it, when it began before ``since``, the newest compaction or prune, or when
    nobody counted.
    ``dropped`` tells how many steps were cut off the front of a split message. Without it a message with fewer steps
    than were completed is taken only when its last step is plainly over.
    """
    for message in reversed(messages):
        steps = sorted(steps_by_message.get(message.id, ()), key=lambda step: step.index)
        if message.role != "assistant" or not steps:
            continue
        last = steps[-1]
        same = (last.model.provider_id, last.model.model_id) == (model.provider_id, model.model_id)
        if not same or last.started_at < since or not last.usage.total or last.is_estimated:
            return None
        parts = _measured_parts(message, len(steps), (dropped or {}).get(message.id))
        return None if parts is None else Measured(message.id, parts, last.usage.total)
    return None


def _measured_parts(message: Message, completed: int, dropped: int | None) -> int | None:
    """How many of the sent parts belong to completed steps."""
    starts = p.steps_in(message.parts)
    if dropped is not None:
        completed -= dropped
        if completed < 1:
            return None
    elif len(starts) < completed:
        over = message.parts[starts[-1] + 1 :] if starts else []
        return (
            len(message.parts)
            if over and not any(p.is_open_call(part) or p.state_of(part) == "streaming" for part in over)
            else None
        )
    return starts[completed] if completed < len(starts) else len(message.parts)


def _is_image(part: p.Part) -> bool:
    return p.kind_of(part) == "file" and (p.media_type_of(part) or "").startswith("image/")


def _file_tokens(part: p.Part) -> int:
    """What the bytes of a file may take: a text its characters, a PDF a guess by its size, anything else a line.

    Only ever an estimate. How a provider reads a file is its own affair, so no message is refused on this count.
    """
    if p.kind_of(part) != "file" or _is_image(part):
        return 0
    size = max(p.size_of(part) or 0, 0)
    media_type = p.media_type_of(part) or ""
    if p.is_text_type(media_type):
        return estimate_tokens(size)
    return estimate_tokens(size // _BYTES_A_CHARACTER) if media_type == "application/pdf" else 0


def _chars(part: p.Part) -> int:
    """Characters of a part as it is sent; an image has none."""
    if p.is_call(part):
        return len(p.tool_name(part)) + len(p.input_text(part)) + len(p.result_text(part))
    if p.kind_of(part) == "file" and not _is_image(part):
        return len(f"{p.file_name_of(part) or ''} {p.media_type_of(part) or ''}")
    return len(p.text_of(part) or "")


def _share(pct: float) -> Fraction:
    # By its decimal form: 0.8 of 100 is 80, and not a little more.
    return Fraction(str(pct))
