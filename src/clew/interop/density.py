"""A limit on the number of JSON values in a file: parsed, a value of two bytes takes fifty times as much memory."""

from __future__ import annotations

import re
from typing import Final

from clew.errors import InvalidInput

__all__ = ["check_density"]

MAX_LINE_VALUES: Final = 200_000
"""Values in one record of a JSON Lines file. Records are parsed one by one."""
_FREE_VALUES: Final = 300_000
_BYTES_PER_VALUE: Final = 12
"""Fewer than in any real session, even one with messages of one word."""
_MARKS: Final = (b"{", b"[", b",")
_TEXT: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


def check_density(data: bytes, *, lines: bool) -> None:
    """Refuse a file with far more values than a session of its size has, without parsing it."""
    if not lines:
        _check(data, 0, len(data), _FREE_VALUES + len(data) // _BYTES_PER_VALUE)
        return
    start = 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        if end - start > MAX_LINE_VALUES:
            _check(data, start, end, MAX_LINE_VALUES)
        start = end + 1


def _check(data: bytes, start: int, end: int, limit: int) -> None:
    # The quick count includes marks in texts: most files pass it.
    if sum(data.count(mark, start, end) for mark in _MARKS) <= limit:
        return
    bare = _TEXT.sub(b"", data[start:end])
    if sum(map(bare.count, _MARKS)) > limit:
        raise InvalidInput(f"it has more than {limit:,} values in {end - start:,} bytes, which no session has")
