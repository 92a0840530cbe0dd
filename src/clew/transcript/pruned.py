"""Pruned outputs: tool results, and files returned with them, of which a model is sent only a stub or the ends.

The stored part keeps the full output. A prune is recorded once and never changes: the same part gives the same bytes in
every later turn, so that the provider's prompt cache stays valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from clew.transcript.part import giver_of, output_text, stub_file

__all__ = ["Pruned", "prune_part", "pruned_through"]


class Pruned(msgspec.Struct, frozen=True):
    """One pruned output. ``keep`` characters stay at each end; 0 means only a stub. ``tokens`` is its original size.

    ``seq`` counts the prunes of a session; all outputs of one prune share it.
    """

    seq: int
    message_id: str
    part: int
    tokens: int
    keep: int
    at: int


def pruned_through(pruned: Iterable[Pruned], seq: int | None = None) -> dict[tuple[str, int], Pruned]:
    """Return the record in force for each part, by (message, part index): the newest up to prune ``seq`` (None:
    all)."""
    found: dict[tuple[str, int], Pruned] = {}
    for record in sorted(pruned, key=lambda record: record.seq):
        if seq is None or record.seq <= seq:
            found[record.message_id, record.part] = record
    return found


def prune_part(part: Mapping[str, Any], pruned: Pruned) -> dict[str, Any]:
    """Return the part as the model is sent it. Its input and state stay."""
    text = output_text(part)
    if giver_of(part) is not None:
        return stub_file(part, f"[pruned to save room: about {pruned.tokens} tokens]")
    if text is None:
        return dict(part)
    if pruned.keep and len(text) > 2 * pruned.keep:
        note = f"[about {pruned.tokens} tokens in all; the middle was pruned to save room]"
        return {**part, "output": f"{text[: pruned.keep]}\n{note}\n{text[-pruned.keep :]}"}
    return {**part, "output": f"[output pruned to save room: about {pruned.tokens} tokens]"}
