"""The budget: how large the next request is, how much of that a provider has counted, and when that is too much.

What a provider has counted is taken as it is; the rest is estimated from characters, a little too high rather than
too low, and by what characters took in the session's own calls once a provider has counted one. Reasoning counts where
it goes back to the provider that sealed it; parts of data are never sent.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import takewhile
from math import ceil
from typing import Any, Final, NamedTuple

import msgspec

from clew.compaction.policy import Policy
from clew.transcript import part as p
from clew.transcript.file_rule import UNKNOWN, FileRule, image_tokens, page_tokens
from clew.transcript.message import Message
from clew.transcript.session import Model
from clew.transcript.turn import Step
from clew.transcript.usage import Usage

__all__ = [
    "USUAL",
    "Count",
    "Measured",
    "Ruler",
    "Size",
    "Window",
    "count_of",
    "estimate_message",
    "estimate_part",
    "estimate_tokens",
    "find_measured",
    "fires",
    "learn",
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

_MOST_BYTES: Final = 16 << 20
"""More than a file that is taken in has; a session that was brought along may claim anything."""
IMAGE_TOKENS: Final = 1_500
"""What one image takes of which nobody knows better: providers scale large ones down."""
MESSAGE_TOKENS: Final = 4
"""What a message takes beside its content: its role and its borders."""


_LEARNS_FROM: Final = 2_000
"""Characters a request needs for its count to say what characters take."""
_LIKELY: Final = (Fraction(1, 10), Fraction(2))
"""Tokens a character takes in any language, at least and at most."""
_AGREE: Final = 3
_WITHIN: Final = Fraction(5, 4)


class Count(NamedTuple):
    """What a provider counted for the characters of one call."""

    tokens: int
    chars: int


class Ruler(msgspec.Struct, frozen=True):
    """What characters take: ``tokens`` for so many ``chars``; and what ``files`` do.

    ``provider_id`` is the provider that reasoning is sent back to; ``seals`` names others whose reasoning it accepts.
    """

    tokens: int = 1
    chars: int = 4
    provider_id: str | None = None
    files: FileRule = UNKNOWN
    seals: tuple[str, ...] = ()


USUAL: Final = Ruler()


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
    ``chars`` are the characters it holds, and ``others`` estimates what is not told by characters.
    """

    used: int
    measured: bool
    floor: int
    system: int
    tools: int
    summary: int
    history: int
    chars: int
    others: int


