"""Pruned outputs: tool results, and files beside them, that the model is shown as a stub, or only the ends of. The
stored part keeps all of it.

What was pruned is recorded once and stays so: the same part gives the same bytes on every later turn, so that a
provider's cache of the prompt's beginning stays good.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from clew.transcript.part import giver_of, output_text, stub_file

__all__ = ["Pruned", "prune_part", "pruned_through"]


class Pruned(msgspec.Struct, frozen=True):
    """One pruned output. ``keep`` characters of each end stay; 0: only a stub. ``tokens`` is what the output took.

    ``seq`` counts the prunes of a session; all that one prune took has the same.
    """

    seq: int
    message_id: str
    part: int
    tokens: int
    keep: int
    at: int


def pruned_through(pruned: Iterable[Pruned], seq: int | None = None) -> dict[tuple[str, int], Pruned]:
    """What holds for each part, by (message, part index): the newest record up to prune ``seq`` (None: all)."""
    found: dict[tuple[str, int], Pruned] = {}
    for one in sorted(pruned, key=lambda one: one.seq):
        if seq is None or one.seq <= seq:
            found[one.message_id, one.part] = one
    return found


def prune_part(part: Mapping[str, Any], pruned: Pruned) -> dict[str, Any]:
    """The part as the model is shown it. Input and state stay."""
    text = output_text(part)
    if giver_of(part) is not None:
        return stub_file(part, f"[pruned to save room: about {pruned.tokens} tokens]")
    if text is None:
        return dict(part)
    if pruned.keep and len(text) > 2 * pruned.keep:
        left = f"[about {pruned.tokens} tokens in all; the middle was pruned to save room]"
        return {**part, "output": f"{text[: pruned.keep]}\n{left}\n{text[-pruned.keep :]}"}
    return {**part, "output": f"[output pruned to save room: about {pruned.tokens} tokens]"}
