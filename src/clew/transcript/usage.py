"""Token counts of one model call, in five kinds that do not overlap.

Providers report inclusive numbers: their input contains what the cache served or took, their output contains the
reasoning. :func:`Usage.from_inclusive` is the only place that takes them apart, so that a sum over the five kinds
counts every token once.
"""

from __future__ import annotations

from operator import add
from typing import Final

import msgspec

__all__ = ["Usage"]

_MOST: Final = 1 << 40
"""Far more than any call takes; what claims more would in the end make sums that no store holds."""


class Usage(msgspec.Struct, frozen=True, gc=False):
    """``input`` without cache, ``output`` without reasoning; ``total`` is what was billed in all."""

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
        """Take a provider's inclusive counts apart. A provider that contradicts itself never yields a negative, nor one
        that says anything a number no store holds."""
        reasoning, cache_read, cache_write = (
            min(max(count, 0), _MOST) for count in (reasoning_tokens, cache_read_tokens, cache_write_tokens)
        )
        return cls(
            input=min(max(input_tokens - cache_read - cache_write, 0), _MOST),
            output=min(max(output_tokens - reasoning, 0), _MOST),
            reasoning=reasoning,
            cache_read=cache_read,
            cache_write=cache_write,
        )

    @property
    def total(self) -> int:
        return sum(msgspec.structs.astuple(self))

    def __add__(self, other: Usage) -> Usage:
        return Usage(*map(add, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))
