"""Context size: how large the next request is, how much of it a provider has counted, and when it is too large.

A provider's count is used as it is; the rest is estimated from characters, slightly too high rather than too low, and
calibrated by the session's own calls once a provider has counted some. Reasoning counts if it is sent back to the
provider that sealed it; data parts are never sent.
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
    "DEFAULT_RULER",
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

_PDF_BYTES_PER_CHAR: Final = 4
"""Bytes of a PDF per character of text a model reads in it."""

_MAX_FILE_BYTES: Final = 16 << 20
"""Larger than any stored file; an imported session may claim any size."""
IMAGE_TOKENS: Final = 1_500
"""Tokens of an image if no rule is known: providers scale large images down."""
MESSAGE_TOKENS: Final = 4
"""Tokens of a message besides its content: its role and delimiters."""


_MIN_CHARS_TO_LEARN: Final = 2_000
"""Minimum characters of a request for its count to calibrate the estimate."""
_TOKENS_PER_CHAR: Final = (Fraction(1, 10), Fraction(2))
"""Tokens per character in any language: minimum and maximum."""
_MIN_COUNTS: Final = 3
_MAX_SPREAD: Final = Fraction(5, 4)


class Count(NamedTuple):
    """A provider's count of the tokens of one call, with its characters."""

    tokens: int
    chars: int


class Ruler(msgspec.Struct, frozen=True):
    """The estimate in use: ``tokens`` for ``chars`` characters, and the rule for ``files``.

    ``provider_id`` is the provider that reasoning is sent back to; ``seals`` names others whose reasoning it accepts.
    """

    tokens: int = 1
    chars: int = 4
    provider_id: str | None = None
    files: FileRule = UNKNOWN
    seals: tuple[str, ...] = ()


DEFAULT_RULER: Final = Ruler()


class Window(msgspec.Struct, frozen=True):
    """A model's context window. Context is freed at ``threshold``, or above it if the policy is strict."""

    limit: int
    reserve: int
    threshold: int

    @property
    def usable(self) -> int:
        return self.limit - self.reserve


class Measured(msgspec.Struct, frozen=True):
    """A measurement: everything sent and generated up to part ``parts`` of that message took ``tokens``.

    ``parts`` counts the parts that are sent. The outputs of the tool calls in the last step before it are not included:
    they followed the model's answer.
    """

    message_id: str
    parts: int
    tokens: int


