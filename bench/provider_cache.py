"""What a provider bills for a request when it keeps prefixes of earlier ones, by the rules the two large ones publish.

A request is given as blocks, in the order in which providers read it: tools, system, messages. Tokens are a quarter of
the characters. Time is given by the caller, in seconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["AnthropicCache", "Bill", "Block", "OpenAICache", "tokens_of"]

_CHARS_A_TOKEN: Final = 4


def tokens_of(chars: int) -> int:
    return chars // _CHARS_A_TOKEN


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a request. ``marked``: the caller asks for the prefix that ends here to be kept."""

    text: str
    marked: bool = False


@dataclass(frozen=True, slots=True)
class Bill:
    """Input tokens by price: ``full`` once, ``read`` from the cache for a part of it, ``written`` for a little more."""

    full: int = 0
    read: int = 0
    written: int = 0

    def __add__(self, other: Bill) -> Bill:
        return Bill(self.full + other.full, self.read + other.read, self.written + other.written)

    @property
    def total(self) -> int:
        return self.full + self.read + self.written

    @property
    def fresh(self) -> int:
        """What the provider had to read anew, whether it kept it or not."""
        return self.full + self.written


class AnthropicCache:
    """Prefixes are kept where a block is marked, for five minutes from their last use.

    From every mark the provider looks back over 20 blocks, the marked one included, for the end of a prefix it has; the
    longest counts. What lies between that and the last mark is written, what comes after it costs the full price. A
    prefix shorter than ``least`` tokens, which goes by the model, is not kept.
    """

    MARKS: Final = 4
    LOOKS_BACK: Final = 20
    READ: Final = 0.1
    WRITE: Final = 1.25

    def __init__(self, *, least: int = 1_024, keeps_s: float = 300) -> None:
        self._least = least
        self._keeps_s = keeps_s
        self._until: dict[bytes, float] = {}

    def ask(self, blocks: Sequence[Block], at_s: float) -> Bill:
        ends = [*_ends(blocks)]
        marks = [place for place, block in enumerate(blocks) if block.marked]
        if len(marks) > self.MARKS:
            raise ValueError(f"a request with {len(marks)} marks is refused; {self.MARKS} are allowed")
        seen = {place for mark in marks for place in range(max(mark - self.LOOKS_BACK + 1, 0), mark + 1)}
        found = max((place for place in seen if self._until.get(ends[place][0], -1.0) >= at_s), default=None)
        kept = [place for place in marks if ends[place][1] >= self._least]
        for place in kept if found is None else (*kept, found):
            self._until[ends[place][0]] = at_s + self._keeps_s
        total = ends[-1][1] if ends else 0
        read = ends[found][1] if found is not None else 0
        written = max(ends[kept[-1]][1] - read, 0) if kept else 0
        return Bill(full=total - read - written, read=read, written=written)

    def weigh(self, bill: Bill) -> float:
        return bill.full + self.READ * bill.read + self.WRITE * bill.written


class OpenAICache:
    """Every request is kept without being asked for, from 1,024 tokens on and in steps of 128, and writing is free.

    A prefix lasts five to ten minutes after its last use; here ten. Reading costs a tenth with GPT-5, a quarter with
    GPT-4.1, half with GPT-4o.
    """

    LEAST: Final = 1_024
    STEP: Final = 128

    def __init__(self, *, read: float = 0.1, keeps_s: float = 600) -> None:
        self._read = read
        self._keeps_s = keeps_s
        self._until: dict[bytes, float] = {}

    def ask(self, blocks: Sequence[Block], at_s: float) -> Bill:
        data = "".join(block.text for block in blocks)
        total = tokens_of(len(data))
        read, running, begin = 0, hashlib.sha256(), 0
        hit = True
        for size in range(self.LEAST, total + 1, self.STEP):
            end = size * _CHARS_A_TOKEN
            running.update(data[begin:end].encode())
            begin, prefix = end, running.digest()
            hit = hit and self._until.get(prefix, -1.0) >= at_s
            if hit:
                read = size
            self._until[prefix] = at_s + self._keeps_s
        return Bill(full=total - read, read=read)

    def weigh(self, bill: Bill) -> float:
        return bill.full + self._read * bill.read


def _ends(blocks: Sequence[Block]) -> Iterator[tuple[bytes, int]]:
    """For each block the name of the prefix that ends with it, and its tokens."""
    running, chars = hashlib.sha256(), 0
    for block in blocks:
        running.update(hashlib.sha256(block.text.encode()).digest())
        chars += len(block.text)
        yield running.digest(), tokens_of(chars)
