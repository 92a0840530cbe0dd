"""Prefix caches of providers: what a request costs, by the published rules of Anthropic and OpenAI.

A request consists of blocks in the order in which providers read it: tools, system, messages. Four characters count as
a token. The caller passes the time, in seconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["AnthropicCache", "Bill", "Block", "OpenAICache", "tokens_of"]

_CHARS_PER_TOKEN: Final = 4


def tokens_of(chars: int) -> int:
    return chars // _CHARS_PER_TOKEN


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a request. ``marked``: the prefix that ends here is to be cached."""

    text: str
    marked: bool = False


@dataclass(frozen=True, slots=True)
class Bill:
    """Input tokens by price: ``full`` price, ``read`` from the cache cheaply, ``written`` to it at a surcharge."""

    full: int = 0
    read: int = 0
    written: int = 0

    def __add__(self, other: Bill) -> Bill:
        return Bill(self.full + other.full, self.read + other.read, self.written + other.written)

    @property
    def total(self) -> int:
        return self.full + self.read + self.written

    @property
    def uncached(self) -> int:
        """Return the tokens that were not in the cache."""
        return self.full + self.written


class AnthropicCache:
    """Caches prefixes that end at marked blocks, for five minutes after their last use.

    From every mark the provider looks back over 20 blocks, the marked one included, for the end of a cached prefix; the
    longest one counts. The blocks between it and the last mark are written to the cache; those after it cost the full
    price. A prefix shorter than ``min_tokens``, which depends on the model, is not cached.
    """

    MARKS: Final = 4
    LOOKBACK: Final = 20
    READ: Final = 0.1
    WRITE: Final = 1.25

    def __init__(self, *, min_tokens: int = 1_024, ttl_s: float = 300) -> None:
        self._min_tokens = min_tokens
        self._ttl_s = ttl_s
        self._until: dict[bytes, float] = {}

    def ask(self, blocks: Sequence[Block], at_s: float) -> Bill:
        ends = [*_ends(blocks)]
        marks = [index for index, block in enumerate(blocks) if block.marked]
        if len(marks) > self.MARKS:
            raise ValueError(f"a request with {len(marks)} marks is refused; {self.MARKS} are allowed")
        candidates = {index for mark in marks for index in range(max(mark - self.LOOKBACK + 1, 0), mark + 1)}
        found = max((index for index in candidates if self._until.get(ends[index][0], -1.0) >= at_s), default=None)
        cached = [index for index in marks if ends[index][1] >= self._min_tokens]
        for index in cached if found is None else (*cached, found):
            self._until[ends[index][0]] = at_s + self._ttl_s
        total = ends[-1][1] if ends else 0
        read = ends[found][1] if found is not None else 0
        written = max(ends[cached[-1]][1] - read, 0) if cached else 0
        return Bill(full=total - read - written, read=read, written=written)

    def weigh(self, bill: Bill) -> float:
        return bill.full + self.READ * bill.read + self.WRITE * bill.written


class OpenAICache:
    """Caches every request without marks, from 1,024 tokens on in steps of 128; writing is free.

    A prefix lasts five to ten minutes after its last use; here ten. Reading costs a tenth with GPT-5, a quarter with
    GPT-4.1, half with GPT-4o.
    """

    MIN_TOKENS: Final = 1_024
    STEP: Final = 128

    def __init__(self, *, read: float = 0.1, ttl_s: float = 600) -> None:
        self._read = read
        self._ttl_s = ttl_s
        self._until: dict[bytes, float] = {}

    def ask(self, blocks: Sequence[Block], at_s: float) -> Bill:
        data = "".join(block.text for block in blocks)
        total = tokens_of(len(data))
        read, running, begin = 0, hashlib.sha256(), 0
        hit = True
        for size in range(self.MIN_TOKENS, total + 1, self.STEP):
            end = size * _CHARS_PER_TOKEN
            running.update(data[begin:end].encode())
            begin, prefix = end, running.digest()
            hit = hit and self._until.get(prefix, -1.0) >= at_s
            if hit:
                read = size
            self._until[prefix] = at_s + self._ttl_s
        return Bill(full=total - read, read=read)

    def weigh(self, bill: Bill) -> float:
        return bill.full + self._read * bill.read


def _ends(blocks: Sequence[Block]) -> Iterator[tuple[bytes, int]]:
    """Yield the digest of the prefix that ends with each block, and its tokens."""
    running, chars = hashlib.sha256(), 0
    for block in blocks:
        running.update(hashlib.sha256(block.text.encode()).digest())
        chars += len(block.text)
        yield running.digest(), tokens_of(chars)
