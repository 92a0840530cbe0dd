"""The record of a compaction: all that its part says, for views, for people, and for the compaction after it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from clew.compaction.directive import Directive
from clew.transcript.part import COMPACTION_PART
from clew.transcript.usage import Usage
from clew.transcript.view import Split

__all__ = ["CompactionData", "Range", "Strategy", "to_part"]

Strategy = Literal["summary", "prune", "chunked", "drop_middle"]


class Range(msgspec.Struct, frozen=True):
    """The first and the last message that were summarised, the last one perhaps only in part."""

    from_message_id: str
    through_message_id: str


class CompactionData(msgspec.Struct, frozen=True, kw_only=True):
    """What a ``data-compaction`` part holds. ``tail_start_id`` names the marker itself when nothing was kept.

    ``tokens_before`` and ``tokens_after`` are the whole context, both estimated; ``summarised_tokens``, ``turns`` and
    ``messages`` count what was summarised, ``turns_in_all`` also what the summary it carries on stands for.
    ``read_files``, ``modified_files`` and ``directives`` are those of all
    compactions so far; of more files than are kept the newest, and about how many more there were. ``usage`` is the
    summariser's, and in no rollup. ``previous_id`` is the marker of the compaction before, whose summary this one
    carries on.
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
    frame: Literal["pair"] | None = None
    warning: str | None = None
    previous_id: str | None = None
    more_read_files: int | None = None
    more_modified_files: int | None = None
    turns_in_all: int | None = None


def to_part(data: CompactionData) -> dict[str, Any]:
    """The part as it is stored. What is None is left out."""
    # By way of JSON: a part holds what a store gives back, lists and no tuples.
    fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(data))
    return {"type": COMPACTION_PART, "data": {key: value for key, value in fields.items() if value is not None}}
