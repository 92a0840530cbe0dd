"""Token counts of one model call, in five kinds that do not overlap.

Providers report inclusive numbers: input includes cached tokens, output includes reasoning.
:func:`Usage.from_inclusive` is the only place that separates them, so that a sum over the five kinds counts every token
once.
"""

from __future__ import annotations

from operator import add
from typing import Final

import msgspec

__all__ = ["Usage"]

_MAX_TOKENS: Final = 1 << 40
"""Far above what any call uses. A larger claim would eventually make sums that no store can hold."""


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Token usage: ``input`` without cache, ``output`` without reasoning; ``total`` is everything billed."""

    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_read: int = 0
    cache_write: int = 0

    @classmethod
    def from_inclusive(
        cls,
        *,
        input_tokens: int,
        output_tokens: int,
        reasoning_tokens: int = 0,
        cache_read_tokens: int = 0,
        cache_write_tokens: int = 0,
    ) -> Usage:
        """Separate a provider's inclusive counts. Inconsistent counts never yield negative or unstorable numbers."""
        reasoning, cache_read, cache_write = (
            min(max(count, 0), _MAX_TOKENS) for count in (reasoning_tokens, cache_read_tokens, cache_write_tokens)
        )
        return cls(
            input=min(max(input_tokens - cache_read - cache_write, 0), _MAX_TOKENS),
            output=min(max(output_tokens - reasoning, 0), _MAX_TOKENS),
            reasoning=reasoning,
            cache_read=cache_read,
            cache_write=cache_write,
        )

    @property
    def total(self) -> int:
        return sum(msgspec.structs.astuple(self))

    def __add__(self, other: Usage) -> Usage:
        return Usage(*map(add, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))