def estimate_tokens(chars: int, ruler: Ruler = USUAL) -> int:
    """Tokens of so many characters: a quarter unless it is known better, with a tenth on top, rounded up."""
    return -(-chars * ruler.tokens * 11 // (ruler.chars * 10))


def plain_tokens(chars: int, ruler: Ruler = USUAL) -> int:
    """A quarter of the characters, or less where that was counted, rounded down: the least they are likely to take."""
    return min(chars // 4, chars * ruler.tokens // ruler.chars)


def learn(counts: Sequence[Count], provider_id: str, files: FileRule = UNKNOWN, seals: tuple[str, ...] = ()) -> Ruler:
    """What characters take by the newest counts of a session's calls, as soon as there are three that agree.

    One alone may have counted something else: a gateway leaves out what was cached, a scripted model says anything.
    """
    newest = counts[-_AGREE:]
    if len(newest) < _AGREE or min(one.chars for one in newest) < _LEARNS_FROM:
        return Ruler(provider_id=provider_id, files=files, seals=seals)
    shares = [Fraction(max(one.tokens, 0), max(one.chars, 1)) for one in newest]
    if min(shares) < _LIKELY[0] or max(shares) > _LIKELY[1] or max(shares) > min(shares) * _WITHIN:
        return Ruler(provider_id=provider_id, files=files, seals=seals)
    return Ruler(sum(one.tokens for one in newest), sum(one.chars for one in newest), provider_id, files, seals)


def count_of(usage: Usage, chars: int, others: int) -> Count:
    """What a call that was sent so many characters, and ``others`` tokens of files beside them, says about these."""
    return Count(usage.input + usage.cache_read + usage.cache_write - others, chars)


def estimate_part(part: p.Part, ruler: Ruler = USUAL) -> int:
    """Tokens of one part as it is sent."""
    return estimate_tokens(_chars(part, ruler), ruler) + _file_tokens(part, ruler.files)


class _Extent(NamedTuple):
    """What there is to count in a message, whatever a character takes: ``sent`` is that by part."""

    sent: tuple[int, ...]
    plain: int
    sealed: int
    files: int


def _extent_of(message: Message, ruler: Ruler) -> _Extent:
    """Counted once for each message, provider and rule of files: what characters take changes with every call."""
    key = ruler.provider_id, ruler.files
    known: tuple[Any, _Extent] | None = message.memo.get("extent")
    if known is not None and known[0] == key:
        return known[1]
    parts = message.parts
    extent = _Extent(
        tuple(_chars(part, ruler) for part in parts),
        sum(map(_chars, parts)),
        sum(_sealed_chars(part, ruler) for part in parts),
        sum(_file_tokens(part, ruler.files) for part in parts),
    )
    message.memo["extent"] = key, extent
    return extent


def estimate_message(message: Message, ruler: Ruler = USUAL) -> int:
    """Tokens of a message: its parts and its borders; none when it holds nothing that is sent."""
    extent, tokens, share = _extent_of(message, ruler), ruler.tokens * 11, ruler.chars * 10
    # As estimate_tokens has it for each part.
    return message_tokens(extent.files - sum([-chars * tokens // share for chars in extent.sent]))


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
    *,
    system_chars: int,
    tools_chars: int,
    messages: Sequence[Message],
    measured: Measured | None,
    ruler: Ruler = USUAL,
) -> Size:
    """How large a request with this system prompt, these tools and these messages is."""
    system, tools = estimate_tokens(system_chars, ruler), estimate_tokens(tools_chars, ruler)
    # A summary comes before all that is kept.
    summary = sum(estimate_message(message, ruler) for message in takewhile(lambda one: one.is_summary, messages))
    key = ruler.provider_id, ruler.files
    # Nearly all were counted before; to look there first is what a long line takes least of.
    held = [(message, message.memo.get("extent")) for message in messages]
    extents = [known[1] if known and known[0] == key else _extent_of(message, ruler) for message, known in held]
    plain = system_chars + tools_chars + sum([extent.plain for extent in extents])
    sealed = sum([extent.sealed for extent in extents])
    places = (n for n in reversed(range(len(messages))) if measured and messages[n].id == measured.message_id)
    place = next(places, None)
    if measured is None or place is None:
        used = system + tools + sum(estimate_message(message, ruler) for message in messages)
    else:
        own = messages[place].parts
        counted, beyond = own[: measured.parts], own[measured.parts :]
        starts = p.steps_in(counted)
        last = counted[starts[-1] if starts else 0 :]
        used = measured.tokens + sum(estimate_tokens(len(p.result_text(part)), ruler) for part in last)
        used += sum(_file_tokens(part, ruler.files) for part in last if p.giver_of(part) is not None)
        used += sum(estimate_part(part, ruler) for part in beyond)
        used += sum(estimate_message(message, ruler) for message in messages[place + 1 :])
    # The provider's count is the truth about the sum; what we estimated must not say otherwise.
    system = min(system, used)
    tools = min(tools, used - system)
    summary = min(summary, used - system - tools)
    return Size(
        used=used,
        measured=measured is not None and place is not None,
        # What a seal takes only the provider knows, so nothing is refused for it.
        floor=plain_tokens(plain, ruler),
        system=system,
        tools=tools,
        summary=summary,
        history=used - system - tools - summary,
        chars=plain + sealed,
        others=sum([extent.files for extent in extents]) + MESSAGE_TOKENS * len(messages),
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


def _file_tokens(part: p.Part, rule: FileRule) -> int:
    """What the bytes of a file may take: by the provider's rule where there is one and the file was looked at.

    Else an image the most one does, a text its characters, a PDF a guess by its size.
    Only ever an estimate. How a provider reads a file is its own affair, so no message is refused on this count.
    """
    if p.kind_of(part) != "file":
        return 0
    media_type, size = p.media_type_of(part) or "", min(p.noted_of(part, "size") or 0, _MOST_BYTES)
    if _is_image(part):
        known = image_tokens(part, rule)
        return IMAGE_TOKENS if known is None else known
    if p.is_text_type(media_type):
        return estimate_tokens(size if p.giver_of(part) is None else min(size, p.MOST_GIVEN_TEXT))
    if media_type != "application/pdf":
        return 0
    known = page_tokens(part, rule)
    return estimate_tokens(size // _BYTES_A_CHARACTER) if known is None else known


def _sealed_chars(part: p.Part, ruler: Ruler) -> int:
    """Characters of reasoning that goes back to its provider. What it shows may be shorter than what it sealed."""
    if ruler.provider_id is None or p.kind_of(part) != "reasoning":
        return 0
    own = p.seal_of(part, (ruler.provider_id, *ruler.seals))
    return 0 if own is None else max(len(p.text_of(part, "reasoning") or ""), len(p.text_at(own, "signature") or ""))


def _chars(part: p.Part, ruler: Ruler = USUAL) -> int:
    """Characters of a part as it is sent; an image has none, and reasoning only for the provider it came from."""
    if sealed := _sealed_chars(part, ruler):
        return sealed
    if p.is_call(part):
        return len(p.tool_name(part)) + len(p.input_text(part)) + len(p.result_text(part))
    if p.kind_of(part) == "file" and not _is_image(part):
        return len(f"{p.file_name_of(part) or ''} {p.media_type_of(part) or ''}")
    return len(p.text_of(part) or "")


@functools.lru_cache(maxsize=64)
def _share(pct: float) -> Fraction:
    # By its decimal form: 0.8 of 100 is 80, and not a little more.
    return Fraction(str(pct))