class Size(msgspec.Struct, frozen=True):
    """The next request in tokens: ``used`` is the sum of ``system``, ``tools``, ``summary`` and ``history``.

    ``measured`` means that a provider counted most of it. ``floor`` is the total by plain count, without a safety
    margin. ``chars`` are the characters in it, and ``others`` is the estimate of everything not measured in characters.
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


def estimate_tokens(chars: int, ruler: Ruler = DEFAULT_RULER) -> int:
    """Return the tokens of so many characters: a quarter unless calibrated, plus a tenth, rounded up."""
    return -(-chars * ruler.tokens * 11 // (ruler.chars * 10))


def plain_tokens(chars: int, ruler: Ruler = DEFAULT_RULER) -> int:
    """Return a lower bound of the tokens: a quarter of the characters, or less if calibrated, rounded down."""
    return min(chars // 4, chars * ruler.tokens // ruler.chars)


def learn(counts: Sequence[Count], provider_id: str, files: FileRule = UNKNOWN, seals: tuple[str, ...] = ()) -> Ruler:
    """Return the estimate calibrated by a session's newest calls, as soon as three of them agree.

    A single count may mean something else: a gateway omits cached tokens, a scripted model reports anything.
    """
    newest = counts[-_MIN_COUNTS:]
    if len(newest) < _MIN_COUNTS or min(count.chars for count in newest) < _MIN_CHARS_TO_LEARN:
        return Ruler(provider_id=provider_id, files=files, seals=seals)
    shares = [Fraction(max(count.tokens, 0), max(count.chars, 1)) for count in newest]
    if (
        min(shares) < _TOKENS_PER_CHAR[0]
        or max(shares) > _TOKENS_PER_CHAR[1]
        or max(shares) > min(shares) * _MAX_SPREAD
    ):
        return Ruler(provider_id=provider_id, files=files, seals=seals)
    return Ruler(sum(count.tokens for count in newest), sum(count.chars for count in newest), provider_id, files, seals)


def count_of(usage: Usage, chars: int, others: int) -> Count:
    """Return the count of a call that was sent so many characters, and ``others`` tokens of files."""
    return Count(usage.input + usage.cache_read + usage.cache_write - others, chars)


def estimate_part(part: p.Part, ruler: Ruler = DEFAULT_RULER) -> int:
    """Return the tokens of one part as it is sent."""
    return estimate_tokens(_chars(part, ruler), ruler) + _file_tokens(part, ruler.files)


class _Extent(NamedTuple):
    """The measurable content of a message, independent of calibration; ``sent`` is its characters by part."""

    sent: tuple[int, ...]
    plain: int
    sealed: int
    files: int


def _extent_of(message: Message, ruler: Ruler) -> _Extent:
    """Return the content of a message, cached per provider and file rule: calibration changes with every call."""
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


def estimate_message(message: Message, ruler: Ruler = DEFAULT_RULER) -> int:
    """Return the tokens of a message with its delimiters; 0 if nothing in it is sent."""
    extent, tokens, share = _extent_of(message, ruler), ruler.tokens * 11, ruler.chars * 10
    # Inlined estimate_tokens for each part.
    return message_tokens(extent.files - sum([-chars * tokens // share for chars in extent.sent]))


def message_tokens(parts: int) -> int:
    """Return the tokens of a message whose parts take ``parts`` tokens."""
    return parts + MESSAGE_TOKENS if parts else 0


def with_rest(reported: Usage, parts: Sequence[p.Part]) -> Usage:
    """Return the usage of an interrupted call: the reported usage, but at least the estimate for these parts.

    A provider's count at that point is often incomplete, so the larger value is closer.
    """
    reasoning_chars = sum(len(p.text_of(part, "reasoning") or "") for part in parts)
    output_chars = sum(len(p.text_of(part) or p.tool_name(part) + p.input_text(part)) for part in parts)
    return msgspec.structs.replace(
        reported,
        output=max(reported.output, estimate_tokens(output_chars)),
        reasoning=max(reported.reasoning, estimate_tokens(reasoning_chars)),
    )


def window_of(policy: Policy, limit: int, max_output: int) -> Window:
    """Return the window of a model under a policy."""
    reserve = policy.reserve(limit, max_output)
    threshold = limit - reserve if policy.at_pct is None else ceil(_share(policy.at_pct) * limit)
    return Window(limit, reserve, threshold)


def fires(policy: Policy, window: Window, used: int, messages_in_view: int) -> bool:
    """Return whether context has to be freed automatically. Never if compaction is disabled."""
    if not policy.enabled or messages_in_view < policy.min_messages:
        return False
    return used > window.threshold if policy.strict else used >= window.threshold


def reaches(used: int, limit: int, pct: float, *, strict: bool) -> bool:
    """Return whether ``used`` is at that share of the limit; with ``strict``, above it."""
    share = _share(pct) * limit
    return used > share if strict else used >= share


def size_request(
    *,
    system_chars: int,
    tools_chars: int,
    messages: Sequence[Message],
    measured: Measured | None,
    ruler: Ruler = DEFAULT_RULER,
) -> Size:
    """Return the size of a request with this system prompt, these tools and these messages."""
    system, tools = estimate_tokens(system_chars, ruler), estimate_tokens(tools_chars, ruler)
    # A summary precedes the tail.
    summary = sum(
        estimate_message(message, ruler) for message in takewhile(lambda message: message.is_summary, messages)
    )
    key = ruler.provider_id, ruler.files
    # Nearly all are cached; checking the cache inline is fastest for a long line.
    cached = [(message, message.memo.get("extent")) for message in messages]
    extents = [known[1] if known and known[0] == key else _extent_of(message, ruler) for message, known in cached]
    plain = system_chars + tools_chars + sum([extent.plain for extent in extents])
    sealed = sum([extent.sealed for extent in extents])
    indexes = (n for n in reversed(range(len(messages))) if measured and messages[n].id == measured.message_id)
    index = next(indexes, None)
    if measured is None or index is None:
        used = system + tools + sum(estimate_message(message, ruler) for message in messages)
    else:
        own = messages[index].parts
        counted, beyond = own[: measured.parts], own[measured.parts :]
        starts = p.steps_in(counted)
        last = counted[starts[-1] if starts else 0 :]
        used = measured.tokens + sum(estimate_tokens(len(p.result_text(part)), ruler) for part in last)
        used += sum(_file_tokens(part, ruler.files) for part in last if p.giver_of(part) is not None)
        used += sum(estimate_part(part, ruler) for part in beyond)
        used += sum(estimate_message(message, ruler) for message in messages[index + 1 :])
    # The provider's total is authoritative; cap the estimated shares by it.
    system = min(system, used)
    tools = min(tools, used - system)
    summary = min(summary, used - system - tools)
    return Size(
        used=used,
        measured=measured is not None and index is not None,
        # Only the provider knows the size of a seal, so no request is refused because of it.
        floor=plain_tokens(plain, ruler),
        system=system,
        tools=tools,
        summary=summary,
        history=used - system - tools - summary,
        chars=plain + sealed,
        others=sum([extent.files for extent in extents]) + MESSAGE_TOKENS * len(messages),
    )


def rollup_used(messages: Sequence[Message]) -> int:
    """Return the usage recorded on the assistant messages of a view, all five kinds added up."""
    return sum(message.usage.total for message in messages if message.role == "assistant")


def find_measured(
    messages: Sequence[Message],
    steps_by_message: Mapping[str, Sequence[Step]],
    model: Model,
    *,
    since: int,
    dropped: Mapping[str, int] | None = None,
) -> Measured | None:
    """Return the measurement of the newest completed step in this view; None if it does not apply to the next call.

    It does not apply if another model made it, if it began before ``since`` (the newest compaction or prune), or if no
    usage was reported. ``dropped`` gives the number of steps cut off the front of a split message. Without it, a
    message with fewer steps than were completed counts only if its last step is clearly over.
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
    """Return how many of the sent parts belong to completed steps."""
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
    """Return the estimated tokens of a file's content.

    Uses the provider's rule if there is one and the file was analysed. Otherwise an image counts as the usual maximum,
    a text by its characters, a PDF by its size. Providers process files in their own way, so no request is refused
    because of this estimate.
    """
    if p.kind_of(part) != "file":
        return 0
    media_type, size = p.media_type_of(part) or "", min(p.clew_metadata_of(part, "size") or 0, _MAX_FILE_BYTES)
    if _is_image(part):
        known = image_tokens(part, rule)
        return IMAGE_TOKENS if known is None else known
    if p.is_text_type(media_type):
        return estimate_tokens(size if p.giver_of(part) is None else min(size, p.MAX_GIVEN_TEXT))
    if media_type != "application/pdf":
        return 0
    known = page_tokens(part, rule)
    return estimate_tokens(size // _PDF_BYTES_PER_CHAR) if known is None else known


def _sealed_chars(part: p.Part, ruler: Ruler) -> int:
    """Return the characters of reasoning sent back to its provider. Its text may be shorter than its sealed form."""
    if ruler.provider_id is None or p.kind_of(part) != "reasoning":
        return 0
    own = p.seal_of(part, (ruler.provider_id, *ruler.seals))
    return 0 if own is None else max(len(p.text_of(part, "reasoning") or ""), len(p.text_at(own, "signature") or ""))


def _chars(part: p.Part, ruler: Ruler = DEFAULT_RULER) -> int:
    """Return the characters of a part as sent: none for an image, reasoning only for the provider that wrote it."""
    if sealed := _sealed_chars(part, ruler):
        return sealed
    if p.is_call(part):
        return len(p.tool_name(part)) + len(p.input_text(part)) + len(p.result_text(part))
    if p.kind_of(part) == "file" and not _is_image(part):
        return len(f"{p.file_name_of(part) or ''} {p.media_type_of(part) or ''}")
    return len(p.text_of(part) or "")


@functools.lru_cache(maxsize=64)
def _share(pct: float) -> Fraction:
    # Use the decimal form, so that 0.8 of 100 is exactly 80.
    return Fraction(str(pct))
