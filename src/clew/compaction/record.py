"""The record of a compaction: the content of its part, for views, for people, and for the next compaction."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from clew.compaction.directive import Directive
from clew.transcript.part import COMPACTION_PART
from clew.transcript.usage import Usage
from clew.transcript.view import Frame, Split

__all__ = ["CompactionData", "Range", "Strategy", "to_part"]

Strategy = Literal["summary", "prune", "chunked", "drop_middle"]


class Range(msgspec.Struct, frozen=True):
    """The first and the last message that were summarised, the last one possibly only in part."""

    from_message_id: str
    through_message_id: str


class CompactionData(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a ``data-compaction`` part. ``tail_start_id`` is the marker itself if there is no tail.

    ``tokens_before`` and ``tokens_after`` are the whole context, both estimated; ``summarised_tokens``, ``turns`` and
    ``messages`` count what was summarised, ``turns_in_all`` also what the previous summary covers. ``read_files``,
    ``modified_files`` and ``directives`` are those of all compactions so far; if there are too many files, the newest
    and an approximate count of the others. ``usage`` is the summariser's and is in no rollup. ``previous_id`` is the
    marker of the previous compaction, whose summary this one continues.
    """

    summary: str
    tail_start_id: str
    auto: bool
    summary_tokens: int
    tokens_before: int
    tokens_after: int
    summarised_tokens: int
    strategy: Strategy
    turns: int
    messages: int
    range: Range
    read_files: tuple[str, ...] = ()
    modified_files: tuple[str, ...] = ()
    directives: tuple[Directive, ...] = ()
    split: Split | None = None
    focus: str | None = None
    usage: Usage | None = None
    model: str | None = None
    frame: Frame | None = None
    warning: str | None = None
    previous_id: str | None = None
    more_read_files: int | None = None
    more_modified_files: int | None = None
    turns_in_all: int | None = None


def to_part(data: CompactionData) -> dict[str, Any]:
    """Return the part as it is stored. Values of None are left out."""
    # Round trip through JSON, so that the part equals what a store returns: lists instead of tuples.
    fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(data))
    return {"type": COMPACTION_PART, "data": {key: value for key, value in fields.items() if value is not None}}
